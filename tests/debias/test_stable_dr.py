"""StableDR: its constraint, what it shifts and tilts, and where gradients stop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import unskew as us
from contracts.small_setting import REPLICAS, WIDE, clicked_batch, full_batch, small_setting, trained_by
from unskew.data import Rows
from unskew.debias import SNIPS, Batch, Setting, StableDR
from unskew.debias.losses import halves, imputed_imbalance

OBSERVED, FULL = clicked_batch(), full_batch()


def stable(**params: object) -> tuple[StableDR, Setting]:
    method = StableDR(learner=WIDE, **params)
    setting = small_setting(method)
    method.before_epoch(setting)
    return method, setting


def set_tilt(setting: Setting, *, shift: float = 0.0, tilt: float = 0.0) -> None:
    with torch.no_grad():
        for name, value in (("shift", shift), ("tilt", tilt)):
            setting.networks["propensity"].offset[name].fill_(value)


def constraint(method: StableDR, setting: Setting, observed: Batch, full: Batch) -> torch.Tensor:
    """C² as the propensity step has it."""
    without = replace(method, constraint=0.0)
    each = (m.propensity_loss(setting, observed, full) for m in (replace(method, constraint=1.0), without))
    with_it, without_it = each
    return with_it - without_it


def imputed(setting: Setting, batch: Batch) -> torch.Tensor:
    label, prediction = (torch.sigmoid(setting.predicted(batch, t)) for t in ("imputation", "prediction"))
    return -(label * prediction.log() + (1 - label) * (1 - prediction).log())


def doubled(batch: Batch) -> Batch:
    """A batch whose halves are the same."""
    rest = {n: v if v is None else torch.cat((v, v), 1) for n, v in vars(batch).items() if n != "rows"}
    return Batch(batch.rows.repeat(2), **rest)


def every_cell(data: us.Dataset) -> Batch:
    users, items = data.truth.propensity.shape
    cells = torch.arange(users * items).expand(3, -1)
    unknown = torch.full(cells.shape, torch.nan)
    return Batch(Rows(user=cells // items, item=cells % items), conversion=unknown, propensity=unknown)


def test_before_shift_and_tilt_move_the_prediction_loss_is_that_of_snips():
    method, setting = stable()
    expected = SNIPS(learner=WIDE).loss(setting, OBSERVED, FULL)
    torch.testing.assert_close(method.loss(setting, OBSERVED, FULL), expected, rtol=1e-5, atol=0)


def test_shift_and_tilt_are_added_to_the_logits_of_the_given_propensities():
    method, setting = stable(p_min=1e-3)
    set_tilt(setting, shift=-0.7, tilt=1.5)
    weight, error = 1 / setting.clicks.propensity, imputed(setting, setting.clicks)
    centre = (weight * error).sum(1, keepdim=True) / weight.sum(1, keepdim=True)
    odds = OBSERVED.propensity / (1 - OBSERVED.propensity)
    odds = odds * torch.exp(-0.7 + 1.5 * (imputed(setting, OBSERVED) - centre))
    torch.testing.assert_close(method.tilted(setting, OBSERVED), odds / (1 + odds))


def test_tilted_propensities_are_clipped_again():
    method, setting = stable(p_min=0.2)
    set_tilt(setting, shift=-3.0)
    assert float(method.tilted(setting, OBSERVED).min()) == pytest.approx(0.2)


def test_the_constraint_is_the_product_of_the_imbalances_of_two_halves():
    method, setting = stable()
    set_tilt(setting, shift=0.4, tilt=-0.8)
    p = method.tilted(setting, OBSERVED)
    expected = torch.ones(REPLICAS)
    for clicks, cells in ((slice(0, 10), slice(0, 15)), (slice(10, 20), slice(15, 30))):
        centred = imputed(setting, OBSERVED)[:, clicks] - imputed(setting, FULL)[:, cells].mean(
            1, keepdim=True
        )
        expected *= setting.density * (centred / p[:, clicks]).mean(1)
    torch.testing.assert_close(constraint(method, setting, OBSERVED, FULL), expected, rtol=1e-3, atol=1e-6)


def test_over_many_batches_the_constraint_is_the_square_of_the_mean_imbalance():
    """And the square of a batch's imbalance is not: it has the variance on top."""
    setting = stable()[1]
    everything = [imputed(setting, OBSERVED), imputed(setting, FULL), OBSERVED.propensity]
    truth = imputed_imbalance(*everything, density=setting.density).square()
    random = torch.Generator().manual_seed(3)
    draws = [torch.randint(part.shape[1], (8_000, 8), generator=random) for part in everything[:2]]
    parts = [part[:, rows] for part, rows in zip(everything, (*draws, draws[0]), strict=True)]
    squares = imputed_imbalance(*parts, density=setting.density).square()
    first, second = (
        imputed_imbalance(*half, density=setting.density) for half in zip(*map(halves, parts), strict=True)
    )
    for found, unbiased in ((first * second, True), (squares, False)):
        distance = (found.mean(1) - truth) / (found.std(1) / found.shape[1] ** 0.5)
        assert bool((distance.abs() < 4).all()) is unbiased
        assert bool((distance > 8).all()) is not unbiased


def test_under_the_constraint_the_doubly_robust_estimate_is_snips():
    """Ē + Σ(e − ê)/p ÷ Σ 1/p = Σ e/p ÷ Σ 1/p where Σ (ê − Ē)/p = 0, and differs where it is not."""
    method, setting = stable(constraint=1e4)
    optimiser = torch.optim.Adam(setting.networks["propensity"].parameters(), lr=0.02)
    # Both halves are the whole, so that the product is the square of this batch.
    observed, full = (doubled(batch) for batch in (OBSERVED, FULL))

    def now() -> torch.Tensor:
        p = method.tilted(setting, OBSERVED)
        return imputed_imbalance(
            imputed(setting, OBSERVED), imputed(setting, FULL), p, density=setting.density
        ).abs()

    before = now()
    for _ in range(400):
        optimiser.zero_grad()
        method.propensity_loss(setting, observed, full).sum().backward()
        optimiser.step()
    kept = now() < 1e-4
    assert bool(kept.all())
    assert bool((before > 5e-4).all())
    p = method.tilted(setting, OBSERVED)
    at_clicks, everywhere = imputed(setting, OBSERVED), imputed(setting, FULL)
    error = torch.nn.functional.binary_cross_entropy_with_logits(
        setting.predicted(OBSERVED), OBSERVED.conversion, reduction="none"
    )
    stabilised = everywhere.mean(1) + ((error - at_clicks) / p).sum(1) / (1 / p).sum(1)
    snips = (error / p).sum(1) / (1 / p).sum(1)
    torch.testing.assert_close(stabilised[kept], snips[kept], rtol=1e-3, atol=1e-3)


def test_the_constraint_moves_the_tilt_and_never_the_shift():
    method, setting = stable(constraint=100.0)
    plain = StableDR(learner=WIDE, constraint=0.0)

    def slopes(of: StableDR) -> dict[str, torch.Tensor]:
        trained_by(of.propensity_loss, setting, OBSERVED, FULL)
        return {n: p.grad.clone() for n, p in setting.networks["propensity"].offset.items()}

    with_it, without_it = slopes(method), slopes(plain)
    assert bool((with_it["tilt"] != without_it["tilt"]).all())
    torch.testing.assert_close(with_it["shift"], without_it["shift"], rtol=1e-6, atol=0)


def test_with_true_propensities_shift_and_tilt_stay_near_zero():
    """The square of a batch's imbalance had raised the shift to 0.5 here: every weight down by 40 %."""
    data = us.load("synthetic", n_users=500, n_items=300, density=0.05, seed=2)
    method = StableDR(
        learner=us.MF(dim=4),
        learning_rate=0.003,
        epochs=20,
        batch_size=512,
        patience=None,
        p_min=1e-4,
        weight_decay=1e-4,
    )
    method.fit(data.train, propensity=data.truth.propensity, seeds=3)
    shift, tilt = (method.networks_["propensity"].offset[n].detach().numpy() for n in ("shift", "tilt"))
    cells = every_cell(data)
    setting = Setting(method.networks_, data.train.density, cells)
    spread = imputed(setting, cells).std(1, keepdim=True).numpy()
    assert np.abs(shift).max() < 0.1
    assert np.abs(tilt * spread).max() < 0.2


def test_without_the_constraint_the_shift_undoes_a_shift_of_the_given_propensities():
    data = us.load("synthetic", n_users=80, n_items=60, density=0.2)
    odds = data.truth.propensity / (1 - data.truth.propensity) * np.e
    method = StableDR(
        learner=us.MF(dim=4), constraint=0.0, shift_learning_rate=0.05, epochs=60, patience=None
    )
    method.fit(data.train, propensity=odds / (1 + odds), seeds=2)
    shift = method.networks_["propensity"].offset["shift"].detach()
    torch.testing.assert_close(shift, torch.full_like(shift, -1.0), rtol=0, atol=0.12)
