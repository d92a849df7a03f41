"""Adaptive, debiased, smooth and relative errors, tests and intervals: oracles and statistical truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit, ndtr
from scipy.stats import kstest

from unskew.base.errors import DataError, ParameterError
from unskew.metrics import (
    CalibrationSketch,
    adaptive_ece,
    brier,
    brier_decomposition,
    debiased_ece,
    ece,
    interval,
    kuiper,
    mce,
    mean_outcome_over_score,
    nll,
    noise_floor,
    relative_error,
    reliability_curve,
    score_cells,
    smooth_ece,
    spiegelhalter,
    wce,
    wce_test,
)
from unskew.metrics.intervals import drawn_noise
from unskew.metrics.reliability import brownian_range_tail

POINT_METRICS = {
    "ece": ece,
    "adaptive_ece": lambda **k: adaptive_ece(bins=5, **k),
    "mce": mce,
    "relative_error": relative_error,
    "smooth_ece": lambda **k: smooth_ece(bandwidth=0.3, **k),
    "wce": wce,
    "mean_outcome_over_score": mean_outcome_over_score,
    "nll": nll,
    "brier": brier,
    "reliability": lambda **k: brier_decomposition(**k).reliability,
    "kuiper": lambda **k: kuiper(**k).distance,
}


@pytest.fixture(scope="module")
def skewed():
    generator = np.random.default_rng(11)
    x = generator.normal(-3, 1.5, 20_000)
    return expit(x), generator.random(20_000) < expit(0.7 * x)


def draws(seed, repeats, rows, mean=-2.5, spread=1.2, slope=1.0, **options):
    """Sketches of outcomes drawn at expit(slope · x) for scores expit(x), and the true rates."""
    generator = np.random.default_rng(seed)
    x = generator.normal(mean, spread, rows)
    rate = expit(slope * (x - mean) + mean)
    for _ in range(repeats):
        outcome = generator.random(rows) < rate
        yield CalibrationSketch.of(score=expit(x), outcome=outcome, **options), expit(x), rate


def equal_mass(values, score, bins):
    return np.array_split(values[np.argsort(score, kind="stable")], bins)


def test_adaptive_maximum_and_relative_error_are_their_definitions(skewed):
    score, outcome = skewed
    gaps = np.array([part.mean() for part in equal_mass(outcome - score, score, 10)])
    confidence = np.array([part.mean() for part in equal_mass(score, score, 10)])
    arrays = {"score": score, "outcome": outcome}
    assert adaptive_ece(**arrays, bins=10) == pytest.approx(np.abs(gaps).mean(), rel=1e-9)
    assert mce(**arrays, bins=10, spacing="mass") == pytest.approx(np.abs(gaps).max(), rel=1e-9)
    assert relative_error(**arrays, bins=10) == pytest.approx(np.abs(gaps / confidence).mean(), rel=1e-9)
    curve = reliability_curve(**arrays, bins=100)
    assert mce(**arrays) == pytest.approx(np.abs(curve.frequency - curve.score).max(), rel=1e-9)


def test_debiased_l2_is_kumars_for_scores_constant_in_bins():
    generator = np.random.default_rng(0)
    score = generator.choice([0.1, 0.3, 0.6, 0.9], 400)
    outcome = generator.random(400) < 0.8 * score
    expected = 0.0
    for value in np.unique(score):
        inside = outcome[score == value]
        frequency, rows = inside.mean(), len(inside)
        expected += rows / 400 * ((frequency - value) ** 2 - frequency * (1 - frequency) / (rows - 1))
    found = debiased_ece(score=score, outcome=outcome, bins=10, spacing="width", squared=True)
    assert found == pytest.approx(expected, rel=1e-9)


def slow_smooth_ece(score, outcome, bandwidth):
    x = logit(np.clip(score, 1e-12, 1 - 1e-12))
    t = np.linspace(x.min() - 8 * bandwidth, x.max() + 8 * bandwidth, 4001)
    kernel = np.exp(-((t[:, None] - x) ** 2) / (2 * bandwidth**2)) / (bandwidth * np.sqrt(2 * np.pi))
    return np.trapezoid(np.abs(kernel @ (outcome - score)) / len(score), t)


def test_smooth_ece_agrees_with_a_slow_one():
    generator = np.random.default_rng(4)
    score = expit(generator.normal(-2, 1.5, 500))
    outcome = generator.random(500) < score**0.8
    for bandwidth in (0.05, 0.2, 1.0):
        slow = slow_smooth_ece(score, outcome, bandwidth)
        assert smooth_ece(score=score, outcome=outcome, bandwidth=bandwidth) == pytest.approx(slow, rel=5e-3)
    found = smooth_ece(score=score, outcome=outcome)
    assert slow_smooth_ece(score, outcome, found) == pytest.approx(found, rel=5e-3)
    sketch = CalibrationSketch.of(score=score, outcome=outcome)
    assert smooth_ece(sketch) == pytest.approx(found, rel=0.02)


def test_brier_decomposition_adds_up(skewed):
    arrays = {"score": skewed[0], "outcome": skewed[1]}
    parts = brier_decomposition(**arrays)
    assert parts.brier == pytest.approx(brier(**arrays))
    assert parts.brier == pytest.approx(
        parts.reliability - parts.resolution + parts.uncertainty + parts.within, abs=1e-15
    )
    assert abs(parts.within) < 1e-4
    rounded = {"score": skewed[0].round(2), "outcome": skewed[1]}
    assert brier_decomposition(**rounded, bins=1000).within == pytest.approx(0, abs=1e-12)


def test_spiegelhalter_is_its_formula(skewed):
    p, o = skewed
    z = ((o - p) * (1 - 2 * p)).sum() / np.sqrt(((1 - 2 * p) ** 2 * p * (1 - p)).sum())
    found = spiegelhalter(score=p, outcome=o)
    assert found.statistic == pytest.approx(z, rel=1e-9)
    assert found.p_value == pytest.approx(2 * ndtr(-abs(z)), rel=1e-6)
    sketch = CalibrationSketch.of(score=p, outcome=o)
    assert spiegelhalter(sketch).statistic == pytest.approx(z, rel=1e-3)


def test_kuiper_is_the_range_of_the_cumulative_error(skewed):
    p, o = skewed
    path = np.concatenate([[0], np.cumsum((o - p)[np.argsort(p)])]) / len(p)
    found = kuiper(score=p, outcome=o)
    assert found.distance == pytest.approx(np.ptp(path), rel=1e-9)
    assert found.statistic == pytest.approx(np.ptp(path) * len(p) / np.sqrt((p * (1 - p)).sum()), rel=1e-9)


def test_range_of_brownian_motion_agrees_with_simulation():
    steps = np.random.default_rng(0).standard_normal((4000, 2000)) / np.sqrt(2000)
    path = np.cumsum(steps, axis=1)
    found = np.maximum(path.max(axis=1), 0) - np.minimum(path.min(axis=1), 0)
    for x in (1.0, 1.6, 2.2, 2.8):
        assert brownian_range_tail(x) == pytest.approx((found >= x).mean(), abs=0.04)
    assert brownian_range_tail(0.0) == 1.0
    assert brownian_range_tail(0.05) == pytest.approx(1.0)
    assert brownian_range_tail(9.0) < 1e-15


@given(
    st.lists(st.tuples(st.integers(1, 99), st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=40),
    st.sampled_from(sorted(POINT_METRICS)),
)
@settings(max_examples=80, deadline=None)
def test_a_weight_repeats_a_row(data, name):
    score, outcome, weight = (np.array(column) for column in zip(*data, strict=True))
    weight[0] = max(weight[0], 1)
    metric = POINT_METRICS[name]
    weighted = metric(score=score / 100, outcome=outcome, weight=weight)
    repeated = metric(score=np.repeat(score / 100, weight), outcome=np.repeat(outcome, weight))
    assert weighted == pytest.approx(repeated, rel=1e-9, abs=1e-12)


@given(st.sampled_from([0.0, 1.0, 1e-38, 1e-300, 0.5, 0.2]), st.integers(1, 30), st.data(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_all_ties_and_extreme_scores(score, rows, data, through_sketch):
    positive = data.draw(st.integers(0, rows))
    arrays = {"score": np.full(rows, score), "outcome": np.arange(rows) < positive}
    source = {"score": CalibrationSketch.of(**arrays)} if through_sketch else arrays
    rate = positive / rows
    for metric in (ece, adaptive_ece, mce):
        assert metric(**source) == pytest.approx(abs(rate - score), abs=1e-12)
    assert smooth_ece(**source, bandwidth=0.5) == pytest.approx(abs(rate - score), abs=1e-6)
    if score > 1e-30:
        assert wce(**source) == pytest.approx(abs(rate / score - 1), rel=1e-9, abs=1e-12)
        assert mean_outcome_over_score(**source) == pytest.approx(rate / score, rel=1e-9)
    elif score == 0:
        assert wce(**source) == (np.inf if positive else 1.0)
        assert wce_test(**source) == ((np.inf, 0, 0.0) if positive else (0.0, 0, 1.0))
    if score == 1:
        assert wce_test(**source).p_value == float(positive == rows)
        assert kuiper(**source).p_value == float(positive == rows)
        assert spiegelhalter(**source).p_value == float(positive == rows)
    for test in (wce_test, kuiper, spiegelhalter):
        assert 0.0 <= test(**source).p_value <= 1.0
    assert debiased_ece(**source) <= abs(rate - score) + 1e-12
    assert noise_floor(**source) <= 1.0


def test_chi_square_has_its_size():
    p_values = [wce_test(sketch).p_value for sketch, _, _ in draws(1, 1000, 3000, mantissa_bits=4)]
    assert np.mean(np.array(p_values) < 0.05) == pytest.approx(0.05, abs=0.02)
    rare = [wce_test(s).p_value for s, _, _ in draws(2, 500, 20_000, mean=-5, mantissa_bits=4)]
    assert np.mean(np.array(rare) < 0.05) == pytest.approx(0.05, abs=0.03)


def test_kuiper_and_spiegelhalter_have_their_size():
    sketches = [sketch for sketch, _, _ in draws(3, 500, 4000)]
    for test in (kuiper, spiegelhalter):
        p_values = [test(sketch).p_value for sketch in sketches]
        assert np.mean(np.array(p_values) < 0.05) == pytest.approx(0.05, abs=0.03)
    assert kstest(p_values, "uniform").pvalue > 1e-3


def within_three_errors(values, truth):
    return abs(np.mean(values) - truth) < 3 * np.std(values) / np.sqrt(len(values))


def test_debiased_squares_are_unbiased():
    honest = list(draws(5, 400, 3000, mantissa_bits=5))
    assert within_three_errors([debiased_ece(s, bins=20, squared=True) for s, _, _ in honest], 0.0)
    assert within_three_errors([wce(s, debiased=True, squared=True) for s, _, _ in honest], 0.0)
    assert np.mean([ece(s) ** 2 for s, _, _ in honest]) > 1e-4
    skewed = list(draws(6, 400, 3000, slope=0.6, mantissa_bits=5))
    _, score, rate = skewed[0]
    cells = score_cells.cells_of(skewed[0][0])
    bin_of_cell = cells.bin_index(bins=20, spacing="mass")
    last_of_cell = np.cumsum(cells.rows.sum(axis=1))
    bin_of_row = bin_of_cell[np.searchsorted(last_of_cell, np.arange(3000), side="right")]
    gap = np.bincount(bin_of_row, weights=(rate - score)[np.argsort(score)])
    truth = (gap**2 / np.bincount(bin_of_row)).sum() / 3000
    found = np.array([debiased_ece(s, bins=20, squared=True) for s, _, _ in skewed])
    # o given its score varies less than o − p over a bin, whose spread of rates v_b also holds.
    spread = sum(
        np.var(part) / 3000
        for part in np.split((rate - score)[np.argsort(score)], np.flatnonzero(np.diff(bin_of_row)) + 1)
    )
    assert abs(found.mean() + spread - truth) < 3 * found.std() / np.sqrt(len(found))


def test_noise_has_the_moments_of_its_outcomes_whichever_law_it_is_drawn_from():
    index = np.repeat([0, 2, 3], [3, 2, 1])
    rows = np.array([2000.0, 3000.0, 900.0, 30.0, 4.0, 200.0])
    rate = np.array([0.3, 0.2, 0.1, 0.05, 0.5, 0.001])
    step = np.array([1.0, 0.5, 2.0, 3.0, 1.0, 10.0])
    noise = drawn_noise(index, rows, rate, step, 40_000, np.random.default_rng(0))
    variance = rows * rate * (1 - rate)
    for place, cells in enumerate([slice(0, 3), slice(3, 5), slice(5, 6)]):
        spread = step[cells] ** 2 @ variance[cells]
        third = step[cells] ** 3 @ (variance[cells] * (1 - 2 * rate[cells]))
        assert noise[:, place].mean() == pytest.approx(0.0, abs=4 * np.sqrt(spread / 40_000))
        assert noise[:, place].var() == pytest.approx(spread, rel=0.05)
        skewness = (noise[:, place] ** 3).mean() / spread**1.5
        # The first bin is nearly normal, and drawn as if it were; the others keep their own law.
        assert skewness == pytest.approx(0.0 if place == 0 else third / spread**1.5, abs=0.15)
    assert set(np.unique(np.round(noise[:, 2] + 2.0, 9))) <= {10.0 * count for count in range(9)}


@pytest.mark.parametrize("metric", ["mean_outcome_over_score", "brier", "nll"])
def test_intervals_of_means_cover(metric):
    generator = np.random.default_rng(8)
    x = generator.normal(-1.5, 1.0, 400_000)
    p, rate = expit(x), expit(0.8 * x)
    truth = {
        "mean_outcome_over_score": (rate / p).mean(),
        "brier": (rate * (1 - p) ** 2 + (1 - rate) * p**2).mean(),
        "nll": -(rate * np.log(p) + (1 - rate) * np.log1p(-p)).mean(),
    }[metric]
    covered = []
    for _ in range(300):
        rows = generator.integers(0, len(x), 2000)
        sketch = CalibrationSketch.of(
            score=p[rows], outcome=generator.random(2000) < rate[rows], mantissa_bits=3, bins=10
        )
        found = interval(sketch, metric=metric, resamples=300)
        covered.append(found.low <= truth <= found.high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize(
    ("metric", "bins", "slope"),
    [("ece", 10, 1.0), ("ece", 10, 0.7), ("adaptive_ece", 20, 0.7), ("wce", 20, 1.0), ("wce", 20, 0.7)],
)
def test_intervals_of_binned_errors_cover_at_least_so_often(metric, bins, slope):
    covered = []
    for sketch, score, rate in draws(9, 400, 4000, slope=slope, mantissa_bits=2, bins=10):
        found = interval(sketch, metric=metric, bins=bins, resamples=200)
        cells = score_cells.cells_of(sketch)
        index = cells.bin_index(bins=bins, spacing="width" if metric == "ece" else "mass")
        at = np.searchsorted(np.cumsum(cells.rows.sum(axis=1)), np.arange(len(score)), side="right")
        order = np.argsort(score)
        error = (rate / score - 1 if metric == "wce" else rate - score)[order]
        truth = np.abs(np.bincount(index[at], weights=error)).sum() / len(score)
        covered.append(found.low <= truth <= found.high)
    assert np.mean(covered) >= 0.92


def test_an_interval_is_the_same_for_the_same_seed(skewed):
    arrays = {"score": skewed[0], "outcome": skewed[1]}
    first, again = (interval(metric="ece", **arrays, resamples=200) for _ in range(2))
    other = interval(metric="ece", **arrays, resamples=200, seed=1)
    assert first == again
    assert first.value == other.value == pytest.approx(ece(**arrays), rel=1e-9)
    assert first.low != other.low


def test_bad_parameters_are_named():
    arrays = {"score": [0.5, 0.5], "outcome": [0, 1]}
    for call, message in (
        (lambda: interval(metric="mce", **arrays), "no interval for the metric 'mce'"),
        (lambda: interval(metric="ece", **arrays, level=95), "level must be between 0 and 1"),
        (
            lambda: interval(metric="ece", **arrays, resamples=0),
            "resamples must be from 1 to 1,000,000, not 0",
        ),
        (lambda: debiased_ece(**arrays, norm="l3"), "norm must be 'l1' or 'l2'"),
        (lambda: wce(**arrays, squared=True), "squared=True needs debiased=True"),
        (lambda: smooth_ece(**arrays, bandwidth=0.0), "bandwidth must be a positive number"),
        (lambda: adaptive_ece(**arrays, bins=0), "bins must be a whole number"),
        (lambda: mce(**arrays, spacing="even"), "spacing must be 'width', 'mass' or 'log'"),
        (lambda: noise_floor(**arrays, metric="nll"), "metric must be 'ece'"),
        (lambda: noise_floor(**arrays, draws=0), "draws must be from 1 to 1,000,000, not 0"),
        (lambda: reliability_curve(**arrays, level=1.5), "level must be between 0 and 1"),
    ):
        with pytest.raises(ParameterError, match=message):
            call()
    with pytest.raises(DataError, match="its weight is infinite, and has no interval"):
        interval(metric="wce", score=[0.0, 0.5], outcome=[1, 0])
