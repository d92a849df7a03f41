"""The result of a monitor on a terminal."""

from __future__ import annotations

from unskew.audit.monitor import MonitorResult
from unskew.base.plain_text import plain
from unskew.cli.console import plain_console, print_verdict
from unskew.report.audit_tables import histories_table

SHOWN = 10


def print_monitor(result: MonitorResult) -> None:
    """Print the verdict and the worst segments."""
    console = plain_console()
    judged = [each for each in result.periods if each not in result.open]
    console.print(
        f"{plain(result.store)}: {result.whole.rows:,} rows in {len(judged):,} closed periods,"
        f" {plain(judged[0])} to {plain(judged[-1])}\n"
    )
    print_verdict(console, result)
    console.print(histories_table(result, SHOWN + 1).rich())
