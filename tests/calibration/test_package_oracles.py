"""Beta and Venn-Abers against the packages of their authors."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss

from contracts.calibrator_contract import skewed_rows
from unskew.calibration import Beta, VennAbers


@pytest.mark.parametrize("variant", ["abm", "am", "ab"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_beta_has_betacals_likelihood_or_a_better_one(variant, seed):
    score, outcome = skewed_rows(5_000, seed=seed)
    betacal = pytest.importorskip("betacal")
    theirs = betacal.BetaCalibration(parameters=variant).fit(score.reshape(-1, 1), outcome).predict(score)
    ours = Beta(variant=variant).fit(score, outcome).predict(score)
    assert log_loss(outcome, ours) <= log_loss(outcome, theirs) + 1e-12
    np.testing.assert_allclose(ours, theirs, rtol=0.05, atol=2e-3)
    if variant != "ab":
        assert abs(ours.mean() - outcome.mean()) < 1e-6


# The package meets an empty slice on its way, and gives finite numbers all the same.
@pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_venn_abers_gives_the_packages_intervals_and_probabilities(seed):
    score, outcome = skewed_rows(600, seed=seed)
    new, _ = skewed_rows(300, seed=100 + seed)
    package = pytest.importorskip("venn_abers").VennAbers()
    package.fit(np.column_stack([1 - score, score]), outcome)
    expected, interval = package.predict_proba(np.column_stack([1 - new, new]))
    calibrator = VennAbers().fit(score, outcome)
    low, high = calibrator.interval(new)
    np.testing.assert_allclose(low, interval[:, 0], atol=1e-9)
    np.testing.assert_allclose(high, interval[:, 1], atol=1e-9)
    np.testing.assert_allclose(calibrator.predict(new), expected[:, 1], atol=1e-9)
