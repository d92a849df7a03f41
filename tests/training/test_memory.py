"""Replicas in groups where memory runs out; the memory is played."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import unskew as us
from contracts.stages import short_stages
from unskew.base.errors import TrainingError
from unskew.base.progress import memory_mb
from unskew.data import Schema
from unskew.data.vocabulary import Vocabulary
from unskew.debias import fit
from unskew.propensity import network
from unskew.training import History, in_groups, join_histories, memory, train
from unskew.training.memory import Size, replicas_at_once, size_of


def limited_to(most: int):
    """Work that gives the replicas back, and runs out of memory with more than ``most``."""

    def work(replicas: slice) -> list[int]:
        numbers = list(range(100))[replicas]
        if len(numbers) > most:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return numbers

    return work


class TestInGroups:
    @pytest.fixture(autouse=True)
    def _uncollected(self, monkeypatch):
        """There is nothing to free here, and all that tests have made is gone through for it, in a second."""
        monkeypatch.setattr(memory.gc, "collect", lambda: 0)

    @pytest.mark.parametrize("most", [1, 3, 9])
    def test_every_replica_comes_once_and_in_order(self, most):
        with pytest.warns(UserWarning, match="ran out of memory"):
            groups = in_groups(10, limited_to(most))
        assert [number for group in groups for number in group] == list(range(10))
        assert max(map(len, groups)) <= most

    def test_warnings_tell_how_many_are_trained_at_a_time(self):
        with pytest.warns(UserWarning, match="at a time") as told:
            in_groups(10, limited_to(3))
        assert [str(each.message) for each in told] == [
            "the GPU ran out of memory with 10 replicas; training continues with 5 at a time",
            "the GPU ran out of memory with 5 replicas; training continues with 3 at a time",
        ]

    def test_not_even_one_is_an_error_with_a_remedy(self):
        with (
            pytest.warns(UserWarning, match="ran out of memory"),
            pytest.raises(TrainingError, match=r"not enough memory for a single replica.*--device cpu"),
        ):
            in_groups(4, limited_to(0))


def test_histories_stand_side_by_side_and_shorter_ones_keep_their_last_losses():
    joined = join_histories(
        [
            History({"a": [[1.0, 2.0], [3.0, 4.0]]}, [[5.0, 6.0], [7.0, 8.0]], [0, 1]),
            History({"a": [[9.0]]}, [[10.0]], [0]),
        ]
    )
    assert joined.train == {"a": [[1.0, 2.0, 9.0], [3.0, 4.0, 9.0]]}
    assert joined.validation == [[5.0, 6.0, 10.0], [7.0, 8.0, 10.0]]
    assert joined.best_epoch == [0, 1, 0]


@pytest.fixture
def small_memory(monkeypatch):
    """A device that holds so many networks' replicas at once; how many were trained, group by group."""

    def limit(most: int) -> list[int]:
        trained = []

        def watched(*given, replicas, **further):
            if replicas > most:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            trained.append(replicas)
            return train(*given, replicas=replicas, **further)

        for module in (fit, network):
            monkeypatch.setattr(module, "train", watched)
        return trained

    return limit


@pytest.fixture(scope="module")
def log():
    return us.load("synthetic", n_users=60, n_items=40, density=0.15, seed=1).train


PROPENSITY = {"learner": us.MF(dim=4), "learning_rate": 0.02, "epochs": 6, "patience": 2}


@pytest.mark.parametrize(
    ("options", "groups"),
    [
        # Also between the folds of one seed, and between the members of one ensemble.
        ({"crossfit": 2, "uncertainty": us.DeepEnsemble(members=2), "negatives": 2}, [3, 3, 3, 3, 3, 3, 2]),
    ],
)
def test_a_propensity_trained_in_groups_is_the_one_trained_at_once(log, small_memory, options, groups):
    at_once = us.Propensity(**PROPENSITY, **options).fit(log, seeds=5)
    trained = small_memory(groups[0])
    with pytest.warns(UserWarning, match="at a time"):
        in_parts = us.Propensity(**PROPENSITY, **options).fit(log, seeds=5)
    assert trained == groups
    assert in_parts.seeds_ == at_once.seeds_
    for calibrated in (False, True):
        np.testing.assert_allclose(
            in_parts.predict_matrix_each(calibrated=calibrated),
            at_once.predict_matrix_each(calibrated=calibrated),
            atol=1e-5,
        )
    assert in_parts.history_.best_epoch == at_once.history_.best_epoch
    assert in_parts.diagnose()["calibrated"]["nll"] == pytest.approx(at_once.diagnose()["calibrated"]["nll"])


@pytest.mark.parametrize("method", [us.GPL, us.ESCM2DR])
def test_a_debiaser_trained_in_groups_is_the_one_trained_at_once(log, small_memory, method):
    def fitted():
        model = method(learner=us.MF(dim=4), epochs=4, learning_rate=0.02, patience=2, **short_stages(method))
        return model.fit(log, propensity=np.linspace(0.05, 0.4, 5 * len(log)).reshape(5, -1), seeds=5)

    at_once = fitted()
    small_memory(3)
    with pytest.warns(UserWarning, match="3 at a time"):
        in_parts = fitted()
    np.testing.assert_allclose(in_parts.predict_each(log), at_once.predict_each(log), atol=1e-5)
    np.testing.assert_allclose(in_parts.validation_loss_, at_once.validation_loss_, rtol=1e-4)
    assert in_parts.seeds_ == at_once.seeds_
    for kind, figures in getattr(at_once, "click_propensity_", {}).items():
        assert in_parts.click_propensity_[kind]["nll"] == pytest.approx(figures["nll"], rel=1e-4)
        assert in_parts.click_propensity_[kind]["auc"] == pytest.approx(figures["auc"], rel=1e-3)


CPU = torch.device("cpu")


class TestEstimate:
    @pytest.mark.parametrize(
        ("trained", "groups"), [(20.0, [50]), (10.0, [50]), (9.9, [25, 25]), (2.0, [10] * 5), (0.1, [1] * 50)]
    )
    def test_groups_follow_from_sizes_alone_and_are_even(self, monkeypatch, trained, groups):
        """50 networks of 40 MB: weights, gradients, two moments and best weights are 10 GB."""
        monkeypatch.setattr(memory, "TRAINED_BYTES", round(trained * 1e9))
        size = replicas_at_once(50, Size(10_000_000), CPU)
        assert in_groups(50, lambda part: part.stop - part.start, size) == groups

    def test_one_line_with_the_numbers_and_the_remedies_where_the_machine_is_too_small(self, monkeypatch):
        monkeypatch.setattr(memory, "machine_memory", lambda: 5_000_000_000)
        with pytest.raises(
            TrainingError, match=r"50 networks of 10,000,000 .* 5.4 GB to train, 17 at"
        ) as told:
            replicas_at_once(50, Size(10_000_000), CPU)
        assert "smaller dim" in told.value.remedy
        assert replicas_at_once(20, Size(10_000_000), CPU) == 20
        assert replicas_at_once(50, Size(10_000_000), torch.device("cuda")) == 50

    def test_tables_trained_by_touched_rows_have_no_gradient_of_their_size(self):
        schema = Schema.of_ids(8 * 64 + 1, 8 * 64)
        found = size_of(lambda schema: [us.MF(dim=3).build(schema, [0])], schema, 64)
        assert found == Size(parameters=1025 * 4 + 1, by_rows=513 * 4, rows=513)
        assert found.in_training == 5 * (512 * 4 + 1) + 4 * 513 * 4 + 3 * 513


def test_a_propensity_whose_folds_do_not_fit_at_once_is_the_same(log, small_memory, monkeypatch):
    at_once = us.Propensity(**PROPENSITY, crossfit=5).fit(log, seeds=2)
    networks = at_once.network_.replicas
    trained = small_memory(most=networks)
    parameters = sum(p.numel() for p in us.MF(dim=4).build(log.schema, [0]).parameters())
    monkeypatch.setattr(memory, "TRAINED_BYTES", 4 * parameters * 5 * 3)
    in_parts = us.Propensity(**PROPENSITY, crossfit=5).fit(log, seeds=2)
    assert max(trained) == 3
    assert sum(trained) == networks
    np.testing.assert_allclose(in_parts.predict_matrix_each(), at_once.predict_matrix_each(), atol=1e-5)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system tells nothing of memory")
def test_what_was_freed_is_given_back_to_the_system():
    held = [np.ones(10_000) for _ in range(2_000)]
    with_all = memory_mb()
    # What is in use at the end of the heap keeps the C library from giving back what is before it.
    last = held.pop()
    del held
    memory.give_back()
    assert memory_mb() < with_all - 100
    assert last.sum() == 10_000


def test_seven_hundred_thousand_ids_are_answered_before_memory_is_taken(monkeypatch):
    ids = {"users": Vocabulary.range(690_000, name="user"), "items": Vocabulary.range(10_000, name="item")}
    pairs = np.arange(300)
    log = us.Log.from_arrays(user=pairs * 2000, item=pairs * 30, conversion=pairs % 2, **ids)
    monkeypatch.setattr(memory, "machine_memory", lambda: 16_000_000_000)
    built, original = [], us.NeuMF.build

    def build(self, schema, *rest, **named):
        network = original(self, schema, *rest, **named)
        built.append(all(parameter.is_meta for parameter in network.parameters()))
        return network

    monkeypatch.setattr(us.NeuMF, "build", build)
    with pytest.raises(TrainingError, match=r"50 networks of 89,610,945 .* 22.2 GB .* 16 GB"):
        us.Propensity().fit(log, seeds=10)
    with pytest.raises(TrainingError, match=r"100 networks .* GB"):
        us.IPS().fit(log, propensity=0.1, seeds=100)
    assert built
    assert all(built)
