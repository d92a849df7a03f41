"""Temperature scaling: its optimum, and the base rate it cannot move."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

from contracts.calibrator_contract import skewed_rows
from unskew.calibration import Platt, Temperature


def test_is_the_likelihoods_optimum():
    score, outcome = skewed_rows(5000, level=0.5)
    z = logit(score)
    oracle = minimize_scalar(
        lambda t: (np.logaddexp(0, z / t) - outcome * z / t).sum(), bounds=(0.1, 10), method="bounded",
        options={"xatol": 1e-10},
    )  # fmt: skip
    temperature = Temperature().fit(score, outcome)
    assert temperature.temperature_ == pytest.approx(oracle.x, abs=1e-5)
    np.testing.assert_allclose(temperature.predict(score), expit(z / temperature.temperature_), rtol=1e-12)


def test_cannot_move_the_base_rate():
    """Scores trained on sampled negatives are shifted: no temperature repairs it, Platt does."""
    random = np.random.default_rng(1)
    z = random.normal(-3, 1, 100_000)
    outcome = random.random(len(z)) < expit(z)
    shifted = expit(z + 2.4)
    by_temperature = Temperature().fit(shifted, outcome).predict(shifted).mean()
    assert by_temperature > 1.5 * outcome.mean()
    assert Platt().fit(shifted, outcome).predict(shifted).mean() == pytest.approx(outcome.mean(), abs=1e-6)
