"""Methods of several tasks: their losses are their formulas, summed over every pair of D."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import logit

from contracts.click_world import CELLS, World, ce, deep
from unskew import DCMT, DDPO, DRV2, ESCM2DR, ESCM2IPS, ESMM, IPSV2, MultiDR, MultiIPW, losses
from unskew.debias.esmm import log_not_both
from unskew.debias.towers import Tasks
from unskew.study.legacy import OfficialV2, as_published


def click_and_both(world: World) -> tuple[np.ndarray, np.ndarray]:
    """mean_D CE(o, p) and mean_D CE(o·r, p·r̂), from every pair of D."""
    p, prediction, r = world.read("click"), world.read("prediction"), world.everywhere(world.r)
    return ce(world.click, p).mean(1), ce(world.click * r, p * prediction).mean(1)


def ips(world: World, p: np.ndarray, error: np.ndarray) -> np.ndarray:
    return world.everywhere(error / p).mean(1)


def test_esmm_is_the_loss_of_clicks_and_of_clicks_that_convert_over_all_of_d():
    world = World(deep(ESMM, click_conversion_weight=2.0))
    click, both = click_and_both(world)
    np.testing.assert_allclose(world.loss(), click + 2 * both, rtol=1e-6)


@pytest.mark.parametrize("both_weight", [0.0, 0.7])
def test_escm2_ips_is_its_formula_with_given_propensities(both_weight):
    world = World(deep(ESCM2IPS, conversion_weight=0.5, click_conversion_weight=both_weight))
    click, both = click_and_both(world)
    error = ce(world.r, world.on_clicks(world.read("prediction")))
    expected = click + 0.5 * ips(world, world.on_clicks(world.p), error) + both_weight * both
    np.testing.assert_allclose(world.loss(), expected, rtol=1e-6)


@pytest.mark.parametrize("both_weight", [0.0, 0.7])
def test_escm2_dr_is_its_formula_with_a_direct_error(both_weight):
    world = World(deep(ESCM2DR, conversion_weight=0.5, click_conversion_weight=both_weight))
    click, both = click_and_both(world)
    error = ce(world.r, world.on_clicks(world.read("prediction")))
    imputed = np.logaddexp(0.0, logit(world.read("imputation")))
    gap, p = error - world.on_clicks(imputed), world.on_clicks(world.p)
    doubly_robust = imputed.mean(1) + ips(world, p, gap) + ips(world, p, gap**2)
    np.testing.assert_allclose(world.loss(), click + 0.5 * doubly_robust + both_weight * both, rtol=1e-6)


@pytest.mark.parametrize(("plain", "held"), [(MultiIPW, ESCM2IPS), (MultiDR, ESCM2DR)])
def test_escm2_without_its_last_term_is_the_multi_method(plain, held):
    np.testing.assert_array_equal(
        World(deep(plain)).loss(), World(deep(held, click_conversion_weight=0.0)).loss()
    )


def test_ddpo_is_its_formula_and_its_weights_are_normalised_on_each_side_of_the_click():
    world = World(deep(DDPO))
    click, both = click_and_both(world)
    prediction, soft = world.read("prediction"), world.read("soft_label")
    weight = 1 / world.on_clicks(world.p)
    target = np.minimum(world.r + world.on_clicks(soft), 1)
    clicked = (weight * ce(target, world.on_clicks(prediction))).sum(1) / weight.sum(1)
    other = np.where(world.click, 0.0, 1 / (1 - world.p.ravel()))
    unclicked = (other * ce(soft, prediction)).sum(1) / other.sum()
    learned = world.everywhere(ce(world.r, world.on_clicks(soft))).mean(1)
    np.testing.assert_allclose(world.loss(), click + learned + both + clicked + unclicked, rtol=1e-6)


def test_ddpo_takes_soft_labels_for_clicks_only_if_asked_to():
    losses = {}
    for soften in (True, False):
        world = World(deep(DDPO, soften_clicks=soften, soft_label_weight=0.0, click_conversion_weight=0.0))
        prediction, soft = world.read("prediction"), world.read("soft_label")
        weight = 1 / world.on_clicks(world.p)
        excess = np.minimum(world.r + world.on_clicks(soft), 1) - world.r
        shift = weight * excess * -logit(world.on_clicks(prediction))
        losses[soften] = world.loss() - soften * shift.sum(1) / weight.sum(1)
    np.testing.assert_allclose(losses[True], losses[False], rtol=1e-6)


@pytest.mark.parametrize("sum_weight", [0.0, 0.3])
def test_dcmt_is_its_formula_with_weights_on_both_sides_of_the_click(sum_weight):
    """The towers' labels are r on clicks, and r* = 1 − 0 elsewhere; their sum is held to 1 on all of D."""
    options = {"conversion_weight": 0.5, "click_conversion_weight": 0.7, "sum_weight": sum_weight}
    world = World(deep(DCMT, **options))
    click, both = click_and_both(world)
    factual, other, p = world.read("prediction"), world.read("counterfactual"), world.p.ravel()
    weighted = np.where(world.click, ce(world.everywhere(world.r), factual) / p, -np.log(other) / (1 - p))
    off = np.abs(1 - (factual + other))
    expected = click + 0.7 * both + 0.5 * (weighted + sum_weight * off).mean(1)
    np.testing.assert_allclose(world.loss(), expected, rtol=1e-6)


def test_without_the_sum_the_prediction_of_dcmt_learns_as_in_escm2_ips():
    """Towers share embeddings, so only what is the prediction's own is compared."""
    dcmt, escm2 = World(deep(DCMT, sum_weight=0.0)), World(deep(ESCM2IPS))
    weights = dcmt.networks["prediction"].state_dict()
    names = list(escm2.networks["prediction"].state_dict())
    escm2.networks["prediction"].load_state_dict({name: weights[name] for name in names})
    first, second = (
        each.gradients(each.method.loss(each.setting, each.observed, each.full)) for each in (dcmt, escm2)
    )
    own = [name for name in second if "tower.prediction" in name]
    assert own
    for name in own:
        assert first[name] == pytest.approx(second[name], rel=1e-10)


def balance_of(world: World, clicks: slice, cells: slice) -> np.ndarray:
    """mean_D [(o/p − (1 − o)/(1 − p)) · r̂] from some clicks and some cells, by stratum."""
    p, prediction = world.read("click"), world.read("prediction")
    density, chosen = world.log.density, world.clicked[clicks]
    clicked = (prediction / p)[:, chosen].mean(1)
    unclicked = CELLS[cells][~world.click[cells]]
    return density * clicked - (1 - density) * (prediction / (1 - p))[:, unclicked].mean(1)


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("cls", [IPSV2, DRV2])
def test_the_v2_methods_are_their_formulas(cls, published):
    """As published the imputation learns (e − ê)²/p, no p is given, and a batch's own balance is squared."""
    weights = {"imputation_weight": 0.3} if cls is DRV2 else {}
    method = deep(cls, balance_weight=0.2, conversion_weight=2.0, p_min=1e-6, **weights)
    world = World(as_published(method, *([OfficialV2] if published else [])))
    p, prediction, r = world.read("click"), world.read("prediction"), world.everywhere(world.r)
    error, o, given = (r - prediction) ** 2, world.click, p if published else world.p.ravel()
    imputed = (world.read("imputation") - prediction) ** 2 if cls is DRV2 else 0.0 * error
    conversion = 2.0 * (imputed + o * (error - imputed) / given).mean(1)
    if cls is DRV2:
        residual = error - imputed if published else r - world.read("imputation")
        conversion += 0.3 * (o * residual**2 / given).mean(1)
    half = len(world.clicked) // 2, len(CELLS) // 2
    halves = [[slice(at) for at in half], [slice(at, None) for at in half]]
    balance = np.prod([balance_of(world, *each) for each in halves], axis=0)
    if published:
        balance = ((o / p - (1 - o) / (1 - p)) * prediction).mean(1) ** 2
    expected = ((o - p) ** 2).mean(1) + ((o * r - p * prediction) ** 2).mean(1) + conversion + 0.2 * balance
    np.testing.assert_allclose(world.loss(), expected, rtol=1e-6)


@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_the_imputation_of_dr_v2_is_least_at_the_rate_of_conversions(rate):
    """From the expected loss on a grid of r̃, at a prediction that is right."""
    grid = torch.linspace(0.001, 0.999, 999).double()
    one, no = torch.ones(999, 1).double(), {"click_conversion_weight": 0.0, "conversion_weight": 0.0}
    rest = (torch.logit(rate * one), one, torch.logit(grid)[:, None], 0 * one)
    converted, not_converted = (
        losses.dr_v2(r * one, *rest, balance_weight=0.0, click=one, **no) for r in (1.0, 0.0)
    )
    best = grid[(rate * converted + (1 - rate) * not_converted).argmin()]
    assert float(best) == pytest.approx(rate, abs=1e-3)


def test_log_of_not_both_is_right_and_stays_finite_where_the_product_rounds_to_one():
    click, conversion = torch.tensor([-3.0, 0.4, 2.0]).double(), torch.tensor([1.0, -2.0, 3.0]).double()
    direct = torch.log1p(-torch.sigmoid(click) * torch.sigmoid(conversion))
    torch.testing.assert_close(log_not_both(conversion, click), direct)
    far = torch.full((1,), 60.0, requires_grad=True)
    value = log_not_both(far, far)
    value.sum().backward()
    assert value.item() == pytest.approx(-60.0 + np.log(2))
    assert far.grad.item() == pytest.approx(-1.0)


def imbalance_of(tasks: Tasks) -> torch.Tensor:
    """Clipped as the worlds of these tests are: at 1e-6."""
    return losses.imbalance(tasks.of("prediction"), tasks.of("click"), p_min=1e-6, **tasks.space)


def test_balance_is_perfect_where_propensity_and_prediction_are_constant():
    world = World(deep(IPSV2, p_min=1e-6))
    for network in world.networks.values():
        for parameter in network.parameters():
            torch.nn.init.zeros_(parameter)
    tasks = Tasks.read(world.setting, world.observed, world.full, "prediction")
    np.testing.assert_allclose(imbalance_of(tasks).detach(), 0.0, atol=1e-6)
