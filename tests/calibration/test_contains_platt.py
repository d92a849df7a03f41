"""Calibrators that contain Platt scaling never fit their training rows worse than Platt does."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.calibration import logistic_fit
from unskew.metrics import nll

CONTAIN_PLATT = [
    us.Beta(),
    us.Beta(variant="am"),
    us.Spline(),
    us.Spline(penalty=1.0),
    us.Spline(penalty=1e3, pieces=4),
]

TRUTHS = {
    "right": lambda score: score,
    "too low": np.sqrt,
    "too high": np.square,
    "unrelated": lambda score: np.full(len(score), 0.05),
    "backwards": lambda score: 0.3 * (1 - score**0.2),
    "a step": lambda score: np.where(score > 1e-4, 0.9, 0.01),
}


def rows_of(truth, seed, rows=600):
    random = np.random.default_rng(seed)
    score = 10 ** random.uniform(-13, 0, rows)
    outcome = random.random(rows) < TRUTHS[truth](score)
    outcome[:2] = True, False
    return score, outcome


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("calibrator", CONTAIN_PLATT, ids=repr)
def test_training_loss_is_never_above_platts(calibrator, truth):
    for seed in range(8):
        score, outcome = rows_of(truth, seed)
        weight = None if seed % 2 else np.random.default_rng(seed).lognormal(0, 2, len(score))
        own, platts = (
            nll(score=each.clone().fit(score, outcome, weight).predict(score), outcome=outcome, weight=weight)
            for each in (calibrator, us.Platt())
        )
        assert own <= platts * (1 + 1e-9), seed


@pytest.mark.parametrize("calibrator", [us.Beta(), us.Spline(), us.Spline(penalty=1.0)], ids=repr)
def test_steps_that_do_not_converge_give_platt_and_a_message(calibrator, monkeypatch):
    monkeypatch.setattr(logistic_fit, "MOST_STEPS", 1)
    score, outcome = rows_of("a step", seed=0)
    fitted, platt = calibrator.clone().fit(score, outcome), us.Platt().fit(score, outcome)
    np.testing.assert_allclose(fitted.predict(score), platt.predict(score), rtol=1e-9)
    assert "this is Platt scaling" in fitted.message_
    assert "did not converge" in platt.message_
