"""One table of results, for a terminal, a page and Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from unskew.base.plain_text import plain
from unskew.report.numbers import FORMATS

if TYPE_CHECKING:
    from rich.table import Table as RichTable

LONGEST_CAPTION = 4000
"""Characters of a title or a caption, which may be several sentences."""

DEEPEST_INDENT = 4
"""Blanks at the beginning of a cell that are kept; they set a row below another."""


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    Parameters
    ----------
    value
        The exact number behind the text; a page sorts by it and shows it on hover.
    aside
        A spread or an interval, shown small beside the text.
    mark
        A sign for what is remarkable: ▲ better, ▼ worse, ✗ off, ? undecided, * significant.
    """

    text: str
    value: float | None = None
    aside: str = ""
    mark: str = ""

    @property
    def full(self) -> str:
        """Return the cell in one line of text."""
        return f"{self.text} {self.aside}".rstrip() + self.mark


@dataclass(frozen=True)
class Table:
    """Rows and columns, with a title and a caption.

    Parameters
    ----------
    rows
        Words, numbers, which are formatted by the unit of their column, or cells.
    units
        The format of each column of numbers, by its heading (:data:`unskew.report.numbers.FORMATS`);
        four decimals by default.
    words
        How many of the first columns are words, set flush left.
    notes
        Whether the last column is a remark in words.

    Examples
    --------
    >>> table = Table("t", ("name", "share"), (("a", 0.125),), units={"share": "percent"})
    >>> print(table.markdown())
    | name | share |
    |---|---:|
    | a | 12 % |
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    words: int = 1
    notes: bool = False

    def __post_init__(self) -> None:
        for name in ("title", "caption"):
            object.__setattr__(self, name, plain(getattr(self, name), LONGEST_CAPTION))
        object.__setattr__(self, "columns", tuple(map(plain, self.columns)))

    @property
    def cells(self) -> list[list[Cell]]:
        """Return the rows with every entry as a cell."""
        units = [self.units.get(name, "number") for name in self.columns]
        return [[_cell(entry, unit) for entry, unit in zip(row, units, strict=True)] for row in self.rows]

    @property
    def numeric(self) -> list[bool]:
        """Return for each column whether it holds numbers."""
        last = len(self.columns) - self.notes
        return [self.words <= number < last for number in range(len(self.columns))]

    def rich(self) -> RichTable:
        """Return the table for ``rich.print``: asides stand below their numbers, and remarks are left out."""
        from rich.box import SIMPLE
        from rich.table import Table as RichTable
        from rich.text import Text

        # Text objects, because rich reads brackets in plain strings as markup.
        table = RichTable(
            title=Text(self.title, "table.title"),
            title_justify="left",
            caption=Text(self.caption, "table.caption") if self.caption else None,
            caption_justify="left",
            box=SIMPLE,
            show_edge=False,
            pad_edge=False,
        )
        shown = len(self.columns) - self.notes
        for name, is_number in zip(self.columns[:shown], self.numeric, strict=False):
            table.add_column(Text(name), justify="right" if is_number else "left")
        for row in self.cells:
            lines = [Text(cell.text + cell.mark) for cell in row[:shown]]
            for line, cell in zip(lines, row, strict=False):
                line.append(f"\n{cell.aside}" if cell.aside else "", "dim")
            table.add_row(*lines)
        return table

    def fitting(self, width: int) -> list[Table]:
        """Split a table that is wider than a terminal into tables with the same first columns.

        Examples
        --------
        >>> [some.columns for some in Table("t", ("name", "a", "b"), (("x", 1, 2),)).fitting(16)]
        [('name', 'a'), ('name', 'b')]
        """
        cells = self.cells
        widths = [
            3 + max(len(text) for cell in column for text in (name, cell.text + cell.mark, cell.aside))
            for name, *column in zip(self.columns, *cells, strict=True)
        ]
        first, groups = range(self.words), [[]]  # type: tuple[range, list[list[int]]]
        for column in range(self.words, len(self.columns)):
            if groups[-1] and sum(widths[at] for at in (*first, *groups[-1], column)) > width:
                groups.append([])
            groups[-1].append(column)
        return [
            replace(
                self,
                columns=[self.columns[at] for at in (*first, *group)],
                rows=[[row[at] for at in (*first, *group)] for row in cells],
                notes=self.notes and group[-1] == len(self.columns) - 1,
            )
            for group in groups
        ]

    def markdown(self) -> str:
        """Return the rows as Markdown; the title and the caption are left to the page."""
        rules = ["---:" if is_number else "---" for is_number in self.numeric]
        lines = [self.columns, *([cell.full.replace("|", "\\|") for cell in row] for row in self.cells)]
        first, *others = (f"| {' | '.join(line)} |" for line in lines)
        return "\n".join((first, f"|{'|'.join(rules)}|", *others))

    def html(self, *, sort: bool = False) -> str:
        """Return a ``<table>`` with its title as its caption, escaped."""
        from unskew.report.page import table_html

        return table_html(self, sort=sort)


def _cell(entry: Any, unit: str) -> Cell:
    if isinstance(entry, str):
        indent = len(entry) - len(entry.lstrip(" "))
        return Cell(" " * min(indent, DEEPEST_INDENT) + plain(entry.lstrip(" ")))
    if isinstance(entry, Cell):
        return replace(entry, text=plain(entry.text) if entry.text.strip() else entry.text)
    return Cell(FORMATS[unit](entry), None if entry is None or math.isnan(entry) else float(entry))


def text_of(tables: Sequence[Table], lines: Sequence[str] = (), width: int = 110) -> str:
    """Return tables and the lines below them as plain text."""
    import io

    from rich.console import Console

    text = io.StringIO()
    console = Console(file=text, width=width, color_system=None, highlight=False, markup=False)
    console.print(*(table.rich() for table in tables), sep="\n")
    return text.getvalue() + "\n".join(lines)


def markdown_of(tables: Sequence[Table], lines: Sequence[str] = ()) -> str:
    """Return tables and the lines below them, as a list, in Markdown."""
    shown = [f"{table.title}:\n\n{table.markdown()}\n" for table in tables]
    return "\n".join((*shown, *(f"- {line}" for line in lines)))


def settings_of(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested settings as dotted names and text.

    Examples
    --------
    >>> settings_of({"data": {"rows": 1200, "fields": [{"name": "age", "kind": "number"}]}})
    [('data.rows', '1,200'), ('data.fields', 'age (number)')]
    """
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += settings_of(value, f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)):
            rows.append((f"{prefix}{name}", ", ".join(map(_setting, value))))
        else:
            rows.append((f"{prefix}{name}", _setting(value)))
    return rows


def _setting(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value['name']} ({value['kind']})" if {"name", "kind"} <= value.keys() else str(value)
    if value is None:
        return FORMATS["number"](None)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:.6g}" if isinstance(value, float) else f"{value:,}"
