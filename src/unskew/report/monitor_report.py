"""The report of a monitor: a heat map, small multiples over time, and the worst ten, in one HTML file."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from unskew.base.plain_text import plain
from unskew.metrics.promise import counted_promise
from unskew.report.cost import excess_words
from unskew.report.html_tables import HtmlCell, HtmlRow, HtmlTable, number_cell
from unskew.report.page import picture, render
from unskew.report.plots.over_time import (
    MOST_PERIODS,
    MOST_SEGMENTS,
    heat_map,
    history_figure,
    shared_reach,
)
from unskew.report.words import brief, counted, number, percent

if TYPE_CHECKING:
    from unskew.audit.monitor import MonitorResult, SegmentHistory

MULTIPLES = 12
"""Small figures: all rows, and the worst segments."""

WORST = 10


def render_monitor_report(result: MonitorResult) -> str:
    """Return one HTML file that opens offline and shows what a monitor found."""
    drawn = result.histories[:MULTIPLES]
    reach = shared_reach(drawn)
    small = [history_figure(each, result.periods, tolerance=result.tolerance, reach=reach) for each in drawn]
    off = [each for each in result.histories if each.breaks]
    return render(
        "monitor.html.j2",
        title=f"{result.settings.roles.score} against {result.settings.roles.outcome} · unskew monitor",
        cost=_cost(result),
        tone={True: "good", None: "open", False: "bad"}[result.healthy],
        headline=result.headline,
        verdict=result.verdict,
        data_line=_data_line(result),
        heat=picture("heat", _heat_caption(result), [heat_map(result.histories, result.periods)]),
        multiples=picture("multiples", _multiples_caption(result), small),
        worst=_worst(off) if off else None,
        seen=_seen(result),
        columns=_settings(result),
        rule=_rule(result),
    )


def _cost(result: MonitorResult) -> str:
    """Clicks promised too many or too few: where scores broke last, else over all closed periods."""
    broken = [each for each in result.histories if each.breaks and not each.breaks[-1].over]
    history = broken[0] if broken else result.whole
    periods = [each for each in history.periods if each.closed]
    since = ""
    if broken:
        found = history.breaks[-1]
        first = [each.period for each in periods].index(found.first)
        periods, since = periods[first:], f" since {plain(found.first)}"
    promised, came = (sum(getattr(each, name) for each in periods) for name in ("expected", "clicks"))
    rows = sum(each.rows for each in periods)
    if result.settings.roles.weight:
        # Effective rows are not kept by period, so that no interval is known.
        off = f"{number(abs(promised - came), 0)} too {'many' if promised > came else 'few'} (undecided)"
    else:
        off = excess_words(counted_promise(promised, came, rows), result.tolerance)
    return (
        f"{result.headline}: for {plain(history.name)}{since} the scores promise {number(promised, 0)} clicks"
        f" on {counted(rows, 'row')} and {number(came, 0)} came: {off}."
    )


def _data_line(result: MonitorResult) -> str:
    closed = len(result.periods) - len(result.open)
    return (
        f"{plain(result.store)}: {counted(result.whole.rows, 'row')} in {counted(closed, 'closed period')},"
        f" {counted(len(result.open), 'open one')}, {counted(len(result.segments), 'segment')}."
    )


def _heat_caption(result: MonitorResult) -> str:
    more = len(result.histories) - MOST_SEGMENTS
    rest = f" {counted(more, 'further segment')} of the least evidence are left out." if more > 0 else ""
    late = f" The last {MOST_PERIODS} periods." if len(result.periods) > MOST_PERIODS else ""
    return (
        "Colour is the weight-calibration error beyond what noise alone shows: orange where weights are too"
        " large, blue where they are too small. A frame is what was found to be off, under daily looking and"
        f" over all segments; a dot is a period whose outcomes may still come in.{rest}{late}"
    )


def _multiples_caption(result: MonitorResult) -> str:
    return (
        f"Mean o/p̂ of each period with its 95 % interval; 1 is honest, the band is the tolerance of"
        f" {percent(result.tolerance)}, shaded is what was found to be off. One scale for all. Intervals of"
        " one period miss 1 in one of twenty honest cases: they are no test."
    )


def _worst(off: list[SegmentHistory]) -> HtmlTable:
    rows = []
    for history in off[:WORST]:
        found = history.breaks[-1]
        since = f"{found.first} to {found.last}" if found.over else f"since {found.first}"
        interval = f"{number(found.low, 2)} to {number(found.high, 2)}"
        money = HtmlCell("–") if found.money is None else number_cell(found.money, 0)
        rows.append(
            HtmlRow(
                plain(history.name),
                (
                    HtmlCell(since),
                    HtmlCell(found.found),
                    HtmlCell(found.kind),
                    number_cell(found.ratio, 3, interval),
                    number_cell(found.slope, 2),
                    number_cell(found.weight_error, 0, percent(abs(found.weight_share))),
                    number_cell(found.click_error, 0),
                    money,
                    HtmlCell(f"10^{found.log_evidence / math.log(10):.0f}", found.log_evidence),
                ),
            )
        )
    heads = (
        "off",
        "found",
        "in",
        "mean o/p̂",
        "slope",
        "Σ weights − rows",
        "clicks − expected",
        "money",
        "evidence",
    )
    return HtmlTable(heads, tuple(rows))


def _seen(result: MonitorResult) -> HtmlTable:
    def factor(value: float) -> HtmlCell:
        return HtmlCell(f"× {value:.2f}", value) if math.isfinite(value) else HtmlCell("none")

    words = {"off": "off", "over": "honest again", "honest": "honest", "too few rows": "undecided"}
    rows = [
        HtmlRow(
            plain(each.name),
            (
                number_cell(each.rows, 0),
                HtmlCell(words[each.judgement.reason]),
                factor(each.smallest_now),
                factor(each.smallest_so_far),
            ),
        )
        for each in result.histories[:MOST_SEGMENTS]
    ]
    return HtmlTable(("rows", "now", "seen in one period", "seen from the start"), tuple(rows))


def _settings(result: MonitorResult) -> list[tuple[str, str]]:
    roles, by = result.settings.roles, result.settings.by
    named = [("Score", roles.score), ("Outcome", roles.outcome)]
    named += [("Weight", roles.weight)] if roles.weight else []
    named += [("Segments", ", ".join(roles.segments))] if roles.segments else []
    period = f"{by.unit} of {by.column} ({result.settings.zone})" if by.unit else by.column
    return [
        *named,
        ("Periods", period),
        ("Maturity", result.settings.maturity or "none"),
        ("Tolerance", percent(result.tolerance)),
        ("Significance", brief(result.significance, 2)),
    ]


def _rule(result: MonitorResult) -> str:
    return (
        f"Off means: the evidence that weights are beyond the tolerance, {percent(result.tolerance)}, reached"
        f" what honest scores reach with a chance of {percent(result.significance)} at most, over all"
        " segments and however often one looks (test martingales, Ville's inequality). A change counts as"
        " seen if it would be found in 80 % of cases. Rows are taken to be independent."
    )
