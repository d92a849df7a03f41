"""Weights that depend on the outcome: clicks 1, and k for the one in k of the other rows that was kept."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.audit.segments import segment_cells, segments_of
from unskew.metrics import (
    CalibrationSketch,
    ece,
    interval,
    kuiper,
    noise_floor,
    spiegelhalter,
    wce,
    wce_test,
)
from unskew.metrics.judgement import may_be_honest
from unskew.metrics.score_cells import cells_of
from unskew.metrics.weight_calibration import inverse_variance

SCORES = np.exp(np.linspace(np.log(0.004), np.log(0.3), 60))
"""True propensities, as many pairs of the population of each."""
PAIRS = 1_200
KEPT = (1, 10, 100)
DRAWS = 250


def sampled(generator: np.random.Generator, k: int, *, factor: float = 1.0) -> CalibrationSketch:
    """Scores that are the true propensities times a factor, of all clicks and one in k of the rest."""
    clicks = generator.binomial(PAIRS, SCORES)
    rest = generator.binomial(PAIRS - clicks, 1 / k)
    score = np.concatenate([np.repeat(SCORES, clicks), np.repeat(SCORES, rest)]) * factor
    clicked = np.arange(len(score)) < clicks.sum()
    return CalibrationSketch.of(score=score, outcome=clicked, weight=np.where(clicked, 1.0, k))


@pytest.fixture(scope="module", params=KEPT)
def honest(request):
    generator = np.random.default_rng(request.param)
    return request.param, [sampled(generator, request.param) for _ in range(DRAWS)]


def test_the_variance_is_that_of_each_outcomes_weights():
    generator = np.random.default_rng(0)
    cells = cells_of(sampled(generator, 20))
    p, total = cells.score, cells.total
    # w₁ = 1 and w₀ = 20, in every part of the scores.
    expected = total * (p * (1 / p - 1) ** 2 * 1 + (1 - p) * 20)
    np.testing.assert_allclose(inverse_variance(cells), expected, rtol=1e-9)


def test_equal_weights_change_no_test():
    generator = np.random.default_rng(1)
    score = generator.beta(1, 9, 4_000)
    clicked = generator.random(4_000) < score
    for test in (wce_test, kuiper, spiegelhalter):
        once = test(score=score, outcome=clicked)
        five = test(score=score, outcome=clicked, weight=np.full(4_000, 5.0))
        assert five == pytest.approx(once, rel=1e-9)


@pytest.mark.parametrize("test", [wce_test, kuiper, spiegelhalter])
def test_honest_scores_are_refused_as_often_as_the_level_says(honest, test):
    _, sketches = honest
    refused = np.mean([test(sketch).p_value < 0.05 for sketch in sketches])
    assert 0.01 <= refused <= 0.09


@pytest.mark.parametrize("rows", [1_500, 5_000])
@pytest.mark.parametrize("draw", [lambda g, n: g.lognormal(size=n), lambda g, n: 1 / g.uniform(0.02, 1, n)])
def test_weights_that_vary_by_row_do_not_refute_honest_scores(rows, draw):
    generator, grid = np.random.default_rng(8), np.exp(np.linspace(np.log(0.004), np.log(0.3), 200))
    refused = {"wce": 0, "judge": 0}
    for _ in range(DRAWS):
        score = generator.choice(grid, rows)
        clicked = generator.random(rows) < score
        sketch = CalibrationSketch.of(score=score, outcome=clicked, weight=draw(generator, rows))
        refused["wce"] += wce_test(sketch).p_value < 0.05
        refused["judge"] += not may_be_honest(sketch, tolerance=1e-9, significance=0.05)
    assert max(refused.values()) <= 0.09 * DRAWS


@pytest.mark.parametrize("metric", [ece, wce])
def test_the_floor_is_what_honest_scores_show(honest, metric):
    _, sketches = honest
    shown = np.mean([metric(sketch) for sketch in sketches])
    floors = [noise_floor(sketch, metric=metric.__name__) for sketch in sketches[:10]]
    assert np.mean(floors) == pytest.approx(shown, rel=0.08)


def test_intervals_of_errors_hold_the_true_error_and_tell_it_from_none(honest):
    k, sketches = honest
    generator = np.random.default_rng(k)
    assert np.mean([interval(s, metric="wce", resamples=200).low < 0.02 for s in sketches[:20]]) >= 0.9
    # Scores 1.5 times too high: the weights of every bin are a third too small.
    for _ in range(5):
        found = interval(sampled(generator, k, factor=1.5), metric="wce", resamples=200)
        assert 0.1 < found.low < 1 / 3 < found.high < 0.6


@pytest.mark.parametrize("k", [1, 10])
def test_segments_with_20_clicks_hold_their_level_in_the_tail(k):
    generator, segments = np.random.default_rng(k), 4_000
    score = np.tile(np.repeat(SCORES, 5), segments)
    clicked = generator.random(len(score)) < score
    kept = clicked | (generator.random(len(score)) < 1 / k)
    name = np.repeat(np.arange(segments), 5 * len(SCORES))
    names, weight = [str(number) for number in range(segments)], np.where(clicked, 1.0, k)[kept]
    cells = segment_cells("g", names, name[kept], score[kept], clicked[kept], weight)
    tested = [segment for segment in segments_of(cells) if segment.p_value is not None]
    for p in (np.array([getattr(s, which) for s in tested]) for which in ("p_value", "p_differs")):
        assert 0.03 <= np.mean(p < 0.05) <= 0.07
        assert np.mean(p < 0.001) <= 0.003


@pytest.mark.parametrize("k", [1, 50])
def test_segments_hold_their_level_and_see_what_is_off(k):
    generator = np.random.default_rng(k)
    cells = segment_cells("g", [], np.empty(0, np.int64), [], [])
    for name, factor, count in (("honest", 1.0, 300), ("off", 1.5, 100)):
        for number in range(count):
            clicks = generator.binomial(PAIRS // 6, SCORES)
            rest = generator.binomial(PAIRS // 6 - clicks, 1 / k)
            score = np.concatenate([np.repeat(SCORES, clicks), np.repeat(SCORES, rest)]) * factor
            clicked = (np.arange(len(score)) < clicks.sum()).astype(np.int64)
            own, weight = np.zeros(len(score), np.int64), np.where(clicked, 1.0, k)
            cells.add(segment_cells("g", [f"{name} {number}"], own, score, clicked, weight))
    p = {"honest": [], "off": []}
    for segment in segments_of(cells):
        p[segment.value.split()[0]].append(segment.p_value)
    assert 0.02 <= np.mean(np.array(p["honest"]) < 0.05) <= 0.09
    assert np.mean(np.array(p["off"]) < 0.05) > 0.9
