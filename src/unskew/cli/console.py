"""The console: text is printed as it is, without markup or emoji in a user's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from unskew.base.plain_text import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from unskew.audit.actions import ActionsResult
    from unskew.audit.audit_result import AuditResult
    from unskew.audit.monitor import MonitorResult
    from unskew.report.table import Table

Shown: TypeAlias = "Table | Text | str"
"""What is printed."""

LONGEST_LINE = 4000
"""Characters of a line, which may be several sentences."""

STYLES = {True: "bold green", None: "bold yellow", False: "bold red"}
"""Of a headline: healthy, undecided, not healthy."""


def plain_console(least_width: int = 0) -> Console:
    """Return a console that reads no markup and no emoji into what it prints."""
    from rich.console import Console

    class PlainConsole(Console):
        """Every text that is not styled by us passes here, those in the cells of a table too."""

        def render_str(self, text: str, **options: Any) -> Text:
            lines = text.split("\n")
            return super().render_str("\n".join(plain(line, LONGEST_LINE) for line in lines), **options)

    console = PlainConsole(highlight=False, markup=False, emoji=False)
    console.width = max(console.width, least_width)
    return console


def show(*shown: Shown, dim: bool = False, least_width: int = 0) -> None:
    """Print tables, each with a line below it, and lines of text."""
    console = plain_console(least_width)
    for part in shown:
        if isinstance(part, str) or not hasattr(part, "rich"):
            console.print(part, style="dim" if dim else None, soft_wrap=True)
        else:
            console.print(part.rich(), "")


def verdict_of(result: AuditResult | ActionsResult | MonitorResult) -> Text:
    """Return the headline in its colour, and the verdict."""
    from rich.text import Text

    stop = "" if result.headline.endswith("?") else "."
    return Text.assemble((f"{result.headline}{stop}", STYLES[result.healthy]), " ", f"{result.verdict}\n")


def show_findings(findings: Any) -> None:
    """Print the tables, the verdicts and the notes of a comparison or a plan."""
    show(*findings.tables(), *(f"· {verdict}" for verdict in findings.verdicts))
    show(*(f"Note: {note}" for note in findings.notes), dim=True)
