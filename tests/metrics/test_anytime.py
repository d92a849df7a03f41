"""Evidence that holds under daily looking: rarely false, soon true, and exact in expectation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from unskew.metrics import CalibrationSketch
from unskew.metrics.anytime import (
    ALTERNATIVES,
    PRIOR,
    episodes,
    evidence_over_time,
    evidence_terms,
    family_shares,
    log_evidence,
    smallest_factor,
    start_weight,
)
from unskew.metrics.score_cells import cells_of

TOLERANCE = 0.05
LOGIT = np.linspace(-6, 0, 31)
SCORE = 1 / (1 + np.exp(-LOGIT))


def rows_for(clicks: float) -> np.ndarray:
    """Rows of each score, normal in the logit, that give so many clicks a period."""
    shape = np.exp(-0.5 * (LOGIT + 3) ** 2)
    return np.rint(shape / (shape @ SCORE) * clicks).astype(np.int64)


def terms(score, rows):
    """Return what a clicked row of each score adds to the evidence, and another, ``[score, alternative]``."""
    linear, row, click, other = evidence_terms(score, rows, TOLERANCE)
    return linear + row + click, row + other


def evidence(rate, rows, generator):
    """log E of periods ``[..., alternative]`` whose rates are ``[..., score]``."""
    clicks = generator.binomial(rows, rate)
    clicked, not_clicked = terms(SCORE, rows.astype(float))
    return clicks @ clicked + (rows - clicks) @ not_clicked


@pytest.mark.parametrize("factor", [1 / 1.05, 0.98, 1.0, 1.05])
def test_the_mean_of_the_evidence_is_at_most_one_within_the_tolerance(factor):
    # One row of each of three scores: the mean is over all eight outcomes, without any chance.
    score = np.array([0.02, 0.2, 0.7])
    clicked, not_clicked = terms(score, np.ones(3))
    mean = np.zeros(len(ALTERNATIVES))
    for outcome in itertools.product([0, 1], repeat=3):
        o = np.array(outcome)
        chance = np.where(o == 1, factor * score, 1 - factor * score).prod()
        mean += chance * np.exp(o @ clicked + (1 - o) @ not_clicked)
    assert (mean <= 1 + 1e-12).all()
    assert mean.min() < 1 or factor == 1.0


def test_scores_that_differ_within_a_cell_do_not_make_evidence():
    # A cell of the scores .1 and .3, of mean .2: rates differ, their mean is right.
    clicked, not_clicked = terms(np.array([0.2]), np.array([2.0]))
    mean = sum(
        np.exp((a + b) * clicked[0] + (2 - a - b) * not_clicked[0]) * (0.1, 0.9)[1 - a] * (0.3, 0.7)[1 - b]
        for a, b in itertools.product([0, 1], repeat=2)
    )
    assert (mean <= 1 + 1e-12).all()


@pytest.mark.parametrize(("factor", "quiet"), [(1.2, 10), (0.8, 10), (1.2, 200)])
def test_a_change_of_a_fifth_is_found_within_three_days(factor, quiet):
    generator = np.random.default_rng(1)
    threshold = np.log(1 / (0.05 * family_shares(np.zeros(21, dtype=int))[0]))
    rate = np.broadcast_to(SCORE, (40, quiet + 3, len(SCORE))).copy()
    rate[:, quiet:] *= factor
    found = evidence_over_time(evidence(rate, rows_for(2000), generator)) >= threshold
    assert found[:, quiet:].any(axis=1).mean() >= 0.95
    assert not found[:, :quiet].any()


@pytest.mark.parametrize("kind", ["level", "slope", "shape"])
def test_the_kind_and_the_beginning_of_a_change_are_told(kind):
    generator = np.random.default_rng(2)
    position = (LOGIT + 2.4) / 0.9
    bend = {"level": 1.0, "slope": position, "shape": np.clip(position**2, 0, 4) - 1}[kind]
    broken = 1 / (1 + np.exp(-(LOGIT + 0.5 * bend)))
    rate = np.array([SCORE] * 20 + [broken] * 10 + [SCORE] * 10)
    (found,) = episodes(evidence(rate, rows_for(2000), generator), threshold=7.0)
    assert found.kind == kind
    assert (found.first, found.last, found.over) == (20, 29, True)
    assert 20 <= found.found <= 22


def test_an_episode_that_lasts_is_not_over_and_a_second_one_is_found():
    generator = np.random.default_rng(3)
    rate = np.array([SCORE * f for f in [1] * 5 + [1.5] * 5 + [1] * 5 + [0.6] * 5])
    one, other = episodes(evidence(rate, rows_for(1000), generator), threshold=7.0)
    assert (one.first, one.last, one.over) == (5, 9, True)
    assert (other.first, other.last, other.over) == (15, 19, False)


def test_evidence_is_a_mixture_over_starts_and_alternatives():
    periods = np.random.default_rng(4).normal(size=(4, len(ALTERNATIVES)))
    expected = sum(start_weight(j) * np.exp(periods[j - 1 :].sum(axis=0)) for j in range(1, 5)) + sum(
        start_weight(j) for j in range(5, 100_000)
    )
    np.testing.assert_allclose(evidence_over_time(periods)[-1], np.log(expected @ PRIOR), rtol=1e-4)
    assert PRIOR.sum() == pytest.approx(1)


def test_sampled_negatives_give_the_evidence_of_their_clicks():
    generator = np.random.default_rng(5)
    rows = 200_000
    score = 1 / (1 + np.exp(-generator.normal(-3, 1, rows)))
    outcome = generator.random(rows) < score * 1.2
    kept = outcome | (generator.random(rows) < 0.1)
    weight = np.where(outcome, 1.0, 10.0)
    whole, sampled = (
        log_evidence(cells_of(sketch), TOLERANCE).max()
        for sketch in (
            CalibrationSketch.of(score=score, outcome=outcome),
            CalibrationSketch.of(score=score[kept], outcome=outcome[kept], weight=weight[kept]),
        )
    )
    assert 0.5 * whole < sampled < 1.5 * whole


@pytest.mark.parametrize("negatives", [10.0, 100.0])
def test_sampled_negatives_raise_no_false_alarms(negatives):
    generator = np.random.default_rng(6)
    rows, days, runs = rows_for(300), 20, 40
    alarms = 0
    for _ in range(runs):
        periods = []
        for _ in range(days):
            clicks = generator.binomial(rows, SCORE)
            others = generator.binomial(rows - clicks, 1 / negatives)
            score, outcome = np.tile(SCORE, 2), np.repeat([1, 0], len(SCORE))
            count = np.concatenate([clicks, others])
            sketch = CalibrationSketch(bins=1, mantissa_bits=4).update(
                np.repeat(score, count),
                np.repeat(outcome, count),
                np.repeat(np.where(outcome, 1.0, negatives), count),
            )
            periods.append(log_evidence(cells_of(sketch), TOLERANCE))
        alarms += bool((evidence_over_time(np.array(periods)) >= np.log(20)).any())
    assert alarms <= 2 + runs // 20


def test_a_click_at_a_score_of_zero_is_certain():
    sketch = CalibrationSketch.of(score=[0.0, 0.0, 0.5], outcome=[1, 0, 1])
    assert log_evidence(cells_of(sketch), TOLERANCE).max() > 1000
    quiet = CalibrationSketch.of(score=[0.0, 0.0], outcome=[0, 0])
    assert log_evidence(cells_of(quiet), TOLERANCE).max() == 0


def test_the_smallest_change_is_found_in_four_of_five_cases():
    generator = np.random.default_rng(7)
    rows = rows_for(1000)
    threshold = 7.0
    prior = np.log(1 / PRIOR[0]) + np.log(1 / start_weight(1))
    factor = smallest_factor(float(rows @ SCORE), threshold + float(prior), TOLERANCE)
    found = evidence_over_time(
        evidence(np.broadcast_to(SCORE * factor, (300, 1, len(SCORE))), rows, generator)
    )
    assert 0.7 <= (found[:, 0] >= threshold).mean() <= 0.97
    assert smallest_factor(0.0, threshold, TOLERANCE) == np.inf
