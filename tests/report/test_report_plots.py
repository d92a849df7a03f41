"""What is drawn are the numbers that were given, on axes that hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from unskew.metrics import CalibrationSketch, reliability_curve, wce
from unskew.report.plots.learning import learning_figure
from unskew.report.plots.methods import differences_figure, methods_figure
from unskew.report.plots.overview import overview_figure
from unskew.report.plots.reliability import reliability_figure
from unskew.report.plots.truth import truth_figure
from unskew.report.plots.weights import histogram_figure, weight_calibration_figure, weight_curve
from unskew.report.style import SERIES, SURFACE, svg


def drawn(figure: Any) -> str:
    """The figure as text: layout and drawing must not fail or warn either."""
    return svg(figure, name="f", title="f")


def lines_of(axes: Any, label: str) -> tuple[Any, Any]:
    (line,) = [line for line in axes.get_lines() if line.get_label() == label]
    return line.get_xdata(), line.get_ydata()


@pytest.mark.parametrize("panel", [0, 1])
def test_reliability_shows_the_curve_and_its_intervals(inputs: dict[str, Any], panel: int) -> None:
    axes = reliability_figure(inputs["sketches"]).axes[panel]
    for name, sketch in inputs["sketches"].items():
        curve = reliability_curve(sketch=sketch, bins=20, spacing="mass")
        score, frequency = lines_of(axes, name)
        np.testing.assert_allclose(score, curve.score)
        np.testing.assert_allclose(frequency, curve.frequency)
    assert [axes.get_xscale(), axes.get_yscale()] == [["linear"] * 2, ["logit"] * 2][panel]
    low, high = axes.get_xlim()
    every = np.concatenate(
        [reliability_curve(sketch=s, bins=20, spacing="mass").score for s in inputs["sketches"].values()]
    )
    assert low <= every.min()
    assert every.max() <= high


def test_bins_without_a_click_are_marked_at_the_edge_of_the_logit_axis() -> None:
    score = np.repeat([0.001, 0.02, 0.3], 50)
    outcome = np.concatenate([np.zeros(50), np.arange(50) < 2, np.arange(50) < 20])
    figure = reliability_figure({"raw": CalibrationSketch.of(score=score, outcome=outcome)}, bins=3)
    axes = figure.axes[1]
    (marker,) = [line for line in axes.get_lines() if line.get_marker() == "v"]
    np.testing.assert_allclose(marker.get_ydata(), axes.get_ylim()[0])
    np.testing.assert_allclose(marker.get_xdata(), 0.001)
    assert drawn(figure)


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
    clicked = {"raw": np.array(score)[np.array(outcome) == 1]}
    for figure in (
        reliability_figure(sketches),
        histogram_figure(sketches, clicked, p_min=0.01),
        weight_calibration_figure(sketches),
        overview_figure(metrics={}, sketches=sketches),
    ):
        assert "<title>" in drawn(figure)


def test_figures_without_data_say_so() -> None:
    assert "no held-out scores" in drawn(reliability_figure({}))
    assert "no held-out scores" in drawn(weight_calibration_figure({"raw": CalibrationSketch()}))
    assert "no clicked rows" in drawn(histogram_figure({}, {"raw": np.array([np.nan])}))
    assert "no losses were kept" in drawn(learning_figure({"naive": {}}))
    assert "nothing was compared" in drawn(differences_figure({}, {}))


def test_the_weight_curve_adds_up_to_the_weight_calibration_error(inputs: dict[str, Any]) -> None:
    for sketch in inputs["sketches"].values():
        curve = weight_curve(sketch)
        assert np.sum(curve.rows * np.abs(curve.ratio - 1)) / sketch.rows == pytest.approx(wce(sketch=sketch))


def test_intervals_of_the_weight_curve_cover_1_for_true_propensities() -> None:
    random = np.random.default_rng(3)
    covered = []
    for _ in range(60):
        p = random.beta(1.0, 9.0, size=4_000) * 0.98 + 0.01
        curve = weight_curve(CalibrationSketch.of(score=p, outcome=random.random(4_000) < p), bins=10)
        covered.append((curve.low <= 1) & (curve.high >= 1))
    assert np.mean(covered) == pytest.approx(0.95, abs=0.03)


def test_the_weight_curve_with_weights_equals_repeated_rows() -> None:
    score, outcome, times = np.array([0.1, 0.3, 0.5]), np.array([0, 1, 1]), np.array([4, 2, 2])
    weighted = weight_curve(CalibrationSketch.of(score=score, outcome=outcome, weight=times), bins=2)
    repeated = CalibrationSketch.of(score=np.repeat(score, times), outcome=np.repeat(outcome, times))
    np.testing.assert_allclose(weighted.ratio, weight_curve(repeated, bins=2).ratio)


def test_histograms_hold_every_pair_and_cap_the_weights(inputs: dict[str, Any]) -> None:
    figure = histogram_figure(inputs["sketches"], inputs["clicked"], p_min=0.02)
    left, right = figure.axes
    shares = [patch.get_data().values.sum() for patch in left.patches]
    np.testing.assert_allclose(shares, 1.0)
    counts = {patch.get_data().values.sum() for patch in right.patches}
    assert counts == {float(len(inputs["clicked"]["raw"]))}
    assert right.patches[0].get_data().edges[-1] == pytest.approx(50, rel=0.01)
    assert {"p_min 0.02", "cap 50"} <= {text.get_text() for axes in figure.axes for text in axes.texts}


def test_methods_show_means_and_students_intervals(inputs: dict[str, Any]) -> None:
    metrics = inputs["metrics"]
    axes = methods_figure(metrics["methods"], metrics["rails"]).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Naive", "IPS, raw", "IPS, calibrated"]
    for row, (collection, key) in enumerate(zip(axes.collections, metrics["methods"], strict=True)):
        seeds = metrics["methods"][key]["auc"]["seeds"]
        low, high = stats.t.interval(0.95, len(seeds) - 1, np.mean(seeds), stats.sem(seeds))
        np.testing.assert_allclose(collection.get_segments()[0], [[low, row], [high, row]])


def test_rails_stand_below_each_metric(inputs: dict[str, Any]) -> None:
    metrics = inputs["metrics"]
    notes = [axes.get_xlabel() for axes in methods_figure(metrics["methods"], metrics["rails"]).axes]
    assert notes[:3] == ["random 0.500 · oracle 1.00", "1 is right", "lower is better"]
    assert notes[3] == "random 0.395 · oracle 1.26"


def test_the_level_stands_beside_the_line_of_kept_promises(inputs: dict[str, Any]) -> None:
    methods = inputs["metrics"]["methods"]
    axes = methods_figure(methods, metrics=["mean_over_rate"]).axes[0]
    line = axes.get_lines()[-1]
    assert list(line.get_xdata()) == [1.0, 1.0]
    low, high = axes.get_xlim()
    assert low < 1 < methods["naive"]["mean_over_rate"]["mean"] < high


def test_a_difference_is_filled_only_beyond_noise() -> None:
    methods = {"naive": {"auc": {"mean": 0.5}, "dcg@2": {"mean": 2.0}}}
    test = {"difference": 0.01, "low": 0.005, "high": 0.015, "p_value": 0.01}
    comparison = {"ips": {"auc": {**test, "p_holm": 0.02}, "dcg@2": {**test, "p_holm": 0.2}}}
    axes = differences_figure(comparison, methods).axes[0]
    auc, dcg = [line for line in axes.get_lines() if line.get_marker() == "o" and len(line.get_xdata())]
    assert auc.get_markerfacecolor() == SERIES["calibrated"].colour.light
    assert dcg.get_markerfacecolor() == SURFACE.light
    np.testing.assert_allclose([auc.get_xdata()[0], dcg.get_xdata()[0]], [2.0, 0.5])  # per cent of naive


def test_better_is_to_the_right_whatever_the_metric() -> None:
    methods = {"naive": {"auc": {"mean": 0.5}, "nll": {"mean": 0.5}, "mean_over_rate": {"mean": 1.5}}}
    risen = {"difference": 0.1, "low": 0.05, "high": 0.2, "p_holm": 0.01}
    figure = differences_figure({"ips": dict.fromkeys(methods["naive"], risen)}, methods)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Level", "Ranking"]
    shown = {
        label.get_text(): (point.get_xdata()[0], interval.get_segments()[0][:, 0].tolist())
        for axes in figure.axes
        for label, point, interval in zip(
            axes.get_yticklabels(),
            [line for line in axes.get_lines() if line.get_marker() == "o" and len(line.get_xdata())],
            axes.collections,
            strict=True,
        )
    }
    assert shown["AUC"] == (pytest.approx(20), pytest.approx([10, 40]))
    assert shown["NLL"] == (pytest.approx(-20), pytest.approx([-40, -10]))
    assert shown["Predicted ÷ actual rate"] == (pytest.approx(-10), pytest.approx([-20, -5]))


def test_truth_shows_estimates_and_both_parts(inputs: dict[str, Any]) -> None:
    truth = inputs["metrics"]["truth"]
    left, right = truth_figure(truth).axes
    assert left.get_lines()[0].get_xdata()[0] == truth["ideal_loss"]
    with_parts = [of for of in truth["estimates"].values() if "calibration_part" in of]
    expected = [-of[part] for of in with_parts for part in ("calibration_part", "refinement_part")]
    np.testing.assert_allclose([bar.get_width() for bar in right.patches], expected)
    sums = [line.get_xdata()[0] for line in right.get_lines() if line.get_marker() == "D"]
    np.testing.assert_allclose(sums, [-of["bias"] for of in truth["estimates"].values()])


def test_learning_shows_the_median_and_the_kept_epoch(inputs: dict[str, Any]) -> None:
    history = inputs["histories"]["naive"]
    axes = learning_figure({"naive": history}).axes[0]
    epoch, loss = lines_of(axes, "validation")
    np.testing.assert_allclose(loss, np.median(history["validation"], axis=1))
    assert epoch[0] == 1
    (kept,) = [line for line in axes.get_lines() if line.get_marker() == "|"]
    np.testing.assert_array_equal(kept.get_xdata(), np.array(history["best_epoch"]) + 1)


def test_learning_leaves_out_missing_losses_and_names_several_steps() -> None:
    history = {
        "train": {"imputation": [[2.0, float("nan")], [float("nan"), None]], "prediction": [[0.01], [0.02]]},
        "validation": [],
        "best_epoch": [None, 1],
    }
    axes = learning_figure({"mrdr": history}).axes[0]
    np.testing.assert_array_equal(lines_of(axes, "training: imputation")[1], [2.0])
    np.testing.assert_array_equal(lines_of(axes, "training: prediction")[1], [0.01, 0.02])
    assert axes.get_yscale() == "log"


def test_the_overview_has_a_panel_for_each_thing_that_is_known(inputs: dict[str, Any]) -> None:
    metrics = inputs["metrics"]
    for left_out, titles in {
        (): ["Propensities", "Estimates of the loss", "Predicted ÷ actual rate", "AUC"],
        ("truth",): ["Propensities", "Predicted ÷ actual rate", "AUC"],
        ("methods",): ["Propensities", "Estimates of the loss"],
        ("truth", "methods"): ["Propensities", "Their weights"],
    }.items():
        kept = {name: value for name, value in metrics.items() if name not in left_out}
        figure = overview_figure(metrics=kept, sketches=inputs["sketches"])
        assert [axes.get_title(loc="left") for axes in figure.axes] == titles
