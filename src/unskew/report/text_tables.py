"""Tables for a terminal, as plain text and in Markdown: names on the left, figures on the right."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

TEXT_WIDTH = 110


def figure_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]] = ()) -> Table:
    """For ``rich.print``; further rows may be added."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table


def text_of(*tables: Table) -> str:
    """Tables as plain text, whatever the terminal."""
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=TEXT_WIDTH, color_system=None, highlight=False).print(*tables, sep="\n")
    return text.getvalue()


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> list[str]:
    """Lines of Markdown.

    Examples
    --------
    >>> print("\\n".join(markdown_table(("name", "n"), [("a", "1")])))
    | name | n |
    |---|---:|
    | a | 1 |
    """
    lines = [f"| {' | '.join(cells)} |" for cells in (columns, *rows)]
    rules = ["---" if number < text_columns else "---:" for number in range(len(columns))]
    return [lines[0], f"|{'|'.join(rules)}|", *lines[1:]]
