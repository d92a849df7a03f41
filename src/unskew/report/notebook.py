"""The views of results in a notebook: a sentence, figures and a table, as the report has them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unskew.metrics.registry import SHOWN_METRICS, metric
from unskew.report.audit_tables import figures_table, histories_table, weights_table
from unskew.report.facts import filled, tested_on, units
from unskew.report.numbers import counted, percent
from unskew.report.page import picture, render
from unskew.report.plots.axes import Axis, new_panel, set_axis
from unskew.report.plots.dots import Dot, DotChart, DotRow
from unskew.report.run_tables import methods_table, propensity_table, schema_table
from unskew.report.style import AFTER, MUTED, styled
from unskew.report.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 10
"""Segments of a monitor in its table."""
_numbers = itertools.count(1)
"""Ids of drawings must differ from those of every other output of a notebook."""


class Display(NamedTuple):
    """A sentence, what draws the figures, and a table."""

    sentence: str
    figures: Callable[[], Sequence[Figure]] = tuple
    table: Table | None = None


def sentence_of(shown: Any) -> str:
    """Return the one sentence that a result is printed as."""
    return _display(shown).sentence


def html_of(shown: Any) -> str:
    """Return the sentence, figures and table of a result for a notebook, light or dark."""
    display = _display(shown)
    figures = display.figures()
    drawn = picture(f"notebook-{next(_numbers)}", figures) if figures else None
    return render("notebook.html.j2", sentence=display.sentence, picture=drawn, table=display.table)


def _display(shown: Any) -> Display:
    for kind in type(shown).__mro__:
        if kind.__name__ in DISPLAYS:
            return DISPLAYS[kind.__name__](shown)
    raise TypeError(f"{type(shown).__name__} has no display")


def _audit(result: Any) -> Display:
    from unskew.report.plots.scores import reliability_figures

    sentence = f"{result.headline}{'' if result.headline.endswith('?') else '.'} {result.verdict}"
    noun, row = result.outcome_words
    words = {"predicted": f"predicted probability of a {noun}", "seen": f"share that was {row}"}
    sketches = {"raw": result.sketch}
    return Display(sentence, lambda: reliability_figures(sketches, **words), figures_table(result))


def _weights(result: Any) -> Display:
    from unskew.report.plots.scores import weights_figure

    sketches = {"raw": result.raw, "calibrated": result.calibrated}
    after = result.weights
    clipped = "" if after is None else f", {percent(after.clipped)} of them clipped at {after.p_min:g}"
    sentence = f"{counted(result.rows, 'row')} with weights{clipped}, calibrated by {result.chosen[0]}."
    return Display(sentence, lambda: [weights_figure(sketches)], weights_table(result))


def _monitor(result: Any) -> Display:
    from unskew.report.plots.over_time import heat_map

    sentence = f"{result.headline}. {result.verdict}"
    histories = histories_table(result, MOST_ROWS)
    return Display(sentence, lambda: [heat_map(result.histories, result.periods)], histories)


def _comparison(result: Any) -> Display:
    def figures() -> list[Figure]:
        charts: dict[str, list[DotRow]] = {}
        for difference in result.differences:
            dot = Dot(difference.advantage, difference.low, difference.high, filled=difference.decided)
            charts.setdefault(difference.metric, []).append(
                DotRow(f"{difference.better} before {difference.worse}", (dot,))
            )
        return [
            DotChart(metric(name).label, rows, "advantage, 95 %", rule=0.0).figure()
            for name, rows in charts.items()
        ]

    return Display(result.verdicts[0], figures, result.tables()[0])


def _plan(result: Any) -> Display:
    from unskew.report.plots.curves import plan_figure

    return Display(result.verdicts[0], lambda: [plan_figure(result.to_dict())], result.tables()[0])


def _run(result: Any) -> Display:
    from unskew.report.plots.methods import overview_figures

    metrics = result.metrics
    sentence = " ".join(answer.short for answer in result.findings)
    table = propensity_table(metrics["propensity"], units(metrics))
    if filled(metrics.get("methods")):
        table = methods_table(metrics, f"On {tested_on(metrics)}", SHOWN_METRICS)
    return Display(sentence, lambda: overview_figures(metrics=metrics, sketches=result.sketches), table)


def _calibrator(calibrator: Any) -> Display:
    learned = {
        name: getattr(calibrator, name)
        for name in calibrator.learned
        if isinstance(getattr(calibrator, name, None), int | float)
    }
    fitted = hasattr(calibrator, "rows_")
    words = f"{calibrator.name} calibrator, {'fitted' if fitted else 'not fitted'}."
    table = Table("", ("learned", "value"), tuple(learned.items())) if learned else None
    return Display(words, lambda: [_map(calibrator)] if fitted else [], table)


@styled
def _map(calibrator: Any) -> Figure:
    """Return what a calibrator makes of each score, on logit axes."""
    axis = Axis(0.001, 0.999, "logit")
    score = 1 / (1 + np.exp(-np.linspace(-6.9, 6.9, 200)))
    figure, axes = new_panel(f"Scores after {calibrator.name}")
    set_axis(axes, "x", axis._replace(label="score"))
    set_axis(axes, "y", axis._replace(label="calibrated"))
    axes.plot([axis.low, axis.high], [axis.low, axis.high], color=MUTED.light, linewidth=0.9)
    axes.plot(score, np.clip(calibrator.predict(score), axis.low, axis.high), color=AFTER.light)
    return figure


def _log(log: Any) -> Display:
    sentence = (
        f"{counted(len(log), 'row')} of {counted(log.n_users, 'user')} × {counted(log.n_items, 'item')}"
        f" ({log.space}), {counted(log.n_clicks, 'click')}, density {percent(log.density)}."
    )
    return Display(sentence, tuple, schema_table(log.schema_table()))


def _figures(figures: Mapping[str, Any]) -> Display:
    """Lay out the values of metrics seed by seed, or figures by kind."""
    if all(isinstance(of, Mapping) for of in figures.values()):
        sentence = "Figures of the propensities on held-out cells."
        return Display(sentence, tuple, propensity_table(figures))
    rows = []
    for name, values in figures.items():
        line = np.atleast_1d(values)
        rows.append((metric(name).label, line.mean(), line.std(ddof=1) if len(line) > 1 else None, len(line)))
    columns = ("metric", "mean", "deviation over seeds", "seeds")
    return Display(
        f"{len(rows)} metrics on the test log.", tuple, Table("", columns, rows, units={"seeds": "count"})
    )


DISPLAYS: Mapping[str, Callable[[Any], Display]] = {
    "AuditResult": _audit,
    "WeightsResult": _weights,
    "MonitorResult": _monitor,
    "Comparison": _comparison,
    "RandomPlan": _plan,
    "Result": _run,
    "Calibrator": _calibrator,
    "Log": _log,
    "Figures": _figures,
}
"""What lays out each class, by its name: packages below this one are not imported here."""
