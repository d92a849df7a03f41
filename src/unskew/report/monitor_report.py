"""The report of a monitor as one HTML file: a heat map, small multiples over time, and the worst segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unskew.base.plain_text import plain
from unskew.metrics.reliability import counted_promise
from unskew.report.audit_report import TONES
from unskew.report.audit_tables import breaks_table, histories_table
from unskew.report.facts import excess_words
from unskew.report.numbers import number
from unskew.report.page import picture, render
from unskew.report.plots.over_time import (
    MOST_PERIODS,
    MOST_SEGMENTS,
    heat_map,
    history_figure,
    shared_reach,
)

if TYPE_CHECKING:
    from unskew.audit.monitor import MonitorResult

MULTIPLES = 12
"""Small figures: all rows, and the worst segments."""


def render_monitor_report(result: MonitorResult) -> str:
    """Return one HTML file that opens offline and shows what a monitor found."""
    drawn = result.histories[:MULTIPLES]
    reach = shared_reach(drawn)
    small = [history_figure(each, result.periods, tolerance=result.tolerance, reach=reach) for each in drawn]
    off = [history for history in result.histories if history.breaks]
    return render(
        "monitor.html.j2",
        title=f"{result.settings.roles.score} against {result.settings.roles.outcome} · unskew monitor",
        result=result,
        cost=_cost(result),
        tone=TONES[result.healthy],
        heat=picture("heat", [heat_map(result.histories, result.periods)]),
        most_segments=MOST_SEGMENTS,
        most_periods=MOST_PERIODS,
        multiples=picture("multiples", small),
        worst=breaks_table(off) if off else None,
        seen=histories_table(result, MOST_SEGMENTS),
    )


def _cost(result: MonitorResult) -> dict[str, Any]:
    """Count clicks predicted too many or too few: where scores broke last, else over all closed periods."""
    broken = [history for history in result.histories if history.breaks and not history.breaks[-1].over]
    history = broken[0] if broken else result.whole
    since = plain(history.breaks[-1].first) if broken else ""
    periods = [period for period in history.periods if period.closed]
    if broken:
        first = [period.period for period in periods].index(history.breaks[-1].first)
        periods = periods[first:]
    promised, came, rows = (
        sum(getattr(period, name) for period in periods) for name in ("expected", "clicks", "rows")
    )
    if result.settings.roles.weight:
        # Effective rows are not counted by period, so no interval is known.
        excess = f"{number(abs(promised - came), 0)} too {'many' if promised > came else 'few'} (undecided)"
    else:
        excess = excess_words(counted_promise(promised, came, rows), result.tolerance)
    counts = {"promised": promised, "came": came, "rows": rows, "excess": excess}
    return {"name": plain(history.name), "since": since, **counts}
