"""StableDR: its constraint, what it shifts, and where gradients stop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import unskew as us
from contracts.small_setting import REPLICAS, WIDE, clicked_batch, full_batch, small_setting, trained_by
from unskew.debias import SNIPS, Batch, Setting, StableDR
from unskew.errors import ParameterError

OBSERVED, FULL = clicked_batch(), full_batch()


def stable(**params: object) -> tuple[StableDR, Setting]:
    method = StableDR(backbone=WIDE, **params)
    return method, small_setting(method)


def set_shift(setting: Setting, value: float) -> None:
    with torch.no_grad():
        setting.networks["propensity"].offset["shift"].fill_(value)


def imputed(setting: Setting, batch: Batch) -> torch.Tensor:
    label, prediction = (torch.sigmoid(setting.predicted(batch, t)) for t in ("imputation", "prediction"))
    return -(label * prediction.log() + (1 - label) * (1 - prediction).log())


def test_before_the_shift_moves_the_prediction_loss_is_that_of_snips():
    method, setting = stable()
    expected = SNIPS(backbone=WIDE).loss(setting, OBSERVED, FULL)
    torch.testing.assert_close(method.loss(setting, OBSERVED, FULL), expected, rtol=1e-5, atol=0)


def test_the_shift_is_added_to_the_logits_of_the_given_propensities():
    method, setting = stable()
    set_shift(setting, -0.7)
    odds = OBSERVED.propensity / (1 - OBSERVED.propensity) * np.exp(-0.7)
    torch.testing.assert_close(method.shifted(setting, OBSERVED).propensity, odds / (1 + odds))


def test_shifted_propensities_are_clipped_again():
    method, setting = stable(p_min=0.2)
    set_shift(setting, -3.0)
    assert float(method.shifted(setting, OBSERVED).propensity.min()) == pytest.approx(0.2)


def test_imbalance_is_the_weighted_mean_of_centred_imputed_errors():
    method, setting = stable()
    set_shift(setting, 0.4)
    p = method.shifted(setting, OBSERVED).propensity
    centred = imputed(setting, OBSERVED) - imputed(setting, FULL).mean(1, keepdim=True)
    expected = setting.density * (centred / p).mean(1)
    torch.testing.assert_close(method.imbalance(setting, OBSERVED, FULL), expected)


def test_under_the_constraint_the_doubly_robust_estimate_is_snips():
    """Ē + Σ(e − ê)/p ÷ Σ 1/p = Σ e/p ÷ Σ 1/p where Σ (ê − Ē)/p = 0, and differs where it is not."""
    method, setting = stable(constraint=1e6)
    optimiser = torch.optim.Adam(setting.networks["propensity"].parameters(), lr=0.02)
    before = method.imbalance(setting, OBSERVED, FULL).abs()
    for _ in range(400):
        optimiser.zero_grad()
        method.propensity_loss(setting, OBSERVED, FULL).sum().backward()
        optimiser.step()
    after = method.imbalance(setting, OBSERVED, FULL).abs()
    kept = after < 1e-4
    assert bool(kept.any())
    assert bool((before > 5e-4).all())
    p = method.shifted(setting, OBSERVED).propensity
    at_clicks, everywhere = imputed(setting, OBSERVED), imputed(setting, FULL)
    error = torch.nn.functional.binary_cross_entropy_with_logits(
        setting.predicted(OBSERVED), OBSERVED.conversion, reduction="none"
    )
    stabilised = everywhere.mean(1) + ((error - at_clicks) / p).sum(1) / (1 / p).sum(1)
    snips = (error / p).sum(1) / (1 / p).sum(1)
    torch.testing.assert_close(stabilised[kept], snips[kept], rtol=1e-3, atol=1e-3)


def test_each_step_trains_its_own_network_alone():
    method, setting = stable()
    assert trained_by(method.imputation_loss, setting, OBSERVED, FULL) == {
        "prediction": False,
        "imputation": True,
        "propensity": False,
    }
    assert trained_by(method.propensity_loss, setting, OBSERVED, FULL) == {
        "prediction": False,
        "imputation": False,
        "propensity": True,
    }
    assert trained_by(method.loss, setting, OBSERVED, FULL) == {
        "prediction": True,
        "imputation": False,
        "propensity": False,
    }


def test_the_constraint_moves_the_shift_beyond_the_likelihood():
    method, setting = stable(constraint=100.0)
    plain = StableDR(backbone=WIDE, constraint=0.0)

    def slope(of: StableDR) -> torch.Tensor:
        trained_by(of.propensity_loss, setting, OBSERVED, FULL)
        return setting.networks["propensity"].offset["shift"].grad.clone()

    assert bool((slope(method) != slope(plain)).all())


def test_propensities_of_one_and_at_the_clip_give_finite_losses():
    method, setting = stable()
    edges = torch.tensor([1.0, method.p_min]).repeat(REPLICAS, OBSERVED.user.shape[1] // 2)
    observed = replace(OBSERVED, propensity=edges)
    for loss in (method.imputation_loss, method.propensity_loss, method.loss):
        assert bool(torch.isfinite(loss(setting, observed, FULL)).all())


def test_without_the_constraint_the_shift_undoes_a_shift_of_the_given_propensities():
    data = us.load("synthetic", n_users=80, n_items=60, density=0.2)
    odds = data.truth.propensity / (1 - data.truth.propensity) * np.e
    method = StableDR(
        backbone=us.MF(dim=4), constraint=0.0, shift_learning_rate=0.05, epochs=60, patience=None
    )
    method.fit(data.train, propensity=odds / (1 + odds), seeds=2)
    shift = method.networks_["propensity"].offset["shift"].detach()
    torch.testing.assert_close(shift, torch.full_like(shift, -1.0), rtol=0, atol=0.12)


def test_propensities_of_the_rows_alone_are_refused_where_all_pairs_are_the_population():
    data = us.load("synthetic", n_users=20, n_items=30)
    with pytest.raises(ParameterError, match="every pair"):
        StableDR(backbone=WIDE).fit(data.train, propensity=np.full(len(data.train), 0.1))


def test_a_negative_constraint_is_refused():
    data = us.load("synthetic", n_users=20, n_items=30)
    with pytest.raises(ParameterError, match="constraint must not be negative"):
        StableDR(constraint=-1.0).fit(data.train, propensity=0.1)
