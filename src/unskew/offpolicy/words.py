"""Comparisons and plans as text and as Markdown: tables, then verdicts, then notes."""

from __future__ import annotations

from collections.abc import Sequence

from unskew.report.text_tables import figure_table, markdown_table, text_of

Shown = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""A table: its title, columns and rows."""


def in_text(tables: Sequence[Shown], verdicts: Sequence[str], notes: Sequence[str]) -> str:
    """Return tables, verdicts and notes as plain text."""
    lines = [*verdicts, *(f"Note: {note}" for note in notes)]
    return text_of(*(figure_table(*table) for table in tables)) + "\n".join(lines)


def in_markdown(tables: Sequence[Shown], verdicts: Sequence[str], notes: Sequence[str]) -> str:
    """Return the same in Markdown."""
    shown = [
        line
        for title, columns, rows in tables
        for line in (f"{title}:", "", *markdown_table(columns, rows), "")
    ]
    return "\n".join([*shown, *(f"- {each}" for each in verdicts), *(f"- Note: {note}" for note in notes)])
