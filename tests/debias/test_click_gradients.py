"""Where the click tower trains and where it does not, in methods that train one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from contracts.click_world import CELLS, JOINT, World, deep
from unskew import DDPO, DRV2, ESMM, IPSV2
from unskew.study.legacy import OfficialV2, as_published


def weights_of(cls: type, weight: float) -> dict[str, float]:
    """The parameters that weigh the loss of conversions."""
    further = {"imputation_weight": weight} if cls is DRV2 else {}
    return {"conversion_weight": weight, **further}


def conversion_loss(cls: type, shift: float = 0.0, **params: str) -> np.ndarray:
    """The loss of conversions: what its weight adds to the loss."""
    found = []
    for weight in (1.0, 0.0):
        world = World(deep(cls, **weights_of(cls, weight), **params))
        world.shift_clicks(shift)
        found.append(world.loss())
    return found[0] - found[1]


def click_gradients(cls: type, weight: float, *deviations: type, **params: str) -> dict[str, torch.Tensor]:
    """Gradients of what is the click tower's own."""
    world = World(as_published(deep(cls, **weights_of(cls, weight), **params), *deviations))
    world.gradients(world.method.loss(world.setting, world.observed, world.full))
    return {
        f"{name}/{key}": parameter.grad.clone()
        for name, network in world.networks.items()
        for key, parameter in network.named_parameters()
        if "click" in f"{name}/{key}" and parameter.grad is not None
    }


@pytest.mark.parametrize("source", ["external", "in-loop"])
@pytest.mark.parametrize("cls", JOINT)
def test_p_has_no_gradient_where_it_is_a_weight_and_has_one_in_the_loss_of_clicks(cls, source):
    with_it, without = (click_gradients(cls, weight, calibration=source) for weight in (1.0, 0.0))
    assert any(bool((each != 0).any()) for each in with_it.values())
    for name, gradient in with_it.items():
        torch.testing.assert_close(gradient, without[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("cls", [IPSV2, DRV2])
def test_the_published_v2_methods_let_the_conversion_loss_move_p(cls):
    with_it, without = (click_gradients(cls, weight, OfficialV2) for weight in (1.0, 0.0))
    assert any(not torch.allclose(with_it[name], without[name], rtol=1e-3) for name in with_it)


def test_the_soft_label_of_ddpo_is_learned_from_clicks_alone():
    for weight in (0.0, 1.0):
        world = World(deep(DDPO, soft_label_weight=weight))
        gradients = world.gradients(world.method.loss(world.setting, world.observed, world.full))
        moved = sum(size for name, size in gradients.items() if "soft_label" in name)
        assert (moved > 0.0) is (weight > 0.0)


@pytest.mark.parametrize("cls", [ESMM, *JOINT])
def test_held_out_cells_leave_the_click_tower_as_it_is_and_others_do_not(cls):
    world = World(deep(cls, **({"calibration": "external"} if cls is not ESMM else {})))
    trains = world.setting.held_out.trains(world.full.rows)[0].numpy()
    for kind, moves in ((~trains, False), (trains, True)):
        rows = np.flatnonzero(kind[world.clicked])
        # The replicas hold out different cells: look at the first alone.
        observed = world.data.observed(world.positions(rows))
        full = world.data.full(world.positions(CELLS[kind]))
        loss = world.method.loss(world.setting, observed, full)[0]
        assert (world.click_gradient(loss) > 0) is moves


@pytest.mark.parametrize("cls", [c for c in JOINT if not c.needs_propensity_everywhere])
def test_given_propensities_take_the_place_of_the_tower_s_own_in_weights(cls):
    for source, changes in (("external", False), ("report-only", True)):
        before, after = (conversion_loss(cls, shift, calibration=source) for shift in (0.0, 0.5))
        assert bool(np.allclose(before, after, rtol=1e-9)) is not changes
