"""The first screen of a study's page: what its models promise, as a picture and in one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.files import write_text
from unskew.metrics.registry import CONVERSION_METRICS, PROPENSITY_METRICS, metric
from unskew.metrics.reliability import Promise
from unskew.report.cost import excess_words
from unskew.report.numbers import brief, number
from unskew.report.page import picture, render
from unskew.report.plots.dots import Dot, DotChart, DotRow
from unskew.report.table import Table
from unskew.study.grid import Row
from unskew.study.table import Figure, StudySummary

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

LEVEL = "mean_over_rate"
SHARE = 1000.0
"""Conversions that a sentence counts on: a study has several test sets, of any size."""
MOST_ROWS = 40
"""Rows of a chart; the tables have all."""


@dataclass(frozen=True)
class FirstScreen:
    """What stands above the tables of a page: one sentence, charts, and figures by name."""

    cost: str = ""
    charts: tuple[DotChart, ...] = ()
    caption: str = ""
    figures: Mapping[str, Sequence[Drawing]] = field(default_factory=dict)


def first_screen(
    methods: StudySummary | None, propensities: StudySummary | None, baseline: str
) -> FirstScreen:
    """What a study's models promise and in what order they put pairs; of propensities alone, their errors."""
    if methods is not None and LEVEL in methods.metrics:
        return FirstScreen(
            cost=cost_sentence(methods, baseline),
            charts=tuple(first_charts(methods, LEVEL, "auc", baseline=baseline)),
            caption="The line is the actual number of conversions; bars are 95 % intervals over test users.",
        )
    if propensities is None:
        return FirstScreen()
    return FirstScreen(
        cost="Propensities alone were studied: what models promise too many or too few is undecided.",
        charts=tuple(first_charts(propensities, "wce", "ece")),
        caption="Errors of weights and of scores on held-out cells; bars: one standard deviation over seeds.",
    )


def first_charts(summary: StudySummary, *metrics: str, baseline: str = "") -> list[DotChart]:
    """A chart of each of these metrics that the summary has: means with intervals over test users, or, of
    what is not measured on users, over seeds."""
    return [_chart(summary, name, baseline) for name in metrics if name in summary.metrics]


def cost_sentence(summary: StudySummary, baseline: str) -> str:
    """What the baseline predicts too many or too few for 1,000 conversions that occurred, and who is nearest;
    empty where no level was measured."""
    known = {row: _promise(figures[LEVEL]) for row, figures in summary.rows.items() if LEVEL in figures}
    known = {row: each for row, each in known.items() if math.isfinite(each.promised)}
    said = []
    for dataset in dict.fromkeys(row.dataset for row in known):
        of_dataset = {row: each for row, each in known.items() if row.dataset == dataset}
        first = next((row for row in of_dataset if row.method == baseline), None)
        nearest = min(of_dataset, key=lambda row: abs(of_dataset[row].excess))
        shown = [row for row in dict.fromkeys((first, nearest)) if row is not None]
        each = [f"{_called(row, summary)} predicts {excess_words(of_dataset[row])}" for row in shown]
        said.append(f"on {dataset}, {', and nearest, '.join(each)}")
    return f"For every {number(SHARE, 0)} conversions that occurred, {'; '.join(said)}." if said else ""


def _promise(figure: Figure) -> Promise:
    low, high = _limits(figure)
    predicted = SHARE * figure.mean
    return Promise(predicted, SHARE, predicted - SHARE * (high - 1), predicted - SHARE * (low - 1))


def _limits(figure: Figure) -> tuple[float, float]:
    """Over test users where they were resampled; NaN where they were not."""
    if figure.users is None or figure.users["low"] is None or figure.users["high"] is None:
        return math.nan, math.nan
    return figure.users["low"], figure.users["high"]


def _chart(summary: StudySummary, name: str, baseline: str) -> DotChart:
    about = CONVERSION_METRICS.get(name) or PROPENSITY_METRICS.get(name) or metric(name)
    scale = SHARE if name == LEVEL else 1.0
    rows = []
    for row, figures in list(summary.rows.items())[:MOST_ROWS]:
        figure = figures.get(name)
        if figure is None:
            continue
        low, high = _limits(figure)
        if math.isnan(low) and not math.isnan(figure.std):
            low, high = figure.mean - figure.std, figure.mean + figure.std
        value, low, high = scale * figure.mean, scale * low, scale * high
        called = _called(row, summary)
        text = number(value, 0) if name == LEVEL else brief(value)
        dot = Dot(value, low, high, look=_look(row, baseline))
        rows.append(DotRow(called, (dot,), text))
    title = f"Conversions predicted for {number(SHARE, 0)} that occurred" if name == LEVEL else about.label
    rule = scale if about.goal == "one" else None
    return DotChart(title, rows, rule=rule, note="" if name == LEVEL else about.advice)


def _look(row: Row, baseline: str) -> str:
    if baseline and row.method == baseline:
        return "naive"
    return "raw" if row.calibrator == "none" else "calibrated"


def _called(row: Row, summary: StudySummary) -> str:
    """What tells a row from the others."""
    fields: Sequence[str] = ("method", "propensity", "calibrator", "dataset", "protocol")
    names = [name for name in fields if len({getattr(each, name) for each in summary.rows}) > 1]
    words = [getattr(row, name) for name in names or ["method"]]
    return " · ".join(word for word in words if word) or row.propensity


def write_pages(
    folder: Path,
    title: str,
    tables: Sequence[Table],
    notes: Sequence[str],
    first: FirstScreen | None = None,
) -> None:
    """Write tables as files to read: ``tables.md`` and ``tables.html``."""
    markdown = [f"# {title}", "\n".join(f"- {note}" for note in notes)]
    for each in tables:
        markdown += [f"## {each.title}", each.markdown(), each.caption]
    texts = {
        "tables.md": "\n\n".join(markdown) + "\n",
        "tables.html": _page(title, tables, notes, first or FirstScreen()),
    }
    for name, text in texts.items():
        write_text(folder / name, text)


def _page(title: str, tables: Sequence[Table], notes: Sequence[str], first: FirstScreen) -> str:
    return render(
        "tables.html.j2",
        title=f"{title} · unskew study",
        heading=f"Study: {title}" if " " not in title else title,
        cost=first.cost,
        caption=first.caption,
        picture=picture("overview", [chart.figure() for chart in first.charts]) if first.charts else None,
        figures=[picture(name, figures) for name, figures in first.figures.items()],
        tables=tables,
        notes=list(notes),
    )
