"""The report of a run: figures, tables and words put together into one HTML file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.metrics import CalibrationSketch
from unskew.metrics.judgement import LEVEL_TOLERANCE, judge_difference
from unskew.metrics.registry import metric, shown_metrics
from unskew.report.cost import main_method, promises, run_cost
from unskew.report.finding import (
    LEVEL,
    collapsed_sentences,
    data_name,
    deviation,
    is_random,
    level_of,
    sampled,
    seeds_of,
    tested_on,
    units,
)
from unskew.report.findings import findings
from unskew.report.honesty import worst_misstatement
from unskew.report.html_tables import (
    HtmlTable,
    methods_table,
    propensity_table,
    search_table,
    settings_rows,
    truth_table,
    values_table,
)
from unskew.report.page import Picture, picture, render
from unskew.report.plots.axes import nothing
from unskew.report.plots.dots import DotChart
from unskew.report.plots.methods import (
    difference_charts,
    estimates_chart,
    metric_charts,
    promised_chart,
    search_chart,
    truth_charts,
)
from unskew.report.plots.over_time import learning_figures
from unskew.report.plots.parts import fields_charts
from unskew.report.plots.scores import (
    NO_SCORES,
    clipped_weights,
    histogram_figures,
    reaching,
    reliability_figures,
    spread_figure,
    weights_figure,
)
from unskew.report.words import (
    brief,
    counted,
    filled,
    listed,
    method_name,
    method_phrase,
    number,
    percent,
    real,
    sentence,
    signed_fixed,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    about = _about(metrics, config)
    return render(
        "run.html.j2",
        title=f"{about} · unskew run",
        question=about,
        cost=run_cost(metrics, sketches),
        units=units(metrics),
        data_line=_data_line(metrics),
        protocol=metrics.get("protocol"),
        labels=list(metrics.get("labels") or []),
        findings=findings(metrics, config, sketches),
        pictures=_pictures(metrics, config, sketches, clicked, histories),
        propensity=propensity_table(figures) if figures else None,
        methods=methods_table(methods, comparison, rails, metrics.get("collapsed")) if methods else None,
        tested=bool(comparison),
        test_set=tested_on(metrics),
        random_test=is_random(metrics),
        sampled=sampled(methods),
        collapsed=collapsed_sentences(metrics),
        known="known" in figures,
        truth=truth_table(truth) if truth.get("estimates") else None,
        predictor=truth.get("predictor"),
        fields=_values_by_model(metrics),
        search=search_table(searched) if (searched := metrics.get("search")) else None,
        decision=(metrics.get("search") or {}).get("sentence"),
        settings=settings_rows(config),
        facts=[(name.replace("_", " "), value) for name, value in settings_rows(data)],
    )


def _about(metrics: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """What was run on what data."""
    name = data_name(metrics, config)
    method = main_method(filled(metrics.get("methods"))) or str(config.get("method") or "none")
    if method in ("none", "naive"):
        return f"{'Propensities' if method == 'none' else 'The naive model'} on {name}"
    return f"{method_name(method).partition(',')[0]} on {name}"


def _pictures(
    metrics: Mapping[str, Any],
    config: Mapping[str, Any],
    sketches: Mapping[str, CalibrationSketch],
    clicked: Mapping[str, NDArray[np.float64]],
    histories: Mapping[str, Mapping[str, Any]],
) -> dict[str, Picture]:
    """Return every figure there is data for, by name."""
    rows = units(metrics)
    methods, comparison = filled(metrics.get("methods")), filled(metrics.get("comparison"))
    truth, spread = metrics.get("truth") or {}, metrics.get("spread") or {}
    searched, importances = metrics.get("search") or {}, _importances(metrics)
    limit = real(metrics.get("p_min", config.get("p_min")))
    p_min = limit if np.isfinite(limit) else None
    reliability = reliability_figures(sketches)
    overview = [*reliability[1:], *_drawn(_overview_charts(metrics))] or [nothing("Propensities", NO_SCORES)]
    weights = [
        weights_figure(sketches, rows=rows),
        *histogram_figures(sketches, clipped_weights(clicked, p_min), p_min=p_min, rows=rows),
    ]
    made = [picture("overview", _overview_caption(metrics), overview)]
    if reliability:
        made.append(picture("reliability", _reliability_caption(sketches, rows), reliability))
    made.append(picture("weights", _weights_caption(metrics, p_min), weights))
    if spread.get("curve"):
        made.append(picture("spread", _spread_caption(spread), [spread_figure(spread["curve"])]))
    if methods:
        charts = metric_charts(methods, metrics.get("rails"))
        made.append(picture("methods", _methods_caption(methods), _drawn(charts)))
    if methods and comparison and (charts := difference_charts(comparison, methods)):
        made.append(picture("differences", _differences_caption(comparison, methods), _drawn(charts)))
    if truth.get("estimates"):
        made.append(picture("truth", _truth_caption(truth), _drawn(truth_charts(truth))))
    if searched.get("judged"):
        made.append(picture("search", _search_caption(searched), _drawn([search_chart(searched)])))
    if importances:
        made.append(picture("fields", _fields_caption(metrics), _drawn(fields_charts(importances))))
    if histories:
        made.append(picture("learning", _learning_caption(histories), learning_figures(histories)))
    return {each.name: each for each in made}


def _drawn(charts: Sequence[DotChart]) -> list[Figure]:
    return [chart.figure() for chart in charts]


def _overview_charts(metrics: Mapping[str, Any]) -> list[DotChart]:
    """What the models promise, the order they reach, and estimates beside the truth, as far as known."""
    methods = filled(metrics.get("methods"))
    found = promises(metrics)
    charts = []
    if found:
        came = next(iter(found.values())).came
        charts.append(promised_chart(found, came, tested_on(metrics)))
    elif any(LEVEL in of for of in methods.values()):
        charts += metric_charts(methods, metrics.get("rails"), metrics=[LEVEL])
    if any("auc" in of for of in methods.values()):
        charts += metric_charts(methods, metrics.get("rails"), metrics=["auc"])
    truth = metrics.get("truth") or {}
    if truth.get("estimates") and not charts:
        charts.append(estimates_chart(truth))
    return charts


def _search_caption(searched: Mapping[str, Any]) -> str:
    rows = searched.get("rows")
    on = f"a random sample of {number(rows, 0)} pairs" if rows else "no random sample"
    worth = searched.get("cross_validated")
    error = searched.get("cross_validated_error")
    noise = "" if error is None else f" ± {error:.4f}"
    said = "" if worth is None else f"; cross-validated, the choice is ahead by {worth:+.4f}{noise}"
    return f"Right of the line a candidate is ahead; decided on {on}{said}."


FIELD_MODELS = {"conversion": "Conversion model", "propensity": "Propensity"}


def _of_fields(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """What is known of the fields of each model that reads some."""
    found = metrics.get("fields") or {}
    return {title: found[key] for key, title in FIELD_MODELS.items() if found.get(key)}


def _importances(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {title: of["importance"] for title, of in _of_fields(metrics).items()}


def _values_by_model(metrics: Mapping[str, Any]) -> list[tuple[str, str, HtmlTable]]:
    """Title, what was found, and the table of the worst values, of each model."""
    return [
        (
            title,
            f"{number(of['values_off'], 0)} of {counted(of['values'], 'value')} off by more than"
            f" {percent(LEVEL_TOLERANCE)}, beyond chance ({of['judged_on']})",
            values_table(of["worst_values"]),
        )
        for title, of in _of_fields(metrics).items()
        if of["worst_values"]
    ]


def _fields_caption(metrics: Mapping[str, Any]) -> str:
    parts = []
    for title, of in _of_fields(metrics).items():
        importance = of["importance"]
        rows = f"{'a sample of ' if importance['is_sample'] else ''}{counted(importance['rows'], 'row')}"
        auc = number(importance["auc"], 3)
        parts.append(f"{title}: {of['judged_on']}, AUC {auc} on {rows} before anything is permuted")
    return (
        f"{'; '.join(parts)}. Hollow: it may be nothing. Fields that say the same stand in for one another,"
        " and each loses less alone."
    )


def _data_line(metrics: Mapping[str, Any]) -> str:
    """The size of the data in one line."""
    data, rows = metrics.get("data", {}), units(metrics)
    parts = []
    if data.get("users") is not None and data.get("items") is not None:
        parts.append(f"{counted(data['users'], 'user')} × {counted(data['items'], 'item')}")
    if data.get("clicks") is not None:
        share = f" ({percent(data['density'])} of {rows})" if data.get("density") is not None else ""
        known = data.get("known_propensity") is not None
        shown = (
            f"{counted(data['clicks'], 'shown row')}, one of {counted(data.get('actions'), 'action')} each"
        )
        parts.append(shown if known else f"{counted(data['clicks'], 'click')}{share}")
    if data.get("test_rows"):
        kind = "randomly shown" if data.get("test_is") == "random" else "logged"
        parts.append(f"{number(data.get('test_rows_judged', data['test_rows']), 0)} {kind} test {rows}")
    if data.get("leaked_cells_dropped"):
        parts.append(f"{number(data['leaked_cells_dropped'], 0)} leaked test {rows} dropped")
    return " · ".join(parts)


def _overview_caption(metrics: Mapping[str, Any]) -> str:
    promised = (
        f"Right promises lie on the line of what came on {tested_on(metrics)}; a higher AUC puts more"
        " conversions first; "
    )
    methods = filled(metrics.get("methods"))
    over = f", of models over {sampled(methods)}" if methods else ""
    diagonal = (
        f"honest propensities lie on the diagonal. Bars are 95 % intervals{over}; each is taken up below."
    )
    return promised + diagonal if promises(metrics) else sentence(diagonal)


def _reliability_caption(sketches: Mapping[str, CalibrationSketch], rows: str) -> str:
    worst = worst_misstatement(sketches.get("raw"))
    said = (
        f", and where the raw say {percent(worst.said)}, {percent(worst.seen)} were clicked" if worst else ""
    )
    return (
        f"Each point is a group of held-out {rows} of equal size, with the 95 % interval of the share that"
        f" was clicked, and on the diagonal a propensity means what it says; here"
        f" {listed(reaching(sketches))}{said}."
    )


def _weights_caption(metrics: Mapping[str, Any], p_min: float | None) -> str:
    figures, rows = metrics.get("propensity") or {}, units(metrics)
    off = _of_kinds(figures, "wce", percent)
    clipped = _of_kinds(figures, "clipped", percent)
    sizes = _of_kinds(figures, "effective_sample_size", lambda size: number(size, 0))
    shown = [f"they are off by {listed(off)} on average (WCE)"] if off else []
    if clipped and p_min is not None:
        shown.append(f"the clip raises the propensity of {listed(clipped)} of the clicked {rows}")
    if sizes:
        clicks = number(metrics.get("data", {}).get("clicks"), 0)
        shown.append(f"the weights of {clicks} clicks carry as much information as {listed(sizes)}")
    here = f" Here {listed(shown)}." if shown else ""
    return (
        f"Among {rows} of one propensity, the weights of the clicked ones should add up to the number of"
        f" {rows}, which is the line at 1; above it they are too large. A small propensity becomes a large"
        f" weight, and few large weights decide.{here}"
    )


def _of_kinds(figures: Mapping[str, Any], name: str, shown: Callable[[Any], str]) -> list[str]:
    """A figure of each kind of propensities that has it."""
    return [f"{shown(of[name])} ({kind})" for kind, of in figures.items() if of.get(name) is not None]


def _spread_caption(of_spread: Mapping[str, Any]) -> str:
    return (
        f"How far the members ({of_spread.get('method')}) disagree on a pair: where the band reaches the"
        " dotted line, they do not know its propensity at all. It tells what more data could settle, not"
        " whether their mean is right (that is calibration); here the standard deviation is"
        f" {brief(real(of_spread.get('median')))} in the median, {percent(of_spread.get('relative'))} of the"
        " propensity on average."
    )


def _methods_caption(of_methods: Mapping[str, Any]) -> str:
    seeds = seeds_of(of_methods)
    ticks = (
        f"Each tick is one of {counted(seeds, 'seed')}, the marker their mean"
        if seeds > 1
        else "The marker is the metric"
    )
    first = shown_metrics(of_methods)[0]
    means = {key: real(of.get(first, {}).get("mean")) for key, of in of_methods.items()}
    known = {key: mean for key, mean in means.items() if np.isfinite(mean)}
    best = max(known, key=lambda key: known[key], default=None)
    here = (
        f"; here {method_phrase(best)} has the highest {metric(first).label}, {brief(known[best])}"
        if best
        else ""
    )
    levels = {key: level_of(of_methods, key) for key in of_methods}
    known_levels = {key: abs(level - 1) for key, level in levels.items() if np.isfinite(level)}
    if known_levels:
        nearest = min(known_levels, key=lambda key: known_levels[key])
        here += f", and {method_phrase(nearest)} is nearest to the actual rate ({number(levels[nearest], 2)})"
    return (
        f"{ticks} and the bar its 95 % interval over {sampled(of_methods)}, and below stands what a random"
        f" and a perfect order reach{here}."
    )


def _differences_caption(comparison: Mapping[str, Any], of_methods: Mapping[str, Any]) -> str:
    counts = []
    for key, found in comparison.items():
        judged = [judge_difference(name, each).reason for name, each in found.items()]
        better, worse = judged.count("better"), judged.count("worse")
        counts.append(f"{method_phrase(key)} has {better} better and {worse} worse")
    return (
        f"Paired differences from the naive model, with 95 % intervals over {sampled(of_methods)}; a filled"
        " marker is a difference beyond noise, after Holm's correction over all tests; here, of all metrics,"
        f" {listed(counts)}."
    )


def _truth_caption(known: Mapping[str, Any]) -> str:
    estimates = known.get("estimates", {})
    off = [
        f"{method_phrase(key)} by {signed_fixed(deviation(of), 3)}"
        for key, of in estimates.items()
        if key != "ips_constant" and np.isfinite(deviation(of))
    ]
    here = f"; here the estimates are off by, on average: {listed(off)}" if off else ""
    return (
        "The estimates from the clicks at hand with 95 % intervals beside the true loss, and how far"
        " each is off on average, split into what a calibrator could remove (filled) and what none can"
        f" (hatched){here}."
    )


def _learning_caption(histories: Mapping[str, Mapping[str, Any]]) -> str:
    kept = []
    for name, history in histories.items():
        epochs = [epoch for epoch in history.get("best_epoch") or [] if epoch is not None]
        if epochs:
            called = "the propensity" if name == "propensity" else method_phrase(name)
            kept.append(f"{called} kept epoch {np.quantile(epochs, 0.5, method='lower') + 1:g}")
    here = f"; here, in the median, {listed(kept)}" if kept else ""
    return (
        "The line is the median over seeds, the band holds all of them, and the dashed line marks"
        f" the epoch whose weights were kept, in the median{here}. Losses of different things have axes of"
        " their own."
    )
