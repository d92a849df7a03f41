"""NeuMF's tower in one go: the numbers and gradients of the layers."""

from __future__ import annotations

import pytest
import torch

from unskew.data import Rows, Schema
from unskew.debias.losses import cross_entropy
from unskew.kernels import neumf_cpu, threads
from unskew.learners import NeuMF

USERS, ITEMS = 23, 19


def network_of(spec: NeuMF, replicas: int, device: str = "cpu"):
    """A network with weights large enough for every layer to matter."""
    network = spec.build(Schema.of_ids(USERS, ITEMS), range(replicas)).to_device(torch.device(device))
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=random).to(device)
    return network


def batch(replicas: int, size: int, device: str = "cpu"):
    random = torch.Generator().manual_seed(1)
    user = torch.randint(USERS, (replicas, size), generator=random)
    item = torch.randint(ITEMS, (replicas, size), generator=random)
    rows = Rows(user=user, item=item)
    return rows.to(device), torch.rand(replicas, size, generator=random).to(device)


def two_steps(network, in_one_go: bool, rows, target):
    """Logits of two calls and the gradients of the first, from the first dropout mask on."""
    network.fusible = in_one_go
    network.noise.restart()
    network.zero_grad()
    first = network(rows)
    cross_entropy(target, first).mean(-1).sum().backward()
    with torch.no_grad():
        second = network(rows)
    return first.detach(), second, [parameter.grad.clone() for parameter in network.parameters()]


def assert_same(network, asked, *, tolerance: float):
    for training in (True, False):
        network.train(training)
        ours, theirs = (two_steps(network, in_one_go, *asked) for in_one_go in (True, False))
        for one, other in zip((*ours[:2], *ours[2]), (*theirs[:2], *theirs[2]), strict=True):
            assert other.abs().max() > 0
            error = (one - other).abs().max() / other.abs().max()
            assert error < tolerance, (training, tuple(other.shape), float(error))


class TestOnCPU:
    @pytest.mark.parametrize("threads_", [1, 2, 3])
    @pytest.mark.parametrize("replicas", [1, 2, 5])
    def test_logits_and_gradients_are_those_of_the_layers(self, replicas, threads_, monkeypatch):
        monkeypatch.setattr(threads, "count", lambda: threads_)
        monkeypatch.setattr(neumf_cpu, "SMALLEST_PART", 200)
        asked = batch(replicas, 700)
        assert_same(network_of(NeuMF(dropout=0.3), replicas), asked, tolerance=1e-5)

    @pytest.mark.parametrize(
        "spec",
        [
            NeuMF(dim=3, layers=(5,), dropout=0.4),
            NeuMF(dim=7, layers=(9, 6, 4, 2), dropout=0.1),
            NeuMF(dim=16, layers=(16, 16), dropout=0.0),
        ],
    )
    def test_any_widths_and_any_number_of_layers(self, spec):
        assert_same(network_of(spec, 2), batch(2, 50), tolerance=1e-5)

    def test_predictions_do_not_depend_on_tiles(self, monkeypatch):
        network, (rows, _) = network_of(NeuMF(), 2), batch(2, 333)
        with torch.no_grad():
            network.noise.restart()
            whole = network(rows)
            monkeypatch.setattr(neumf_cpu, "TILE", 100)
            network.noise.restart()
            torch.testing.assert_close(network(rows), whole, rtol=0, atol=1e-6)

    def test_an_empty_batch_has_no_logits(self):
        nothing = torch.empty(2, 0, dtype=torch.int64)
        with torch.no_grad():
            assert network_of(NeuMF(), 2)(Rows(user=nothing, item=nothing)).shape == (2, 0)

    @pytest.mark.parametrize(("user", "item"), [(USERS, 0), (-1, 0), (0, ITEMS)])
    def test_codes_that_are_not_there_are_an_error(self, user, item):
        with pytest.raises(IndexError, match="do not fit"):
            network_of(NeuMF(), 1)(Rows(user=torch.tensor([[0, user]]), item=torch.tensor([[0, item]])))

    def test_a_weight_that_is_not_a_number_is_not_hidden(self):
        network, (rows, _) = network_of(NeuMF(), 1), batch(1, 40)
        with torch.no_grad():
            network.tower["prediction"].mlp[1].bias[0, 0, 3] = torch.nan
            network.eval()
            assert network(rows).isnan().all()

    def test_double_precision_goes_through_the_layers(self):
        network, (rows, _) = network_of(NeuMF(), 1).double(), batch(1, 10)
        assert network(rows).dtype == torch.float64


class TestThreads:
    @pytest.mark.parametrize("wanted", [1, 2, 8])
    def test_every_task_is_done_once(self, wanted, monkeypatch):
        monkeypatch.setattr(threads, "count", lambda: wanted)
        done = [0] * 50

        def work(task):
            assert not torch.is_grad_enabled()
            done[task] += 1

        threads.for_each(work, range(50))
        assert done == [1] * 50

    def test_an_error_in_a_task_is_raised(self, monkeypatch):
        monkeypatch.setattr(threads, "count", lambda: 3)

        def work(task):
            if task == 7:
                raise ValueError("task 7")

        with pytest.raises(ValueError, match="task 7"):
            threads.for_each(work, range(20))

    def test_pytorchs_threads_are_given_back_also_after_an_error(self):
        before = torch.get_num_threads()

        def fail_inside():
            with threads.reserved(), threads.reserved():
                assert torch.get_num_threads() == 1
                assert threads.count() == before
                raise RuntimeError("on purpose")

        with pytest.raises(RuntimeError, match="on purpose"):
            fail_inside()
        assert torch.get_num_threads() == before == threads.count()
