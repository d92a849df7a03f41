"""Towers over x₀ in one go: the numbers and gradients of the layers, one by one."""

from __future__ import annotations

import pytest
import torch

from unskew.backbones import DCN, MLP, fused_cpu, threads, tower_cpu
from unskew.backbones.backbone import Blueprint
from unskew.backbones.fields import Tower
from unskew.backbones.noise import Noise
from unskew.log import Schema

WIDTH = 11


def tower_of(replicas: int, crosses: int = 2, layers=(6, 4), dropout: float = 0.3) -> Tower:
    """A tower with weights large enough for every layer to matter."""
    generators = [torch.Generator().manual_seed(seed) for seed in range(replicas)]
    plan = Blueprint(Schema.of_ids(3, 3), generators, Noise(range(replicas)), ("prediction",))
    tower = Tower(WIDTH, layers, dropout, plan, crosses)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in tower.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=random)
    return tower


def inputs_of(replicas: int, rows: int) -> torch.Tensor:
    x = torch.randn(replicas, rows, WIDTH, generator=torch.Generator().manual_seed(1))
    # Numbers are often zero, which is not the same as dropped.
    x[..., -1] = 0.0
    return x.requires_grad_()


def two_steps(tower: Tower, x: torch.Tensor) -> list[torch.Tensor]:
    """Logits of two calls and the gradients of the first, from the first dropout mask on."""
    tower.mlp.dropouts[0].noise.restart()
    tower.zero_grad()
    x.grad = None
    first = tower(x)
    first.square().mean(-1).sum().backward()
    with torch.no_grad():
        second = tower(x)
    return [first.detach(), second, x.grad, *(parameter.grad for parameter in tower.parameters())]


def assert_same(tower: Tower, x: torch.Tensor, monkeypatch) -> None:
    for training in (True, False):
        tower.train(training)
        assert tower.in_one_go(x)
        ours = two_steps(tower, x)
        with monkeypatch.context() as patch:
            patch.setattr(Tower, "in_one_go", lambda *_: False)
            theirs = two_steps(tower, x)
        for one, other in zip(ours, theirs, strict=True):
            assert other.abs().max() > 0
            assert (one - other).abs().max() < 1e-5 * other.abs().max()


@pytest.mark.parametrize("threads_", [1, 2, 3])
@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_logits_and_gradients_are_those_of_the_layers(replicas, threads_, monkeypatch):
    monkeypatch.setattr(threads, "count", lambda: threads_)
    monkeypatch.setattr(fused_cpu, "SMALLEST_PART", 100)
    monkeypatch.setattr(tower_cpu, "TILE", 64)
    assert_same(tower_of(replicas), inputs_of(replicas, 333), monkeypatch)


@pytest.mark.parametrize(
    ("crosses", "layers", "dropout"), [(0, (6, 4), 0.3), (1, (5,), 0.4), (3, (9, 6, 4), 0.0), (0, (3,), 0.0)]
)
def test_any_number_of_crosses_and_layers(crosses, layers, dropout, monkeypatch):
    assert_same(tower_of(2, crosses, layers, dropout), inputs_of(2, 50), monkeypatch)


def test_a_replica_is_the_same_alone_and_beside_others():
    together, alone = tower_of(3), tower_of(1)
    with torch.no_grad():
        for own, every in zip(alone.parameters(), together.parameters(), strict=True):
            own.copy_(every[:1])
    x = inputs_of(3, 40)
    assert torch.equal(alone(x[:1]), together(x)[:1])


def test_an_empty_batch_has_no_logits():
    tower = tower_of(2)
    with torch.no_grad():
        assert tower(torch.empty(2, 0, WIDTH)).shape == (2, 0)


def test_a_weight_that_is_not_a_number_is_not_hidden():
    tower = tower_of(1).eval()
    with torch.no_grad():
        tower.mlp.layers[0].bias[0, 0, 3] = torch.nan
        assert tower(inputs_of(1, 40)).isnan().all()


def test_double_precision_goes_through_the_layers():
    assert tower_of(1).double()(inputs_of(1, 10).double()).dtype == torch.float64


def test_a_second_gradient_is_an_error_not_a_zero():
    x = inputs_of(1, 10)
    (gradient,) = torch.autograd.grad(tower_of(1)(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("backbone", [DCN, MLP])
def test_networks_have_such_towers(backbone):
    network = backbone(dim=4).build(Schema.of_ids(5, 4), [0, 1])
    assert isinstance(network.tower["prediction"], Tower)
