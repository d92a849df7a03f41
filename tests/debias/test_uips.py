"""UIPS: where its uncertainty comes from, and which method it becomes without it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unskew as us
from contracts.click_world import ITEMS, SEEDS, USERS, World, ce, deep
from contracts.shown_log import impressions
from unskew import IPS, UIPS, losses
from unskew.base.errors import DataError, ParameterError


def found(**params) -> World:
    world = World(deep(UIPS, **params))
    world.method.before_epoch(world.setting)
    return world


def expected_uncertainty(world: World, prior: float) -> np.ndarray:
    """By a loop over the clicks."""
    user, item = np.full(USERS, prior), np.full(ITEMS, prior)
    for cell in world.clicked:
        user[cell // ITEMS] += 1 - world.p.ravel()[cell]
        item[cell % ITEMS] += 1 - world.p.ravel()[cell]
    variance = 1 / user[world.clicked // ITEMS] + 1 / item[world.clicked % ITEMS]
    return (1 - world.p.ravel()[world.clicked]) * np.sqrt(variance)


def test_uncertainty_is_that_of_a_logistic_model_of_users_and_items():
    world = found(prior=2.0)
    uncertainty = world.method.uncertainty(world.setting, world.observed)
    np.testing.assert_allclose(uncertainty, [expected_uncertainty(world, 2.0)] * len(SEEDS), rtol=1e-5)


def test_the_loss_is_its_formula():
    world = found(trusted_weight=2.0, gamma=0.7, eta=1.2, cap=0.8)
    p, wide = world.p.ravel()[world.clicked], np.exp(0.7 * expected_uncertainty(world, 1.0))
    shrinkage = (2.0 / world.log.density) ** 2
    factor = np.minimum(shrinkage / (shrinkage / 1.2 / wide + 1.2 * wide / p**2), 2 * 0.8 / (wide + 1 / wide))
    error = ce(world.r, world.on_clicks(world.read("prediction")))
    np.testing.assert_allclose(world.loss(), world.everywhere(factor * error / p).mean(1), rtol=1e-5)


def test_sure_and_unshrunk_it_is_ips():
    sure = found(gamma=0.0, trusted_weight=1e6)
    ips = World(deep(IPS))
    np.testing.assert_allclose(sure.loss(), ips.loss(), rtol=1e-6)


def test_the_weight_falls_with_uncertainty_and_is_largest_where_lambda_says():
    p, sure = torch.logspace(-4, 0, 400, dtype=torch.float64), torch.zeros(400, dtype=torch.float64)
    weight = losses.uips_factor(p, sure, shrinkage=2500.0) / p
    assert weight.max() == pytest.approx(25.0, rel=1e-3)
    assert 1 / p[weight.argmax()] == pytest.approx(50.0, rel=0.05)
    rising = torch.linspace(0, 3, 50, dtype=torch.float64)
    factor = losses.uips_factor(torch.full_like(rising, 0.3), rising, shrinkage=1e4)
    assert (factor.diff() < 0).all()


@pytest.mark.parametrize("shape", ["rows", "matrix"])
def test_a_given_uncertainty_is_that_of_its_pair(shape):
    world = World(deep(UIPS))
    everywhere = np.random.default_rng(1).random((USERS, ITEMS))
    rows = everywhere.ravel()[world.log.cell]
    given = everywhere if shape == "matrix" else rows
    seen = []

    class Looks(UIPS):
        name = "looks"

        def loss(self, setting, observed, full):
            seen.append((observed.cell.clone(), self.uncertainty(setting, observed).clone()))
            return super().loss(setting, observed, full)

    model = Looks(learner=us.MF(dim=2), epochs=1, batch_size=20)
    model.fit(world.log, propensity=world.p, uncertainty=given, seeds=2)
    assert len(seen) > 1
    for cell, value in seen:
        np.testing.assert_allclose(value, everywhere.ravel()[cell], rtol=1e-6)


def test_impressions_take_an_uncertainty_of_each_row_and_it_matters():
    log = impressions()
    fits = [
        UIPS(learner=us.MF(dim=2), epochs=2, learning_rate=0.05, p_min=0.05)
        .fit(log, propensity="p", uncertainty=each, seeds=1)
        .predict(log)
        for each in (None, np.zeros(len(log)), np.where(log.item % 2, 3.0, 0.0))
    ]
    assert np.abs(fits[1] - fits[2]).max() > 1e-3
    assert np.abs(fits[0] - fits[2]).max() > 1e-3


def test_what_is_no_uncertainty_is_refused():
    world, log = World(deep(UIPS)), impressions()
    bad = np.zeros(len(log))
    bad[log.clicked[3]] = -1.0
    for rows, given, problem in (
        (world.log, np.zeros(3), r"uncertainties of shape \(3,\) do not fit a log of"),
        (log, bad, f"row {log.clicked[3]}: uncertainty is -1.0, not a standard error"),
        (log, np.where(bad < 0, np.nan, 0.0), "uncertainty is nan"),
    ):
        with pytest.raises(DataError, match=problem):
            UIPS().fit(rows, propensity=0.5, uncertainty=given)
    for method, problem in (
        (UIPS(trusted_weight=0.0), "trusted_weight must be above 0"),
        (UIPS(prior=-1.0), "prior must be above 0"),
        (UIPS(gamma=-1.0), "gamma must be at least 0"),
    ):
        with pytest.raises(ParameterError, match=problem):
            method.fit(log, propensity="p")
