"""The console: text is printed as it is, without markup or emoji in a user's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unskew.base.plain_text import plain

if TYPE_CHECKING:
    from rich.console import Console

    from unskew.audit.actions import ActionsResult
    from unskew.audit.audit_result import AuditResult
    from unskew.audit.monitor import MonitorResult

LONGEST_LINE = 4000
"""Characters of a line, which may be several sentences."""

STYLES = {True: "bold green", None: "bold yellow", False: "bold red"}
"""Of a headline: healthy, undecided, not healthy."""


def plain_console(least_width: int = 0) -> Console:
    """A console that reads no markup and no emoji into what it prints."""
    from rich.console import Console
    from rich.text import Text

    class PlainConsole(Console):
        """Every text that is not styled by us passes here, those in the cells of a table too."""

        def render_str(self, text: str, **options: Any) -> Text:
            lines = text.split("\n")
            return super().render_str("\n".join(plain(line, LONGEST_LINE) for line in lines), **options)

    console = PlainConsole(highlight=False, markup=False, emoji=False)
    console.width = max(console.width, least_width)
    return console


def print_verdict(console: Console, result: AuditResult | ActionsResult | MonitorResult) -> None:
    """The headline in its colour, and the verdict."""
    from rich.text import Text

    stop = "" if result.headline.endswith("?") else "."
    console.print(Text.assemble((f"{result.headline}{stop}", STYLES[result.healthy]), " ", result.verdict))
    console.print()


def print_findings(findings: Any) -> None:
    """Print the tables, the verdicts and the notes of a comparison or a plan."""
    console = plain_console()
    for table in findings.tables():
        console.print(table.rich())
    for verdict in findings.verdicts:
        console.print(f"· {verdict}")
    for note in findings.notes:
        console.print(f"Note: {note}", style="dim")
