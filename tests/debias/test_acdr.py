"""ACDR: its calibration error, the bins of it, and DR-JL inside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import unskew as us
from contracts.click_world import SEEDS, World, ce, deep
from unskew import ACDR, losses
from unskew.base.errors import ParameterError
from unskew.debias.acdr import Bins


@pytest.fixture
def world() -> World:
    made = World(deep(ACDR, bins=4, penalty=0.7, p_min=1e-6), given=False)
    with torch.no_grad():
        made.method.find_bins(made.setting)
    return made


def test_the_loss_of_clicks_is_its_formula_on_cells_that_train(world):
    edges, p = world.setting.state(Bins).edges.numpy(), world.read("click")
    trains = world.setting.held_out.trains(world.full.rows).numpy()
    expected = ce(world.click.astype(float), p).mean(1)
    for replica in range(len(SEEDS)):
        bin_of = np.searchsorted(edges[replica], p[replica], side="right")
        gap = np.where(trains[replica], world.click - p[replica], 0.0)
        expected[replica] += 0.7 * sum(abs(gap[bin_of == each].sum()) for each in range(4)) / gap.size
    found = world.method.propensity_loss(world.setting, world.observed, world.full).detach()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_bins_have_equal_weight_on_cells_that_train_nothing(world):
    cells, edges = world.setting.held_out.calibration, world.setting.state(Bins).edges
    assert edges.shape == (len(SEEDS), 3)
    p = world.method.click_probability(world.setting, cells, raw=True)
    for of_p, weight, of_edges in zip(p, cells.weight, edges, strict=True):
        inside = torch.bincount(torch.bucketize(of_p, of_edges, right=True), weight.double(), minlength=4)
        # Edges are among the p themselves: each bin is off by one cell at most.
        assert (inside - weight.sum() / 4).abs().max() <= 2 * weight.max()


def test_a_level_that_is_off_is_drawn_back_more_than_by_the_likelihood_alone(world):
    for shift in (1.5, -1.5):
        world.shift_clicks(shift)
        with torch.no_grad():
            world.method.find_bins(world.setting)
        slopes = []
        for penalty in (0.0, 0.7):
            method = replace(world.method, penalty=penalty)
            world.gradients(method.propensity_loss(world.setting, world.observed, world.full))
            slopes.append(world.setting.network_of("click")[1].tower["click"].head.bias.grad.clone())
        plain, penalised = slopes
        assert (penalised / shift > plain / shift).all()
        world.shift_clicks(-shift)


def test_prediction_and_imputer_are_those_of_dr_jl_with_the_tower_s_p(world):
    host = World(deep(us.DRJL, p_min=1e-6))
    host.setting.networks = world.networks
    p = world.method.propensity_of(world.setting, world.observed)
    batch = replace(world.observed, propensity=p)
    host.setting.clicks = batch
    with torch.no_grad():
        world.method.before_imputation(world.setting)
        host.method.before_imputation(host.setting)
    for name in ("loss", "imputation_loss"):
        torch.testing.assert_close(
            getattr(world.method, name)(world.setting, world.observed, world.full),
            getattr(host.method, name)(host.setting, batch, world.full),
        )
    assert world.click_gradient(world.method.loss(world.setting, world.observed, world.full)) == 0.0


def test_more_edges_than_values_leave_bins_empty_and_the_loss_finite():
    edges = losses.equal_mass_edges(torch.tensor([0.2, 0.2, 0.3]), torch.ones(3), bins=8)
    assert edges.shape == (7,)
    error = losses.calibration_error(torch.zeros(4), edges, click=torch.tensor([1.0, 0, 0, 0]))
    assert error == pytest.approx(0.25)


def test_what_cannot_be_is_refused(world):
    for method, problem in (
        (ACDR(penalty=-1.0), "penalty must be at least 0"),
        (ACDR(bins=0), "bins must be at least 1"),
        (
            ACDR(calibration="external"),
            "calibration must be 'auto', 'report-only' or 'in-loop'",
        ),
    ):
        with pytest.raises(ParameterError, match=problem):
            method.fit(world.log)
