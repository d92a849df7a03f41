"""What is drawn are the numbers that were given, on axes that hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text
from scipy import stats

from unskew.metrics import CalibrationSketch, wce
from unskew.report.plots.curves import learning_figures
from unskew.report.plots.methods import (
    difference_charts,
    estimates_chart,
    metric_charts,
    overview_figures,
)
from unskew.report.plots.scores import (
    histogram_figures,
    reliability_figures,
    weight_curve,
    weights_figure,
)
from unskew.report.style import svg


def words(figure: Any) -> str:
    """Everything that is written in a figure."""
    return " | ".join(text.get_text() for text in figure.findobj(Text) if text.get_text())


@pytest.mark.parametrize(
    ("score", "outcome"),
    [
        ([0.0, 0.0, 1.0, 1.0], [0, 1, 1, 0]),
        ([0.2], [1]),
        ([0.2, 0.2, 0.2], [0, 0, 0]),
        ([1e-38, 1e-9, 0.5], [0, 1, 1]),
        ([1.0, 1.0], [1, 1]),
    ],
)
def test_every_figure_of_scores_survives_extremes(score: list[float], outcome: list[int]) -> None:
    sketches = {"raw": CalibrationSketch.of(score=score, outcome=outcome)}
    figures = [*reliability_figures(sketches), weights_figure(sketches)]
    figures += [*histogram_figures(sketches, p_min=0.01), *histogram_figures(sketches)]
    figures += overview_figures(metrics={}, sketches=sketches)
    for figure in figures:
        drawn = svg(figure, name="f", title="f")
        assert "<title>f</title>" in drawn
        assert "nan" not in drawn


def test_bins_without_a_click_are_marked_at_the_edge_of_the_logit_axis() -> None:
    score = np.repeat([0.001, 0.02, 0.3], 50)
    outcome = np.concatenate([np.zeros(50), np.arange(50) < 2, np.arange(50) < 20])
    linear, logit = reliability_figures({"raw": CalibrationSketch.of(score=score, outcome=outcome)})
    markers = [[line.get_marker() for line in figure.axes[0].lines] for figure in (linear, logit)]
    assert ["v" in each for each in markers] == [False, True]
    assert all(len(figure.axes[0].lines[1].get_xdata()) == 3 for figure in (linear, logit))


def test_figures_without_data_say_so() -> None:
    assert reliability_figures({}) == []
    assert "no held-out scores" in words(weights_figure({"raw": CalibrationSketch()}))
    left, right = histogram_figures({})
    assert "no held-out scores" in words(left)
    assert "no clicked rows" in words(right)
    (figure,) = learning_figures({"naive": {}})
    assert "no losses were kept" in words(figure)
    assert difference_charts({}, {}) == []


def test_the_weight_curve_adds_up_to_the_weight_calibration_error(inputs: dict[str, Any]) -> None:
    for sketch in inputs["sketches"].values():
        curve = weight_curve(sketch)
        assert np.sum(curve.rows * np.abs(curve.ratio - 1)) / sketch.rows == pytest.approx(wce(sketch))


def test_intervals_of_the_weight_curve_cover_1_for_true_propensities() -> None:
    random = np.random.default_rng(3)
    covered = []
    for _ in range(60):
        p = random.beta(1.0, 9.0, size=4_000) * 0.98 + 0.01
        curve = weight_curve(CalibrationSketch.of(score=p, outcome=random.random(4_000) < p), bins=10)
        covered.append((curve.low <= 1) & (curve.high >= 1))
    assert np.mean(covered) == pytest.approx(0.95, abs=0.03)


def test_histograms_hold_every_pair_and_every_click(inputs: dict[str, Any]) -> None:
    left, right = histogram_figures(inputs["sketches"], p_min=0.02, rows="impressions")
    shares = [patch.get_data().values.sum() for patch in left.axes[0].patches]
    np.testing.assert_allclose(shares, 100)
    clicks = [patch.get_data().values.sum() for patch in right.axes[0].patches]
    np.testing.assert_allclose(
        clicks, [sketch.positives for sketch in inputs["sketches"].values() for _ in "fl"]
    )
    assert "p_min 0.02" in words(left)
    assert "clip 50" in words(right)
    assert "Weights of the clicked impressions" in words(right)
    assert "pairs" not in words(left) + words(right)


def test_methods_show_means_seeds_and_students_intervals(inputs: dict[str, Any]) -> None:
    metrics = inputs["metrics"]
    chart = metric_charts(metrics["methods"], metrics["rails"])[0]
    assert [row.name for row in chart.rows] == ["Naive", "IPS, raw", "IPS, calibrated"]
    for row, key in zip(chart.rows, metrics["methods"], strict=True):
        seeds = metrics["methods"][key]["auc"]["seeds"]
        (dot,) = row.dots
        limits = stats.t.interval(0.95, len(seeds) - 1, np.mean(seeds), stats.sem(seeds))
        np.testing.assert_allclose((dot.low, dot.high), limits)
        np.testing.assert_allclose(dot.seeds, seeds)
        left, right = chart.figure().axes[0].get_xlim()
        assert left < dot.low < dot.high < right


def test_a_difference_is_filled_only_beyond_noise() -> None:
    methods = {"naive": {"auc": {"mean": 0.5}, "dcg@2": {"mean": 2.0}}}
    test = {"difference": 0.01, "low": 0.005, "high": 0.015, "p_value": 0.01}
    comparison = {"ips": {"auc": {**test, "p_holm": 0.02}, "dcg@2": {**test, "p_holm": 0.2}}}
    (chart,) = difference_charts(comparison, methods)
    auc, dcg = (row.dots[0] for row in chart.rows)
    assert (auc.filled, dcg.filled) == (True, False)
    np.testing.assert_allclose([auc.value, dcg.value], [2.0, 0.5])  # per cent of naive


def test_better_is_to_the_right_whatever_the_metric() -> None:
    methods = {"naive": {"auc": {"mean": 0.5}, "nll": {"mean": 0.5}, "mean_over_rate": {"mean": 1.5}}}
    risen = {"difference": 0.1, "low": 0.05, "high": 0.2, "p_holm": 0.01}
    charts = difference_charts({"ips": dict.fromkeys(methods["naive"], risen)}, methods)
    assert [chart.title for chart in charts] == ["Level", "Ranking"]
    shown = {
        row.name: (row.dots[0].value, [row.dots[0].low, row.dots[0].high])
        for chart in charts
        for row in chart.rows
    }
    assert shown["AUC"] == (pytest.approx(20), pytest.approx([10, 40]))
    assert shown["NLL"] == (pytest.approx(-20), pytest.approx([-40, -10]))
    assert shown["Predicted ÷ actual rate"] == (pytest.approx(-10), pytest.approx([-20, -5]))


def test_truth_shows_estimates(inputs: dict[str, Any]) -> None:
    truth = inputs["metrics"]["truth"]
    chart = estimates_chart(truth)
    assert chart.rule == truth["ideal_loss"]
    assert [row.dots[0].value for row in chart.rows] == [of["estimate"] for of in truth["estimates"].values()]


def test_learning_shows_the_median_and_the_kept_epoch(inputs: dict[str, Any]) -> None:
    history = inputs["histories"]["naive"]
    (figure,) = learning_figures({"naive": history})
    lines = {str(line.get_label()): line.get_ydata() for line in figure.axes[0].lines}
    np.testing.assert_allclose(lines["validation"], np.median(history["validation"], axis=1))
    kept = np.quantile(history["best_epoch"], 0.5, method="lower") + 1
    assert f"kept: {kept:g}" in words(figure)


def test_the_overview_has_a_panel_for_each_thing_that_is_known(inputs: dict[str, Any]) -> None:
    metrics = inputs["metrics"]
    for left_out, titles in {
        (): ["Predicted ÷ actual rate", "AUC"],
        ("methods",): ["Estimates of the loss"],
        ("truth", "methods"): ["Do the weights add up? 1 is right"],
    }.items():
        known = {name: value for name, value in metrics.items() if name not in left_out}
        reliability, *others = overview_figures(metrics=known, sketches=inputs["sketches"])
        assert reliability.get_suptitle().startswith("Reliability, logit")
        assert [figure.get_suptitle() for figure in others] == titles
