"""Where the click tower trains and where it does not, in methods that train one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from contracts.click_world import CELLS, JOINT, World, deep
from unskew import DDPO, DRV2, ESCM2DR, ESMM, IPSV2, MultiDR
from unskew.debias.losses import FORMS
from unskew.debias.towers import Tasks
from unskew.study.legacy import OfficialV2, as_published


def conversion_loss(world: World) -> torch.Tensor:
    method = world.method
    towers = [tower for towers in method.networks().values() for tower in towers if tower != "click"]
    tasks = Tasks.read(world.setting, world.observed, world.full, *towers)
    if isinstance(method, IPSV2):
        return method.conversion_loss(world.setting, world.observed, tasks)
    return method.conversion_loss(world.setting, world.observed, world.full, tasks)


@pytest.mark.parametrize("source", ["external", "in-loop", "report-only"])
@pytest.mark.parametrize("cls", JOINT)
def test_p_has_no_gradient_where_it_is_a_weight_and_has_one_in_the_loss_of_clicks(cls, source):
    world = World(deep(cls, calibration=source))
    assert world.click_gradient(conversion_loss(world)) == 0.0
    assert world.click_gradient(world.method.loss(world.setting, world.observed, world.full)) > 0.0


@pytest.mark.parametrize("cls", [IPSV2, DRV2])
@pytest.mark.parametrize("published", [True, False])
def test_the_published_v2_methods_let_the_conversion_loss_move_p_upwards(cls, published):
    world = World(as_published(deep(cls), OfficialV2) if published else deep(cls, detach_p_in_cvr=False))
    loss = conversion_loss(world)
    assert world.click_gradient(loss) > 0.0
    if cls is IPSV2:
        with torch.no_grad():
            for parameter in world.networks["click"].parameters():
                parameter -= 1e-4 * parameter.grad
        assert (conversion_loss(world) < loss).all()


def test_the_imputation_loss_of_dr_v2_moves_the_prediction_only_if_asked_to():
    def size(*deviations: type, **params: Any) -> float:
        method = deep(DRV2, conversion_weight=0.0, imputation_weight=1.0, **params)
        world = World(as_published(method, *deviations))
        gradients = world.gradients(conversion_loss(world))
        assert sum(size for name, size in gradients.items() if name.startswith("imputation")) > 0
        return sum(size for name, size in gradients.items() if name.startswith("prediction"))

    assert size() == 0.0
    assert size(imp_loss="sq") == 0.0
    assert size(imp_loss="sq", detach_pred_in_imp=False) > 0.0
    assert size(OfficialV2) > 0.0


@pytest.mark.parametrize("cls", [MultiDR, ESCM2DR])
@pytest.mark.parametrize("form", ["P1", "P2", "P3"])
def test_the_imputation_loss_of_multi_dr_moves_the_prediction_unless_it_is_held_fixed(cls, form):
    """From the difference of the conversion loss and L_err, which no option changes."""

    def gradients(**params: Any) -> dict[str, torch.Tensor]:
        world = World(deep(cls, imputation_form=form, **params))
        world.gradients(conversion_loss(world))
        return {
            name: torch.zeros_like(value) if value.grad is None else value.grad.clone()
            for name, value in world.networks["prediction"].named_parameters()
        }

    def error_alone() -> dict[str, torch.Tensor]:
        world = World(deep(cls, imputation_form=form))
        method, observed, form_ = world.method, world.observed, FORMS[form]
        tasks = Tasks.read(world.setting, observed, world.full, "prediction", "imputation")
        logit, output = tasks.observed["prediction"], tasks.observed["imputation"]
        error = form_.error(observed.conversion, logit) - form_.imputed(output, logit)
        everywhere = form_.imputed(tasks.full["imputation"], tasks.full["prediction"])
        p = method.tower.propensity(world.setting, observed)
        world.gradients(everywhere.mean(-1) + world.setting.density * (error / p).mean(-1))
        named = world.networks["prediction"].named_parameters()
        return {n: torch.zeros_like(v) if v.grad is None else v.grad.clone() for n, v in named}

    held, published, error = gradients(), gradients(detach_pred_in_imp=False), error_alone()
    for name in (name for name in error if name.startswith("tower.prediction")):
        torch.testing.assert_close(held[name], error[name], rtol=1e-6, atol=1e-9)
        assert not torch.allclose(published[name], error[name], rtol=1e-3, atol=1e-9), name
    imputation = [name for name in error if name.startswith("tower.imputation")]
    assert all(torch.equal(held[name], published[name]) for name in imputation)
    assert any(not torch.allclose(held[name], error[name]) for name in imputation)


def test_the_soft_label_of_ddpo_is_learned_from_clicks_alone():
    world = World(deep(DDPO, soft_label_weight=0.0))
    gradients = world.gradients(world.method.loss(world.setting, world.observed, world.full))
    assert sum(size for name, size in gradients.items() if "soft_label" in name) == 0.0
    world = World(deep(DDPO))
    gradients = world.gradients(world.method.loss(world.setting, world.observed, world.full))
    assert sum(size for name, size in gradients.items() if "soft_label" in name) > 0.0


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
        world = World(deep(cls, calibration=source))
        before = conversion_loss(world).detach()
        world.shift_clicks(0.5)
        assert bool((before != conversion_loss(world).detach()).all()) is changes
