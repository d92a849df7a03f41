"""The pages of a study: a picture first, then its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.files import write_text
from unskew.metrics.registry import CONVERSION_METRICS, PROPENSITY_METRICS, metric
from unskew.report.numbers import brief, real
from unskew.report.page import picture, render
from unskew.report.plots.dots import Dot, DotChart, DotRow
from unskew.report.table import Table
from unskew.study.table import StudySummary

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

LEVEL = "mean_over_rate"
MOST_ROWS = 40
"""Rows of a chart; the tables have all."""


@dataclass(frozen=True)
class FirstScreen:
    """The top of a page, above its tables: charts, and figures by name."""

    charts: tuple[DotChart, ...] = ()
    caption: str = ""
    figures: Mapping[str, Sequence[Drawing]] = field(default_factory=dict)


def first_screen(
    methods: StudySummary | None, propensities: StudySummary | None, baseline: str
) -> FirstScreen:
    """Return what a study's models predict and how they rank; of propensities alone, their errors."""
    if methods is not None and LEVEL in methods.metrics:
        charts = [_chart(methods, name, baseline) for name in (LEVEL, "auc") if name in methods.metrics]
        caption = "At 1 all conversions are predicted; bars are 95 % intervals over test users."
        return FirstScreen(tuple(charts), caption)
    if propensities is None:
        return FirstScreen()
    charts = [_chart(propensities, name, "") for name in ("wce", "ece") if name in propensities.metrics]
    caption = "Errors of weights and of scores on held-out cells; bars are one standard deviation over seeds."
    return FirstScreen(tuple(charts), caption)


def _chart(summary: StudySummary, name: str, baseline: str) -> DotChart:
    """Return a row for each line of a summary: its mean, with the interval over users or one deviation."""
    about = CONVERSION_METRICS.get(name) or PROPENSITY_METRICS.get(name) or metric(name)
    fields = ("method", "propensity", "calibrator", "dataset", "protocol")
    varying = [one for one in fields if len({getattr(row, one) for row in summary.rows}) > 1] or ["method"]
    rows = []
    for row, figures in list(summary.rows.items())[:MOST_ROWS]:
        if (figure := figures.get(name)) is None:
            continue
        low, high = figure.mean - figure.std, figure.mean + figure.std
        if figure.users is not None:
            low, high = (real(figure.users[end]) for end in ("low", "high"))
        look = "raw" if row.calibrator == "none" else "calibrated"
        dot = Dot(figure.mean, low, high, look="naive" if baseline and row.method == baseline else look)
        words = " · ".join(filter(None, (getattr(row, one) for one in varying)))
        rows.append(DotRow(words or row.propensity, (dot,), brief(figure.mean)))
    return DotChart(about.label, rows, rule=1.0 if about.goal == "one" else None, note=about.advice)


def write_pages(
    folder: Path,
    title: str,
    tables: Sequence[Table],
    notes: Sequence[str],
    first: FirstScreen | None = None,
) -> None:
    """Write tables as files to read: ``tables.md`` and ``tables.html``."""
    markdown = [f"# {title}", "\n".join(f"- {note}" for note in notes)]
    for table in tables:
        markdown += [f"## {table.title}", table.markdown(), table.caption]
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
        caption=first.caption,
        picture=picture("overview", [chart.figure() for chart in first.charts]) if first.charts else None,
        figures=[picture(name, figures) for name, figures in first.figures.items()],
        tables=tables,
        notes=list(notes),
    )
