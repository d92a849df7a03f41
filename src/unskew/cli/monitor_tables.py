"""The result of a monitor on a terminal."""

from __future__ import annotations

import math

from unskew.audit.monitor import MonitorResult, SegmentHistory
from unskew.base.plain_text import plain
from unskew.cli.console import plain_console, print_verdict
from unskew.report.text_tables import figure_table

SHOWN = 10


def print_monitor(result: MonitorResult) -> None:
    """Verdict, and the worst segments."""
    console = plain_console()
    judged = [each for each in result.periods if each not in result.open]
    console.print(
        f"{plain(result.store)}: {result.whole.rows:,} rows in {len(judged):,} closed periods,"
        f" {plain(judged[0])} to {plain(judged[-1])}\n"
    )
    print_verdict(console, result)
    title = (
        "All rows" if not result.segments else f"All rows, and the worst of {len(result.segments):,} segments"
    )
    shown = result.histories[: SHOWN + 1]
    rows = [(plain(history.name), f"{history.rows:,}", *_row(history)) for history in shown]
    console.print(figure_table(title, ("", "rows", "o/p̂, last", "off", "in", "would see"), rows))


def _row(history: SegmentHistory) -> tuple[str, str, str, str]:
    closed = [each for each in history.periods if each.closed]
    last = f"{closed[-1].ratio:.3f}" if closed else "–"
    since, what = "", {"honest": "honest", "too few rows": "undecided"}.get(history.judgement.reason, "")
    if history.breaks:
        found = history.breaks[-1]
        since = f"{found.first} to {found.last}" if found.over else found.first
        what = found.kind
    factor = history.smallest_now
    return last, since, what, f"× {factor:.2f}" if math.isfinite(factor) else "–"
