"""GPL: its penalties, its steps, and MRDR inside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unskew as us
from contracts.click_world import CELLS, SEEDS, World, ce, deep
from unskew import GPL, losses


def test_the_penalties_of_gpl_are_those_of_its_code_and_act_on_clicks_alone():
    random = np.random.default_rng(3)
    o = torch.as_tensor(random.integers(0, 2, 50)).double()
    p, delta = (torch.as_tensor(random.uniform(0.05, 0.95, 50)) for _ in range(2))
    delta = torch.where(o == 1, delta, torch.nan)

    def penalty(bias_share: float) -> torch.Tensor:
        p_logit, options = torch.logit(p), {"bias_share": bias_share, "penalty": 1.0, "count": 10, "click": o}
        return losses.gpl_propensity(delta, p_logit, **options) - losses.click_loss(p_logit, click=o)

    at_clicks = torch.where(o == 1, delta, 0.0)
    published = (o - 2 * o * p + p**2) * (at_clicks / p) ** 2
    torch.testing.assert_close(penalty(1.0), published.mean())
    torch.testing.assert_close(penalty(1.0), (((1 - p) / p) ** 2 * at_clicks**2).mean())
    torch.testing.assert_close(penalty(0.0), (o * (at_clicks / p) ** 2).mean() / 10)


@pytest.mark.parametrize("over", ["batch", "population"])
def test_the_propensity_loss_of_gpl_is_its_formula(over):
    method = deep(GPL, penalty=0.6, bias_share=0.8, batch_size=32, variance_over=over)
    world = World(method, given=False)
    p, o = world.read("click"), world.click
    prediction, label = world.read("prediction"), world.read("imputation")
    r = world.everywhere(world.r)
    delta = o * (ce(r, prediction) - ce(label, prediction))
    bias, variance = (o - p) ** 2 * (delta / p) ** 2, o * (delta / p) ** 2
    count = 32 if over == "batch" else len(CELLS)
    expected = ce(o, p).mean(1) + 0.6 * (0.8 * bias.mean(1) + 0.2 * variance.mean(1) / count)
    loss = method.propensity_loss(world.setting, world.observed, world.full)
    np.testing.assert_allclose(loss.detach(), expected, rtol=1e-6)


def test_gpl_trains_its_prediction_as_mrdr_does_with_the_same_propensities():
    world = World(deep(GPL, calibration="report-only", p_min=1e-6, copy="none"), given=False)
    mrdr = World(deep(us.MRDR, copy="none"))
    mrdr.networks.update(world.networks)
    mrdr.setting.networks = world.networks
    own = torch.as_tensor(world.read("click").reshape(len(SEEDS), -1)).gather(1, world.observed.cell)
    batch = us.debias.Batch(
        rows=world.observed.rows,
        conversion=world.observed.conversion,
        propensity=own,
    )
    mrdr.setting.clicks = batch
    with torch.no_grad():
        world.method.before_imputation(world.setting)
        mrdr.method.before_imputation(mrdr.setting)
    for name in ("loss", "imputation_loss"):
        torch.testing.assert_close(
            getattr(world.method, name)(world.setting, world.observed, world.full),
            getattr(mrdr.method, name)(mrdr.setting, batch, world.full),
        )
