"""The report of a run as one HTML file: figures, tables and words put together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.metrics import CalibrationSketch
from unskew.metrics.judgement import LEVEL_TOLERANCE
from unskew.report.facts import (
    collapsed_sentences,
    data_name,
    filled,
    is_random,
    main_method,
    method_name,
    sampled,
    tested_on,
    units,
)
from unskew.report.findings import cost_findings, findings
from unskew.report.numbers import counted, number, percent, real
from unskew.report.page import Picture, picture, render
from unskew.report.plots.curves import learning_figures
from unskew.report.plots.dots import DotChart
from unskew.report.plots.methods import (
    difference_charts,
    estimates_chart,
    fields_charts,
    metric_charts,
    overview_figures,
    search_chart,
)
from unskew.report.plots.scores import (
    histogram_figures,
    reliability_figures,
    weights_figure,
)
from unskew.report.run_tables import (
    methods_table,
    propensity_table,
    search_table,
    truth_table,
    values_table,
)
from unskew.report.table import settings_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Metrics = Mapping[str, Any]
"""The dictionary of ``metrics.json``."""

FIELD_MODELS = {"conversion": "Conversion model", "propensity": "Propensity"}


def render_run_report(
    *,
    metrics: Metrics,
    config: Mapping[str, Any],
    sketches: Mapping[str, CalibrationSketch],
    histories: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return one HTML file that opens offline and shows what a run found.

    Parameters
    ----------
    metrics
        The dictionary of ``metrics.json``. ``"methods"``, ``"comparison"``, ``"rails"``, ``"spread"`` and
        ``"truth"`` may be missing or empty; so may any number.
    config
        The settings of the run; ``"calibrator"`` and ``"p_min"`` are read, the rest is listed.
    sketches
        Held-out scores against clicks, ``"raw"`` and ``"calibrated"``.
    histories
        Losses of each model by epoch, as ``History.to_dict`` returns them.

    Examples
    --------
    >>> sketch = CalibrationSketch.of(score=[0.1, 0.2, 0.4, 0.6], outcome=[0, 0, 1, 1])
    >>> page = render_run_report(metrics={"data": {"name": "toy"}}, config={}, sketches={"raw": sketch},
    ...                          histories={})
    >>> page.splitlines()[0]
    '<!doctype html>'
    """
    data, figures = metrics.get("data") or {}, metrics.get("propensity") or {}
    truth, searched = metrics.get("truth") or {}, metrics.get("search") or {}
    methods, about = filled(metrics.get("methods")), _about(metrics, config)
    fields = _fields(metrics)
    return render(
        "run.html.j2",
        title=f"{about} · unskew run",
        about=about,
        data=defaultdict(lambda: None, data),
        cost=cost_findings(metrics, sketches),
        units=units(metrics),
        tested_on=tested_on(metrics),
        sampled=sampled(methods),
        protocol=metrics.get("protocol"),
        labels=list(metrics.get("labels") or []),
        findings=findings(metrics, config, sketches),
        pictures=_pictures(metrics, config, sketches, histories),
        spread=metrics.get("spread"),
        propensity=propensity_table(figures, units(metrics)) if figures else None,
        propensities=figures,
        methods=methods_table(metrics, f"On {tested_on(metrics)}") if methods else None,
        random_test=is_random(metrics),
        collapsed=collapsed_sentences(metrics),
        known="known" in figures,
        truth=truth_table(truth) if truth.get("estimates") else None,
        predictor=truth.get("predictor"),
        fields=fields,
        values=[
            values_table(
                of["worst_values"],
                f"{title}: {number(of['values_off'], 0)} of {counted(of['values'], 'value')} off by more than"
                f" {percent(LEVEL_TOLERANCE)} beyond chance ({of['judged_on']})",
            )
            for title, of in fields.items()
            if of["worst_values"]
        ],
        search=search_table(searched) if searched else None,
        searched={"rows": None, "advantage": None, "advantage_error": None} | dict(searched),
        settings=settings_of(config),
        facts=[(name.replace("_", " "), value) for name, value in settings_of(data)],
    )


def _about(metrics: Metrics, config: Mapping[str, Any]) -> str:
    name = data_name(metrics, config)
    method = main_method(filled(metrics.get("methods"))) or str(config.get("method") or "none")
    if method in ("none", "naive"):
        return f"{'Propensities' if method == 'none' else 'The naive model'} on {name}"
    return f"{method_name(method).partition(',')[0]} on {name}"


def _fields(metrics: Metrics) -> dict[str, Mapping[str, Any]]:
    """Return what is known of the fields of each model that reads some, by its title."""
    fields = metrics.get("fields") or {}
    return {title: fields[key] for key, title in FIELD_MODELS.items() if fields.get(key)}


def _pictures(
    metrics: Metrics,
    config: Mapping[str, Any],
    sketches: Mapping[str, CalibrationSketch],
    histories: Mapping[str, Mapping[str, Any]],
) -> dict[str, Picture]:
    """Return every figure there is data for, by name."""
    rows, methods = units(metrics), filled(metrics.get("methods"))
    truth, searched, rails = metrics.get("truth") or {}, metrics.get("search") or {}, metrics.get("rails")
    limit = real(metrics.get("p_min", config.get("p_min")))
    p_min = limit if np.isfinite(limit) else None
    reliability = reliability_figures(sketches)
    histograms = histogram_figures(sketches, p_min=p_min, rows=rows)
    drawn: dict[str, Sequence[DotChart | Figure]] = {
        "overview": overview_figures(metrics=metrics, sketches=sketches),
        "reliability": reliability,
        "weights": [weights_figure(sketches, rows=rows), *histograms],
        "methods": metric_charts(methods, rails) if methods else [],
        "differences": difference_charts(filled(metrics.get("comparison")), methods) if methods else [],
        "truth": [estimates_chart(truth)] if truth.get("estimates") else [],
        "search": [search_chart(searched)] if searched.get("rows") else [],
        "fields": fields_charts({title: of["importance"] for title, of in _fields(metrics).items()}),
        "learning": learning_figures(histories),
    }
    return {
        name: picture(name, [each.figure() if isinstance(each, DotChart) else each for each in panels])
        for name, panels in drawn.items()
        if panels
    }
