"""ECE and MCE are netcal's under its binning rule: on ties, on edges of bins, at 0 and 1."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.metrics import CalibrationSketch, ece, mce

netcal = pytest.importorskip("netcal.metrics")

RANDOM = np.random.default_rng(5)
SCORES = {
    "continuous": RANDOM.beta(1, 5, 20_000),
    "hundredths": np.arange(101) / 100,
    "tenths": np.tile(np.arange(11) / 10, 7),
    "zero, one and a half": np.repeat([0.0, 1.0, 0.5], 9),
    "rounded": np.round(RANDOM.beta(1, 8, 2_000), 2),
}


@pytest.mark.parametrize("bins", [7, 10, 100])
@pytest.mark.parametrize("which", SCORES)
def test_ece_is_netcals(which, bins):
    score = SCORES[which]
    outcome = np.random.default_rng(bins).integers(0, 2, len(score))
    expected = netcal.ECE(bins).measure(score, outcome)
    assert ece(score=score, outcome=outcome, bins=bins, rule="netcal") == pytest.approx(expected, abs=1e-9)
    sketch = CalibrationSketch.of(score=score, outcome=outcome, bins=bins)
    assert ece(sketch, rule="netcal") == pytest.approx(expected, abs=1e-9)


def test_the_papers_rule_is_another_one_on_tied_scores_only():
    outcome = np.random.default_rng(0).integers(0, 2, len(SCORES["tenths"]))
    differs = ece(score=SCORES["tenths"], outcome=outcome, bins=5)
    assert abs(differs - netcal.ECE(5).measure(SCORES["tenths"], outcome)) > 1e-3
    outcome = (np.random.default_rng(6).random(20_000) < SCORES["continuous"]).astype(int)
    same = ece(score=SCORES["continuous"], outcome=outcome)
    assert same == pytest.approx(netcal.ECE(100).measure(SCORES["continuous"], outcome), abs=1e-9)


@pytest.mark.parametrize("which", SCORES)
def test_mce_is_netcals(which):
    score = SCORES[which]
    outcome = np.random.default_rng(1).integers(0, 2, len(score))
    expected = netcal.MCE(20).measure(score, outcome)
    assert mce(score=score, outcome=outcome, bins=20, rule="netcal") == pytest.approx(expected, abs=1e-9)
