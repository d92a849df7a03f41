"""Steps one by one and steps captured: the same weights. What a CUDA graph does is played on a CPU."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import torch

from unskew.base.errors import TrainingError
from unskew.debias.losses import cross_entropy
from unskew.learners import NeuMF
from unskew.training import (
    EveryCell,
    LookedUp,
    Population,
    Sample,
    Step,
    steps,
)
from unskew.training.adam import Adam
from unskew.training.state import restore, result_parts, tensors_of
from unskew.training.steps import CapturedSteps, EagerSteps

SEEDS = (3, 8)
EPOCHS = 3


@contextmanager
def no_stream():
    yield None


@pytest.fixture
def played(monkeypatch):
    """A graph that does its work at every replay, and nothing while it is captured."""
    captured = []

    def capture(work, stream):
        captured.append(work)
        return work

    monkeypatch.setattr(steps, "side_stream", no_stream)
    monkeypatch.setattr(steps, "capture", capture)
    return captured


def trained(log, executor, device="cpu", sampler=None, loss=None, batch_size=64):
    """Weights and losses after some epochs over D."""
    population = Population(log, torch.device(device))
    spec = NeuMF(dim=16, layers=(16, 16, 16))
    network = spec.build(log.schema, SEEDS).to_device(population.device)

    def default_loss(sample: Sample):
        return cross_entropy(sample.click, network(sample.rows)).mean(-1)

    sampler = sampler or LookedUp(EveryCell(population, SEEDS, batch_size), population)
    step = Step("fit", (lambda sample: loss(network, sample)) if loss else default_loss, ("network",))
    run = executor(EagerSteps([step], {"network": Adam(network, 0.01, 1e-4, batch_size)}))
    losses = [run.run(sampler, epoch)["fit"].clone() for epoch in range(EPOCHS)]
    return network, torch.stack(losses)


def eagerly(eager):
    return eager


def assert_same(one, other, *, tolerance=0.0):
    (network, losses), (expected, expected_losses) = one, other
    torch.testing.assert_close(losses, expected_losses, rtol=0, atol=tolerance)
    for weight, wanted in zip(network.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(weight, wanted, rtol=0, atol=tolerance)


class Blocks:
    """Every epoch's cells cut into blocks of so many steps."""

    def __init__(self, population, sizes):
        self.inner = LookedUp(EveryCell(population, SEEDS, 64), population)
        self.sizes = sizes
        self.steps = self.inner.steps
        assert sum(sizes) == self.steps

    def epoch(self, number):
        (whole,) = self.inner.epoch(number)
        start = 0
        for size in self.sizes:
            yield whole.map(partial(torch.narrow, dim=1, start=start, length=size))
            start += size


class TestPlayedOnACPU:
    def test_captured_steps_train_as_steps_one_by_one(self, matrix_log, played):
        assert_same(trained(matrix_log, CapturedSteps), trained(matrix_log, eagerly))
        assert len(played) == 1, "one graph serves all epochs"

    @pytest.mark.parametrize(
        ("sizes", "graphs"), [((10, 9), 1), ((4, 7, 8), 3), ((1, 2, 16), 3), ((19,), 1), ((8, 3, 8), 1)]
    )
    def test_blocks_of_any_sizes_are_trained_on_once_each(self, matrix_log, played, sizes, graphs):
        population = Population(matrix_log, torch.device("cpu"))
        blocks = Blocks(population, sizes)
        ours = trained(matrix_log, CapturedSteps, sampler=blocks)
        assert_same(ours, trained(matrix_log, eagerly, sampler=blocks))
        assert len(played) == graphs, "a larger block than any before is captured anew"

    @pytest.mark.parametrize("executor", [CapturedSteps, eagerly])
    def test_an_epoch_goes_on_from_any_step_of_any_block(self, matrix_log, played, executor):
        """As a checkpoint does it: from weights, moments, sums of losses and the position."""
        blocks = Blocks(Population(matrix_log, torch.device("cpu")), (4, 7, 8))
        states = []

        def made(start=None):
            network = NeuMF(dim=16, layers=(16, 16, 16)).build(matrix_log.schema, SEEDS)
            adam = Adam(network, 0.01, 1e-4, 64)
            parts = {**result_parts({"network": network}, None), "optimiser/network": adam}
            step = Step(
                "fit", lambda each: cross_entropy(each.click, network(each.rows)).mean(-1), ("network",)
            )
            run, position = executor(EagerSteps([step], {"network": adam})), steps.START
            if start is not None:
                tensors, position = start
                restore(parts, tensors)
                return run.run(blocks, 0, position)["fit"], tensors_of(parts)

            def after(position):
                sums = {name: total.clone() for name, total in position.sums.items()}
                copies = {name: each.clone() for name, each in tensors_of(parts).items()}
                states.append((copies, replace(position, sums=sums)))

            return run.run(blocks, 0, position, after)["fit"], tensors_of(parts)

        losses, wanted = made()
        assert len({(each.block, each.step) for _, each in states}) == len(states) >= 10
        for start in states:
            found_losses, found = made(start)
            assert torch.equal(found_losses, losses)
            assert all(torch.equal(found[name], each) for name, each in wanted.items())

    def test_steps_that_cannot_be_captured_run_one_by_one_and_a_warning_says_so(
        self, matrix_log, monkeypatch
    ):
        asked = []

        def refuse(work, stream):
            asked.append(work)
            raise RuntimeError("operation not permitted when stream is capturing\nmore words")

        monkeypatch.setattr(steps, "side_stream", no_stream)
        monkeypatch.setattr(steps, "capture", refuse)
        sizes = Blocks(Population(matrix_log, torch.device("cpu")), (4, 7, 8))
        with pytest.warns(
            UserWarning, match=r"cannot be captured.*slower: operation not permitted.*capturing$"
        ):
            ours = trained(matrix_log, CapturedSteps, sampler=sizes)
        assert_same(ours, trained(matrix_log, eagerly, sampler=sizes))
        assert len(asked) == 1, "it is not tried again"

    def test_memory_that_runs_out_while_capturing_is_not_taken_for_a_step_that_cannot_be(
        self, matrix_log, monkeypatch
    ):
        def exhaust(work, stream):
            raise torch.cuda.OutOfMemoryError("out of memory")

        monkeypatch.setattr(steps, "side_stream", no_stream)
        monkeypatch.setattr(steps, "capture", exhaust)
        with pytest.raises(torch.cuda.OutOfMemoryError):
            trained(matrix_log, CapturedSteps)


@pytest.mark.gpu
class TestOnAGPU:
    def test_captured_steps_train_as_steps_one_by_one(self, matrix_log):
        # Sums over a batch are added up in any order on a GPU, so the two agree to rounding.
        ours, theirs = (trained(matrix_log, each, "cuda") for each in (CapturedSteps, eagerly))
        assert_same(ours, theirs, tolerance=2e-3)

    def test_steps_that_ask_the_device_for_a_number_run_one_by_one(self, matrix_log):
        def asks(network, sample):
            loss = cross_entropy(sample.click, network(sample.rows)).mean(-1)
            return loss / max(1.0, float(loss.detach().sum()))

        with pytest.warns(UserWarning, match="cannot be captured"):
            _, losses = trained(matrix_log, CapturedSteps, "cuda", loss=asks)
        assert (losses[-1] < losses[0]).all()
        # The device is fit for another capture afterwards.
        trained(matrix_log, CapturedSteps, "cuda")

    def test_training_on_a_gpu_that_is_not_the_current_one(self, matrix_log):
        if torch.cuda.device_count() < 2:
            pytest.skip("there is only one GPU")
        with torch.cuda.device(0):
            _, losses = trained(matrix_log, CapturedSteps, "cuda:1")
        assert losses.device == torch.device("cuda", 1)
        assert (losses[-1] < losses[0]).all()

    def test_a_cpu_and_a_gpu_train_the_same_network(self, matrix_log):
        ours, theirs = trained(matrix_log, CapturedSteps, "cuda"), trained(matrix_log, eagerly, "cpu")
        torch.testing.assert_close(ours[1].cpu(), theirs[1], rtol=0, atol=2e-3)


@pytest.mark.parametrize(
    ("loss", "found"), [(None, "NoneType"), (1.0, "float"), (torch.ones(2), "a tensor without a gradient")]
)
def test_a_loss_that_cannot_be_trained_on_is_told(loss, found):
    step = Step("fit", lambda sample: loss, ("network",))
    with pytest.raises(TrainingError, match=f"the loss of the step 'fit' is {found}, not a tensor"):
        EagerSteps([step], {}).take(None)
