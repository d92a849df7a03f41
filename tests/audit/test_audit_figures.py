"""Figures of an audit: against oracles, and on scores whose errors are put there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unskew.audit.audit_result import errors, regions, weight_figures
from unskew.metrics import CalibrationSketch, ece, wce, weight_diagnostics
from unskew.metrics.judgement import may_be_honest


def sketch_of(score: Any, truth: Any, seed: int = 0) -> CalibrationSketch:
    outcome = np.random.default_rng(seed).random(len(score)) < truth
    return CalibrationSketch.of(score=score, outcome=outcome)


@pytest.fixture(scope="module")
def score() -> Any:
    return np.exp(np.random.default_rng(1).uniform(np.log(0.001), np.log(0.5), 400_000))


def test_errors_carry_interval_and_floor(score: Any) -> None:
    sketch = sketch_of(score, 0.5 * score)
    found = errors(sketch)
    assert found["ece"].value == ece(sketch)
    assert found["wce"].value == wce(sketch)
    for figure in found.values():
        assert 0 < figure.floor < figure.low < figure.high  # type: ignore[operator]
    assert found["wce"].low < 0.5 < found["wce"].high  # type: ignore[operator]


def test_wce_has_no_interval_where_a_click_has_score_zero() -> None:
    sketch = CalibrationSketch.of(score=[0.0, 0.5, 0.5], outcome=[1, 0, 1])
    assert errors(sketch)["wce"].low is None
    assert not may_be_honest(sketch, tolerance=10.0, significance=1e-9)
    assert weight_figures(sketch, p_min=0.01) is None


def test_an_overstated_low_end_is_one_region_below_a_limit(score: Any) -> None:
    truth = np.where(score < 0.02, score / 1.8, score)
    (region, *rest) = regions(sketch_of(score, truth), tolerance=0.05)
    assert region.low is None
    assert region.high == pytest.approx(0.02, rel=0.2)
    assert region.ratio == pytest.approx(1 / 1.8, rel=0.1)
    assert region.part > 10 * sum(other.part for other in rest)


def test_errors_of_both_signs_are_two_regions(score: Any) -> None:
    truth = np.where(score < 0.01, score / 2, np.where(score > 0.1, 1.5 * score, score))
    low, high = sorted(regions(sketch_of(score, truth), tolerance=0.05)[:2], key=lambda region: region.ratio)
    assert low.high == pytest.approx(0.01, rel=0.4)
    assert (low.low, high.high) == (None, None)
    assert high.low == pytest.approx(0.1, rel=0.4)
    assert high.ratio == pytest.approx(1.5, rel=0.06)


def test_honest_scores_are_called_honest_but_for_the_level() -> None:
    generator = np.random.default_rng(5)
    blamed = 0
    for _ in range(300):
        score = np.exp(generator.uniform(np.log(0.005), np.log(0.5), 2000))
        sketch = CalibrationSketch.of(score=score, outcome=generator.random(2000) < score)
        blamed += not may_be_honest(sketch, tolerance=1e-9, significance=0.05)
    assert 300 * 0.05 - 3 * np.sqrt(300 * 0.05) < blamed < 300 * 0.05 + 3 * np.sqrt(300 * 0.05)


def test_weight_figures_are_those_of_the_clicked_rows(score: Any) -> None:
    outcome = np.random.default_rng(0).random(len(score)) < score
    figures = weight_figures(CalibrationSketch.of(score=score, outcome=outcome), p_min=0.01)
    exact = weight_diagnostics(propensity=score[outcome], p_min=0.01)
    unclipped = weight_diagnostics(propensity=score[outcome], p_min=0.0)
    assert figures is not None
    assert figures.rows == exact.rows
    assert figures.largest == pytest.approx(exact.largest)
    assert figures.largest_unclipped == pytest.approx(unclipped.largest, rel=0.01)
    assert figures.median == pytest.approx(exact.median, rel=0.01)
    assert figures.effective_sample_size == pytest.approx(exact.effective_sample_size, rel=0.01)
    assert exact.effective_sample_size > 1.1 * unclipped.effective_sample_size
    assert figures.clipped == pytest.approx(exact.clipped, abs=0.01)
    assert figures.clipped_mass == pytest.approx(exact.clipped_mass, abs=0.005)
