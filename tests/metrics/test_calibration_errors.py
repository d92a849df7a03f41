"""Binned errors, proper scores, AUC, floor and curves against oracles and known truths."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from unskew.base.errors import DataError, ParameterError
from unskew.calibration import Platt
from unskew.metrics import (
    CalibrationSketch,
    auc,
    brier,
    ece,
    mean_outcome_over_score,
    nll,
    noise_floor,
    reliability_curve,
    wce,
    weight_diagnostics,
)


@pytest.fixture(scope="module")
def skewed():
    generator = np.random.default_rng(3)
    logit = generator.normal(-3, 1.5, 20_000)
    score = 1 / (1 + np.exp(-logit))
    outcome = (generator.random(20_000) < 1 / (1 + np.exp(-0.7 * logit))).astype(np.uint8)
    return score, outcome


TIED = [
    np.arange(101) / 100,
    np.repeat([0.0, 1.0, 0.5], 9),
    np.tile(np.arange(11) / 10, 5),
    np.linspace(0, 1, 101),
    np.nextafter(np.linspace(0, 1, 101), 0.5),
]


def slow_ece(score, outcome, bins, rule, weight=None):
    weight = np.ones(len(score)) if weight is None else weight
    edges = np.linspace(0, 1, bins + 1)
    total = 0.0
    for m in range(bins):
        low, high = edges[m], edges[m + 1]
        if rule == "paper":
            inside = (score > low) & (score <= high) | ((m == 0) & (score == 0))
        else:
            inside = (score >= low) & (score < high) | ((m == bins - 1) & (score == 1))
        total += abs((weight * (outcome - score))[inside].sum())
    return total / weight.sum()


@pytest.mark.parametrize("rule", ["paper", "netcal"])
@pytest.mark.parametrize("bins", [1, 7, 10, 100, 1000])
@pytest.mark.parametrize("which", range(len(TIED)))
def test_ece_of_tied_scores_follows_the_rule_exactly(which, bins, rule):
    score = TIED[which]
    outcome = np.random.default_rng(which).integers(0, 2, len(score))
    expected = slow_ece(score, outcome, bins, rule)
    assert ece(score=score, outcome=outcome, bins=bins, rule=rule) == pytest.approx(expected, abs=1e-12)
    sketch = CalibrationSketch.of(score=score, outcome=outcome, bins=bins)
    assert ece(sketch, rule=rule) == pytest.approx(expected, abs=1e-12)
    weight = 0.5 + np.arange(len(score)) % 3
    assert ece(score=score, outcome=outcome, weight=weight, bins=bins, rule=rule) == pytest.approx(
        slow_ece(score, outcome, bins, rule, weight), abs=1e-12
    )


@pytest.mark.parametrize("bins", [10, 100])
def test_ece_equals_scikit_learns_curve(skewed, bins):
    for score in (skewed[0], skewed[0].round(2), skewed[0].astype(np.float32)):
        outcome = skewed[1]
        frequency, confidence = calibration_curve(outcome, score.astype(np.float64), n_bins=bins)
        inner = np.linspace(0, 1, bins + 1)[1:-1]
        rows = np.bincount(np.searchsorted(inner, score.astype(np.float64)), minlength=bins)
        expected = np.abs(frequency - confidence) @ rows[rows > 0] / len(score)
        assert ece(score=score, outcome=outcome, bins=bins) == pytest.approx(expected, abs=1e-12)
        sketch = CalibrationSketch.of(score=score, outcome=outcome, bins=bins)
        assert ece(sketch) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_proper_scores_and_auc_equal_scikit_learn(skewed, weighted):
    score, outcome = skewed[0].copy(), skewed[1]
    score[:3] = [0.0, 1.0, 0.5]
    score[5000:] = score[5000:].round(3)
    weight = np.random.default_rng(0).exponential(size=len(score)) if weighted else None
    given_arrays = {"score": score, "outcome": outcome, "weight": weight}
    given_sketch = {"score": CalibrationSketch.of(**given_arrays)}
    for source in (given_arrays, given_sketch):
        assert nll(**source) == pytest.approx(log_loss(outcome, score, sample_weight=weight), rel=1e-9)
        assert brier(**source) == pytest.approx(
            brier_score_loss(outcome, score, sample_weight=weight), rel=1e-9
        )
    expected = roc_auc_score(outcome, score, sample_weight=weight)
    assert auc(**given_arrays) == pytest.approx(expected, abs=1e-12)
    assert auc(**given_sketch) == pytest.approx(expected, abs=2e-4)


def test_wce_is_the_mean_excess_of_o_over_p(skewed):
    score, outcome = skewed
    order = np.argsort(score)
    parts = np.array_split((outcome / score)[order], 10)
    expected = np.mean([abs(part.mean() - 1) for part in parts])
    assert wce(score=score, outcome=outcome, bins=10) == pytest.approx(expected, rel=1e-9)
    infinite = {"score": [0.0, 0.5], "outcome": [1, 0]}
    assert mean_outcome_over_score(**infinite) == wce(**infinite) == np.inf
    assert mean_outcome_over_score(score=[0.0, 0.5], outcome=[0, 1]) == 1.0


def test_floor_is_the_mean_ece_of_a_perfect_predictor(skewed):
    score = skewed[0]
    generator = np.random.default_rng(5)
    draws = [ece(score=score, outcome=generator.random(len(score)) < score) for _ in range(200)]
    floor = noise_floor(score=score, outcome=skewed[1], draws=400)
    error = np.std(draws) * np.sqrt(1 / 200 + 1 / 400)
    assert abs(floor - np.mean(draws)) < 4 * error
    sketch = CalibrationSketch.of(score=score, outcome=skewed[1])
    assert noise_floor(sketch, draws=400) == pytest.approx(floor, rel=0.03)
    assert ece(score=score, outcome=skewed[1]) > 2 * floor


@pytest.mark.parametrize("spacing", ["width", "mass", "log"])
def test_the_curve_adds_up(skewed, spacing):
    score, outcome = skewed
    curve = reliability_curve(score=score, outcome=outcome, bins=25, spacing=spacing)
    assert curve.rows.sum() == len(score)
    assert curve.frequency @ curve.rows == pytest.approx(outcome.sum())
    assert curve.score @ curve.rows == pytest.approx(score.sum())
    assert (curve.low <= curve.frequency).all()
    assert (curve.frequency <= curve.high).all()
    assert (curve.edges[:, 0] <= curve.score * (1 + 1e-12)).all()
    assert (curve.score <= curve.edges[:, 1] * (1 + 1e-12)).all()


def test_weight_diagnostics_are_their_definitions():
    p = np.array([0.5, 0.2, 0.01, 0.001])
    figures = weight_diagnostics(propensity=p, p_min=0.02, population_size=2000)
    w = 1 / np.maximum(p, 0.02)
    assert (figures.smallest, figures.largest, figures.median) == (2.0, 50.0, 27.5)
    assert figures.effective_sample_size == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert figures.clipped == 0.5
    assert figures.weight_check == pytest.approx((1 / p).sum() / 2000)
    assert figures.clipped_mass == pytest.approx((1 / p - w).sum() / (1 / p).sum())
    with pytest.raises(DataError, match="row 1: propensity 2 is not in"):
        weight_diagnostics(propensity=[0.1, 2.0], p_min=0.02)
    with pytest.raises(DataError, match="row 0: propensity is 0: its weight is infinite"):
        weight_diagnostics(propensity=[0.0], p_min=0.0)
    with pytest.raises(ParameterError, match="population_size 1 is less"):
        weight_diagnostics(propensity=[0.1, 0.2], p_min=0.1, population_size=1)


@pytest.mark.parametrize("metric", [ece, nll, brier, wce, mean_outcome_over_score, noise_floor, auc])
def test_what_is_missing_is_said(metric):
    with pytest.raises(ParameterError, match="score needs outcome"):
        metric(score=[0.5])
    with pytest.raises(ParameterError, match="a sketch holds its outcomes"):
        metric(CalibrationSketch(), [1])
    with pytest.raises(DataError, match="no rows"):
        metric(CalibrationSketch())
    with pytest.raises(DataError, match="no rows"):
        metric(score=[], outcome=[])
    with pytest.raises(DataError, match="row 1: score 2 is outside"):
        metric(score=[0.5, 2.0], outcome=[0, 1])


def test_bins_that_the_sketch_does_not_keep():
    sketch = CalibrationSketch.of(score=[0.5], outcome=[1])
    with pytest.raises(ParameterError, match="keeps 100 equal-width bins, not 10"):
        ece(sketch, bins=10)
    with pytest.raises(ParameterError, match="rule must be"):
        ece(sketch, rule="sklearn")


@pytest.mark.parametrize("outcome", [0, 1])
def test_auc_of_one_class_is_refused(outcome):
    with pytest.raises(DataError, match="AUC needs both outcomes"):
        auc(score=[0.2, 0.4], outcome=[outcome] * 2)


@pytest.mark.parametrize("score", [[[0.5], [0.1, 0.2]], np.array([0.5 + 1j, 0.2])])
def test_lists_of_several_lengths_and_complex_numbers_are_told(score):
    with pytest.raises(DataError, match=r"column 'score': score holds (lists of several|complex).*To fix: "):
        ece(score=score, outcome=[0, 1])
    with pytest.raises(DataError, match=r"(lists of several|complex)"):
        Platt().fit(score, [0, 1])
