"""The loop on problems scripted by hand: when each replica stops, what it keeps, what ends in an error."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from unskew.base.errors import ParameterError, TrainingError
from unskew.base.progress import SILENT
from unskew.training import Pass, Sample, Schedule, Step, loop, train

RATE = 0.1


class Walker(nn.Module):
    """One number per replica, from 0; with the loss −w, Adam adds its learning rate in every step."""

    def __init__(self, replicas: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(replicas))


class OneStep:
    """An epoch of a single step over nothing."""

    steps = 1
    batch_rows = 1

    def epoch(self, number: int):
        yield Sample(observed=torch.zeros(1, 1, 1, dtype=torch.int64))


class Recorder:
    def __init__(self) -> None:
        self.advanced, self.finished = 0, False

    def advance(self, steps: int = 1) -> None:
        self.advanced += steps

    def may_end(self, steps: int) -> None:
        pass

    def observe(self, part: float, rows: int, figures: dict[str, float]) -> None:
        self.figures = figures

    def finish(self) -> None:
        self.finished = True


def upwards(w):
    return -w


def walk(valleys, *, patience=2, epochs=30, loss=upwards, selects=True, tracker=None):
    """Replica k walks upwards; its validation loss is ``valleys[k](w)``."""
    walker = Walker(len(valleys))

    def validate():
        assert not walker.training
        assert not torch.is_grad_enabled()
        return torch.stack([valley(w) for valley, w in zip(valleys, walker.w.detach(), strict=True)])

    history = train(
        {"walker": walker},
        [Pass(OneStep(), (Step("walk", lambda sample: loss(walker.w), ("walker",)),))],
        Schedule(epochs=epochs, learning_rate=RATE, weight_decay=0.0, patience=patience),
        replicas=len(valleys),
        validate=validate if selects else None,
        tracker=tracker or SILENT.task("walk", epochs),
    )
    return walker.w.detach(), history


def valley_at(bottom: float):
    return lambda w: (w - bottom).abs()


def test_each_replica_stops_at_its_own_time_and_keeps_its_best_weights():
    weights, history = walk([valley_at(0.3), valley_at(0.8), valley_at(0.5)])
    assert history.best_epoch == [2, 7, 4]
    torch.testing.assert_close(weights, torch.tensor([0.3, 0.8, 0.5]))
    assert len(history.validation) == 7 + 1 + 2, "the slowest has waited for two epochs"


def test_a_replica_ends_as_if_it_had_been_trained_alone():
    valleys = [valley_at(0.3), valley_at(0.8), valley_at(0.5)]
    together, _ = walk(valleys)
    for valley, weight in zip(valleys, together, strict=True):
        assert torch.equal(walk([valley])[0][0], weight)


def test_patience_bridges_as_many_epochs_without_improvement():
    def hill(w):
        return torch.where((w > 0.35) & (w < 0.65), 2.0, 1.0 - w)

    for patience, best in ((3, 2), (4, 29)):
        weights, history = walk([hill], patience=patience)
        assert history.best_epoch == [best]
        torch.testing.assert_close(weights, torch.tensor([RATE * (best + 1)]))


@pytest.mark.parametrize("options", [{"patience": None}, {"selects": False}])
def test_without_patience_or_validation_the_last_epoch_is_kept(options):
    weights, history = walk([valley_at(0.3), valley_at(0.8)], epochs=12, **options)
    torch.testing.assert_close(weights, torch.full((2,), 12 * RATE))
    assert history.best_epoch == [11, 11]
    assert len(history.validation) == (12 if options.get("selects", True) else 0)


def test_history_and_progress_tell_every_epoch():
    tracker = Recorder()
    _, history = walk([valley_at(0.3)], tracker=tracker)
    assert tracker.advanced == len(history.validation) == len(history.train["walk"]) == 5
    assert tracker.finished
    torch.testing.assert_close(
        torch.tensor(history.train["walk"]), -RATE * torch.arange(5.0).unsqueeze(1), atol=1e-6, rtol=0
    )
    told = history.to_dict()
    assert told["best_epoch"] == [2]
    assert set(told) == {"train", "validation", "best_epoch"}


def test_a_loss_that_becomes_nan_names_itself_its_epoch_and_its_replica():
    def breaks(w):
        return torch.where((w > 0.25) & (torch.arange(2) == 1), torch.nan, -w)

    with pytest.raises(
        TrainingError, match=r"'walk' became nan in epoch 3 \(replica 1\).*lower learning_rate"
    ):
        walk([valley_at(1.0), valley_at(1.0)], loss=breaks)


def test_a_replica_may_diverge_after_it_stopped():
    def breaks(w):
        return torch.where((w > 0.65) & (torch.arange(2) == 0), torch.nan, -w)

    weights, history = walk([valley_at(0.3), valley_at(0.9)], loss=breaks)
    assert history.best_epoch == [2, 8]
    torch.testing.assert_close(weights, torch.tensor([0.3, 0.9]))


def test_a_step_changes_the_networks_it_trains_and_no_others():
    first, second = Walker(2), Walker(2)
    both = Step("both", lambda sample: -first.w - 5 * second.w, ("first",))
    train(
        {"first": first, "second": second},
        [Pass(OneStep(), (both,))],
        Schedule(epochs=3, learning_rate=RATE, weight_decay=0.0, patience=None),
        replicas=2,
        validate=None,
        tracker=SILENT.task("training", 1),
    )
    torch.testing.assert_close(first.w.detach(), torch.full((2,), 3 * RATE))
    assert not second.w.any()


def test_passes_alternate_by_epoch_and_steps_by_batch():
    first, second = Walker(1), Walker(1)
    seen = []

    def step(name, walker):
        def loss(sample):
            seen.append(name)
            return -walker.w

        return Step(name, loss, (name,))

    class TwoSteps(OneStep):
        steps = 2

        def epoch(self, number):
            yield Sample(observed=torch.zeros(1, 2, 1, dtype=torch.int64))

    steps = step("first", first), step("second", second)
    for passes, expected in (
        ([Pass(TwoSteps(), steps[:1]), Pass(TwoSteps(), steps[1:])], ["first", "first", "second", "second"]),
        ([Pass(TwoSteps(), steps)], ["first", "second", "first", "second"]),
    ):
        seen.clear()
        train(
            {"first": first, "second": second},
            passes,
            Schedule(epochs=2, learning_rate=RATE, weight_decay=0.0, patience=None),
            replicas=1,
            validate=None,
            tracker=SILENT.task("training", 1),
        )
        assert seen == 2 * expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0"),
        ({"weight_decay": -1e-4}, "weight_decay must be at least 0"),
        ({"patience": 0}, "patience must be at least 1, not 0"),
    ],
)
def test_schedules_that_cannot_work_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        Schedule(**{"epochs": 1, "learning_rate": 0.1, "weight_decay": 0.0, "patience": None, **options})


@pytest.mark.parametrize("value", [0.6931471805599453, 1 / 3])
def test_an_epoch_that_is_as_good_is_no_better_also_after_a_restart(value):
    """The best loss comes back from a checkpoint as it was: float64, if validation says float64."""
    network = torch.nn.Linear(1, 1)
    before, after = (loop.BestWeights({"network": network}, 1) for _ in range(2))
    loss = torch.tensor([value], dtype=torch.float64)
    before.offer(loss, 0)
    after.restore(before.tensors())
    after.offer(loss, 1)
    assert after.put_back() == [0]
