"""The report of a run: figures, tables and words put together into one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.metrics import CalibrationSketch
from unskew.report import captions, plots
from unskew.report.judging import collapsed_sentences, is_random, tested_on
from unskew.report.page import Picture, picture, render
from unskew.report.plots.overview import TITLE
from unskew.report.tables import methods_table, propensity_table, settings_rows, truth_table
from unskew.report.verdict import findings
from unskew.report.words import counted, filled, number, percent, real


def render_run_report(
    *,
    metrics: Mapping[str, Any],
    config: Mapping[str, Any],
    sketches: Mapping[str, CalibrationSketch],
    clicked: Mapping[str, NDArray[np.float64]],
    histories: Mapping[str, Mapping[str, Any]],
) -> str:
    """One HTML file that opens offline and shows what a run found.

    Parameters
    ----------
    metrics
        The dictionary of ``metrics.json``. ``"methods"``, ``"comparison"``, ``"rails"``, ``"spread"`` and
        ``"truth"`` may be missing or empty; so may any number.
    config
        What was run; ``"calibrator"`` and ``"p_min"`` are read, the rest is listed.
    sketches
        Held-out scores against clicks, ``"raw"`` and ``"calibrated"``.
    clicked
        Unclipped propensities of the clicked rows under the same names.
    histories
        Losses of each model by epoch, as ``History.to_dict`` gives them.

    Examples
    --------
    >>> scores, clicks = np.array([0.1, 0.2, 0.4, 0.6]), np.array([0, 0, 1, 1])
    >>> sketch = CalibrationSketch.of(score=scores, outcome=clicks)
    >>> page = render_run_report(metrics={"data": {"name": "toy"}}, config={}, sketches={"raw": sketch},
    ...                          clicked={"raw": scores[clicks == 1]}, histories={})
    >>> page.splitlines()[0]
    '<!doctype html>'
    """
    data = metrics.get("data", {})
    figures = metrics.get("propensity") or {}
    methods, comparison = filled(metrics.get("methods")), filled(metrics.get("comparison"))
    rails, truth = metrics.get("rails") or {}, metrics.get("truth") or {}
    return render(
        "run.html.j2",
        title=f"unskew run: {data.get('name', 'data')}",
        data_line=_data_line(data),
        protocol=metrics.get("protocol"),
        labels=list(metrics.get("labels") or []),
        findings=findings(metrics, config, sketches),
        pictures=_pictures(metrics, config, sketches, clicked, histories),
        propensity=propensity_table(figures) if figures else None,
        methods=methods_table(methods, comparison, rails, metrics.get("collapsed")) if methods else None,
        tested=bool(comparison),
        test_set=tested_on(metrics),
        random_test=is_random(metrics),
        collapsed=collapsed_sentences(metrics),
        known="known" in figures,
        truth=truth_table(truth) if truth.get("estimates") else None,
        predictor=truth.get("predictor"),
        settings=settings_rows(config),
        facts=[(name.replace("_", " "), value) for name, value in settings_rows(data)],
    )


def _pictures(
    metrics: Mapping[str, Any],
    config: Mapping[str, Any],
    sketches: Mapping[str, CalibrationSketch],
    clicked: Mapping[str, NDArray[np.float64]],
    histories: Mapping[str, Mapping[str, Any]],
) -> dict[str, Picture]:
    """Every figure there is data for, by name."""
    figures = metrics.get("propensity") or {}
    methods, comparison = filled(metrics.get("methods")), filled(metrics.get("comparison"))
    truth = metrics.get("truth") or {}
    limit = real(metrics.get("p_min", config.get("p_min")))
    p_min = limit if np.isfinite(limit) else None
    made = {
        "overview": picture(
            plots.overview_figure(metrics=metrics, sketches=sketches),
            name="overview",
            title=TITLE,
            caption=captions.overview(metrics),
        ),
        "histograms": picture(
            plots.histogram_figure(sketches, clicked, p_min=p_min),
            name="histograms",
            title="Histograms of propensities and of weights",
            caption=captions.histograms(figures, metrics.get("data", {}).get("clicks"), p_min),
        ),
    }
    if sketches or not clicked:
        made["reliability"] = picture(
            plots.reliability_figure(sketches),
            name="reliability",
            title="Reliability diagram before and after calibration, on linear and logit axes",
            caption=captions.reliability(sketches),
        )
        made["weights"] = picture(
            plots.weight_calibration_figure(sketches),
            name="weights",
            title="Sum of the weights relative to the pairs, by propensity",
            caption=captions.weight_calibration(figures),
        )
    spread = metrics.get("spread") or {}
    if spread.get("curve"):
        made["spread"] = picture(
            plots.spread_figure(spread["curve"]),
            name="spread",
            title="How far members disagree, by propensity",
            caption=captions.spread(spread),
        )
    if methods:
        made["methods"] = picture(
            plots.methods_figure(methods, metrics.get("rails")),
            name="methods",
            title="Metrics of each method on the test set, over seeds",
            caption=captions.methods(methods),
        )
    if methods and comparison:
        made["differences"] = picture(
            plots.differences_figure(comparison, methods),
            name="differences",
            title="Paired differences of each method from the naive model",
            caption=captions.differences(comparison),
        )
    if truth.get("estimates"):
        made["truth"] = picture(
            plots.truth_figure(truth),
            name="truth",
            title="Estimates of the loss beside the true one, and the two parts of their bias",
            caption=captions.truth(truth),
        )
    if histories:
        made["learning"] = picture(
            plots.learning_figure(histories),
            name="learning",
            title="Training and validation losses by epoch",
            caption=captions.learning(histories),
        )
    return made


def _data_line(data: Mapping[str, Any]) -> str:
    """The size of the data in one line."""
    parts = []
    if data.get("users") is not None and data.get("items") is not None:
        parts.append(f"{counted(data['users'], 'user')} × {counted(data['items'], 'item')}")
    if data.get("clicks") is not None:
        share = f" ({percent(data['density'])} of pairs)" if data.get("density") is not None else ""
        known = data.get("known_propensity") is not None
        shown = (
            f"{counted(data['clicks'], 'shown row')}, one of {counted(data.get('actions'), 'action')} each"
        )
        parts.append(shown if known else f"{counted(data['clicks'], 'click')}{share}")
    if data.get("test_rows"):
        kind = "randomly shown" if data.get("test_is") == "random" else "logged"
        parts.append(f"{number(data.get('test_rows_judged', data['test_rows']), 0)} {kind} test pairs")
    if data.get("leaked_cells_dropped"):
        parts.append(f"{number(data['leaked_cells_dropped'], 0)} leaked test pairs dropped")
    return " · ".join(parts)
