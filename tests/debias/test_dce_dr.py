"""DCE-DR: its experts, the four losses, where gradients stop, and DR-JL inside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit, logit

import unskew as us
from contracts.click_world import ITEMS, SEEDS, World, ce, deep
from unskew import DCEDR
from unskew.base.errors import ParameterError

MAPS = 3


@pytest.fixture
def world() -> World:
    """Every weight of the experts is off its start."""
    made = World(deep(DCEDR, experts=MAPS, p_min=1e-6, normalise_weights=False))
    with torch.no_grad():
        made.method.before_imputation(made.setting)
    return made


def calibrated(world: World, of: str, score: np.ndarray) -> np.ndarray:
    """Σ_k z_uk·σ(a_k·x + c_k) of every pair ``[R, cells]``, by a loop over maps."""
    maps, gates = (world.networks[f"{of}_{part}"] for part in ("maps", "gates"))
    table = gates.user.weight.detach().numpy()
    user, chance = np.arange(score.shape[1]) // ITEMS, np.zeros_like(score)
    share = np.exp(table[:, user])
    for number, start in enumerate(np.linspace(-0.5, 0.5, MAPS)):
        slope, shift = (
            maps.offset[f"{of}_{part}_{number}"].detach().numpy() for part in ("slope", "intercept")
        )
        chance += share[..., number] * expit(score * (1 + slope) + shift + start)
    return chance / share.sum(-1)


def both(world: World) -> tuple[np.ndarray, np.ndarray]:
    """p̃ and r̃ of every pair."""
    given = np.broadcast_to(logit(world.p.ravel()), (len(SEEDS), world.p.size))
    return calibrated(world, "propensity", given), calibrated(
        world, "imputed", logit(world.read("imputation"))
    )


def test_the_prediction_learns_the_doubly_robust_loss_with_both_calibrated(world):
    p, label = both(world)
    prediction, r = world.read("prediction"), world.everywhere(world.r)
    imputed = ce(label, prediction)
    expected = (imputed + world.click * (ce(r, prediction) - imputed) / p).mean(1)
    np.testing.assert_allclose(world.loss(), expected, rtol=1e-6)


def test_the_imputer_learns_by_its_own_output_with_calibrated_weights(world):
    p, _ = both(world)
    prediction, own, r = world.read("prediction"), world.read("imputation"), world.everywhere(world.r)
    gap = ce(r, prediction) - ce(own, prediction)
    expected = (world.click * gap**2 / p).mean(1)
    found = world.method.imputation_loss(world.setting, world.observed, world.full).detach()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_experts_learn_the_likelihood_of_clicks_and_the_weighted_one_of_conversions(world):
    """Without noise, which is on only while they learn."""
    p, label = both(world)
    method, setting = world.method, world.setting
    clicks = ce(world.click.astype(float), p).mean(1)
    conversions = (world.click * ce(world.everywhere(world.r), label) / p).mean(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unskew.debias.dce_dr.gumbel", torch.zeros_like)
        method.temperature = 1.0
        found = method.propensity_loss(setting, world.observed, world.full).detach()
        np.testing.assert_allclose(found, clicks, rtol=1e-6)
        found = method.imputed_loss(setting, world.observed, world.full).detach()
        np.testing.assert_allclose(found, conversions, rtol=1e-6)


def test_one_expert_at_its_start_is_dr_jl():
    world = World(deep(DCEDR, experts=1, p_min=1e-6))
    host = World(deep(us.DRJL, p_min=1e-6))
    with torch.no_grad():
        for name in world.method.learners():
            for parameter in world.networks[name].parameters():
                parameter.zero_()
        host.setting.networks = world.networks
        world.method.before_imputation(world.setting)
        host.method.before_imputation(host.setting)
    for name in ("loss", "imputation_loss"):
        torch.testing.assert_close(
            getattr(world.method, name)(world.setting, world.observed, world.full),
            getattr(host.method, name)(host.setting, host.observed, host.full),
            rtol=1e-5,
            atol=1e-7,
        )


def test_users_whose_propensities_are_off_by_different_maps_are_both_set_right():
    """Half of the users' propensities are a third of the truth, half of them thrice."""
    random = np.random.default_rng(0)
    rows, users = 6_000, 20
    user, item = random.integers(users, size=rows), random.integers(10, size=rows)
    truth = np.full(rows, 0.3)
    click = (random.random(rows) < truth).astype(int)
    given = np.where(user < users // 2, 0.1, 0.6)
    log = us.Log.from_arrays(
        user=user,
        item=item,
        click=click,
        conversion=np.where(click == 1, item % 2, np.nan),
        space="impressions",
        columns={"p": given},
    )
    model = DCEDR(
        learner=us.MF(dim=2), epochs=8, patience=None, expert_learning_rate=0.1, experts=2, batch_size=256
    )
    kept = {}
    model.finish = lambda setting: kept.update(  # type: ignore[method-assign]
        p=model.weighed(setting, setting.clicks).propensity, user=setting.clicks.rows.user
    )
    model.fit(log, propensity="p", seeds=1)
    first = kept["user"][0] < users // 2
    means = [float(kept["p"][0][part].mean()) for part in (first, ~first)]
    np.testing.assert_allclose(means, 0.3, atol=0.06)


def test_what_cannot_be_is_refused(world):
    for method, problem in (
        (DCEDR(experts=0), "experts must be at least 1"),
        (DCEDR(temperature=0.0), "temperature must be above 0"),
        (DCEDR(imputation_form="P3"), "calibrates a pseudo-label"),
    ):
        with pytest.raises(ParameterError, match=problem):
            method.fit(world.log, propensity=world.p)
    rows = np.full(len(world.log), 0.3)
    with pytest.raises(ParameterError, match="needs propensities on every pair"):
        DCEDR().fit(world.log, propensity=rows)
