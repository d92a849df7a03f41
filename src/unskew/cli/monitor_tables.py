"""The result of a monitor on a terminal."""

from __future__ import annotations

import math

from rich.table import Table
from rich.text import Text

from unskew.audit.monitor import MonitorResult, SegmentHistory
from unskew.cli.console import plain_console
from unskew.plain_text import plain

SHOWN = 10

_STYLE = {True: "bold green", None: "bold yellow", False: "bold red"}


def print_monitor(result: MonitorResult) -> None:
    """Verdict, and the worst segments."""
    console = plain_console()
    judged = [each for each in result.periods if each not in result.open]
    console.print(
        f"{plain(result.store)}: {result.whole.rows:,} rows in {len(judged):,} closed periods,"
        f" {plain(judged[0])} to {plain(judged[-1])}\n"
    )
    console.print(Text.assemble((f"{result.headline}.", _STYLE[result.healthy]), " ", result.verdict))
    console.print()
    title = (
        "All rows" if not result.segments else f"All rows, and the worst of {len(result.segments):,} segments"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in ("rows", "o/p̂, last", "off", "in", "would see"):
        table.add_column(name, justify="right")
    for history in result.histories[: SHOWN + 1]:
        table.add_row(plain(history.name), f"{history.rows:,}", *_row(history))
    console.print(table)


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
