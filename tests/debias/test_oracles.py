"""Losses against plain NumPy: their formulas row by row, in probabilities, over all rows of a population.

Nothing of the library is used but the function that is tested. Every loss is of three models side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from unskew import losses

MODELS, ROWS = 3, 60
CLOSE = {"rtol": 1e-8, "atol": 1e-10}


def drawn(low: float, high: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, (MODELS, ROWS))


CLICK = (np.random.default_rng(0).random((MODELS, ROWS)) < 0.4).astype(float)
CONVERSION = np.where(CLICK == 1, drawn(0, 1, 1).round(), np.nan)
P = drawn(0.05, 0.9, 2)
LOGIT, CLICK_LOGIT, OTHER = drawn(-3, 3, 3), drawn(-3, 3, 4), drawn(-3, 3, 5)


def of(values: Any) -> torch.Tensor:
    return torch.as_tensor(np.asarray(values, dtype=np.float64))


def sigma(logit: float) -> float:
    return 1.0 / (1.0 + np.exp(-logit))


def ce(target: float, probability: float) -> float:
    return float(-target * np.log(probability) - (1.0 - target) * np.log(1.0 - probability))


def mean_of_rows(row) -> np.ndarray:
    """(1/|D|) Σ_D of ``row(model, number)``."""
    return np.array([sum(row(m, n) for n in range(ROWS)) / ROWS for m in range(MODELS)])


def test_uips():
    uncertainty, options = drawn(0.0, 2.0, 6), {"shrinkage": 40.0, "gamma": 0.8, "eta": 1.3, "cap": 0.9}

    def row(m: int, n: int) -> float:
        if not CLICK[m, n]:
            return 0.0
        p, wide = P[m, n], np.exp(0.8 * uncertainty[m, n])
        first = 40.0 / (40.0 / 1.3 / wide + 1.3 / (p**2 / wide))
        second = 2 * 0.9 / (wide + 1 / wide)
        branches.add(first < second)
        return min(first, second) * ce(CONVERSION[m, n], sigma(LOGIT[m, n])) / p

    branches: set[bool] = set()
    expected = mean_of_rows(row)
    assert branches == {True, False}
    found = losses.uips(of(CONVERSION), of(LOGIT), of(P), of(uncertainty), click=of(CLICK), **options)
    np.testing.assert_allclose(found, expected, **CLOSE)


def test_dcmt():
    def row(m: int, n: int) -> float:
        o, p, r_hat, star = CLICK[m, n], sigma(CLICK_LOGIT[m, n]), sigma(LOGIT[m, n]), sigma(OTHER[m, n])
        r = CONVERSION[m, n] if o else 0.0
        error = ce(r, r_hat) / P[m, n] if o else ce(1.0, star) / (1.0 - P[m, n])
        return ce(o, p) + 0.5 * (error + 0.2 * abs(1.0 - (r_hat + star))) + 0.7 * ce(o * r, p * r_hat)

    found = losses.dcmt(
        of(CONVERSION),
        of(LOGIT),
        of(P),
        of(OTHER),
        of(CLICK_LOGIT),
        conversion_weight=0.5,
        click_conversion_weight=0.7,
        sum_weight=0.2,
        click=of(CLICK),
    )
    np.testing.assert_allclose(found, mean_of_rows(row), **CLOSE)


def test_acdr_propensity():
    edges = np.quantile(sigma(CLICK_LOGIT), [0.25, 0.5, 0.75], axis=1).T

    def error(m: int) -> float:
        p, result = sigma(CLICK_LOGIT[m]), 0.0
        for low, high in zip([0.0, *edges[m]], [*edges[m], 1.0], strict=True):
            inside = (p >= low) & (p < high)
            assert inside.any()
            frequency, confidence = CLICK[m][inside].mean(), p[inside].mean()
            result += inside.mean() * abs(frequency - confidence)
        return float(result)

    clicks = mean_of_rows(lambda m, n: ce(CLICK[m, n], sigma(CLICK_LOGIT[m, n])))
    expected = clicks + 0.3 * np.array([error(m) for m in range(MODELS)])
    found = losses.acdr_propensity(of(CLICK_LOGIT), of(edges), penalty=0.3, click=of(CLICK))
    np.testing.assert_allclose(found, expected, **CLOSE)


def test_the_calibration_and_the_losses_of_dce_dr():
    """In probabilities, with K = 3 maps; then the doubly robust loss with both calibrated."""
    random = np.random.default_rng(7)
    slope, intercept = random.uniform(0.5, 1.5, 3), random.uniform(-1, 1, 3)
    gate, noise = random.normal(size=(MODELS, ROWS, 3)), random.gumbel(size=(MODELS, ROWS, 3))

    def calibrated(logit: np.ndarray, share: np.ndarray) -> np.ndarray:
        chosen = np.exp(share) / np.exp(share).sum(-1, keepdims=True)
        return (chosen * sigma(logit[..., None] * slope + intercept)).sum(-1)

    maps = of(slope), of(intercept), of(gate)
    learning = losses.expert_logit(of(OTHER), *maps, noise=of(noise), temperature=0.4)
    np.testing.assert_allclose(sigma(learning.numpy()), calibrated(OTHER, (gate + noise) / 0.4), **CLOSE)
    p, r_tilde = calibrated(CLICK_LOGIT, gate), calibrated(OTHER, gate)
    p_logit, r_logit = (losses.expert_logit(of(each), *maps) for each in (CLICK_LOGIT, OTHER))
    np.testing.assert_allclose(sigma(p_logit.numpy()), p, **CLOSE)

    def doubly_robust(m: int, n: int) -> float:
        r_hat = sigma(LOGIT[m, n])
        imputed = ce(r_tilde[m, n], r_hat)
        return imputed + (CLICK[m, n] and (ce(CONVERSION[m, n], r_hat) - imputed) / p[m, n])

    known, click = of(CONVERSION), of(CLICK)
    weight = torch.sigmoid(p_logit)
    found = losses.dce_dr(known, of(LOGIT), weight, r_logit, click=click)
    np.testing.assert_allclose(found, mean_of_rows(doubly_robust), **CLOSE)
    clicks = mean_of_rows(lambda m, n: ce(CLICK[m, n], p[m, n]))
    np.testing.assert_allclose(losses.click_loss(p_logit, click=click), clicks, **CLOSE)
    imputed = mean_of_rows(lambda m, n: CLICK[m, n] and ce(CONVERSION[m, n], r_tilde[m, n]) / p[m, n])
    np.testing.assert_allclose(losses.ips(known, r_logit, weight, click=click), imputed, **CLOSE)


def test_gumbel_noise_chooses_maps_with_the_chances_of_their_gates():
    random = torch.Generator().manual_seed(0)
    gate = torch.tensor([0.0, 1.0, -0.5], dtype=torch.float64)
    noise = losses.gumbel(torch.rand(20_000, 3, generator=random, dtype=torch.float64))
    chosen = torch.bincount((gate + noise).argmax(-1), minlength=3) / 20_000
    chances = np.exp(gate.numpy()) / np.exp(gate.numpy()).sum()
    np.testing.assert_allclose(chosen, chances, atol=4 * (0.25 / 20_000) ** 0.5)
