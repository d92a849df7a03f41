"""A small table of results as people read it: on a terminal, in Markdown, LaTeX or HTML."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.files import write_text
from unskew.base.plain_text import plain
from unskew.report.text_tables import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from unskew.report.plots.dots import DotChart

DEEPEST = 4
"""Blanks at the beginning of a cell that are kept: they set a row below another."""

LONGEST_CAPTION = 4000
"""Characters of a title or a caption, which are whole sentences."""


@dataclass(frozen=True)
class Shown:
    """Texts in rows and columns.

    Parameters
    ----------
    text_columns
        How many of the first columns are words, set flush left; the others are numbers.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    text_columns: int = 1

    def __post_init__(self) -> None:
        for name in ("title", "caption"):
            object.__setattr__(self, name, plain(getattr(self, name), LONGEST_CAPTION))
        object.__setattr__(self, "columns", tuple(map(plain, self.columns)))
        object.__setattr__(self, "rows", tuple(tuple(map(_cell, row)) for row in self.rows))

    def rich(self) -> Table:
        """For ``rich.print``."""
        from rich.table import Table
        from rich.text import Text

        # Not plain strings, whose brackets rich would read as marks of its own.
        title, caption = Text(self.title, "table.title"), Text(self.caption, "table.caption")
        table = Table(
            title=title,
            title_justify="left",
            caption=caption if self.caption else None,
            caption_justify="left",
        )
        for number, name in enumerate(self.columns):
            table.add_column(Text(name), justify="left" if number < self.text_columns else "right")
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table

    def fitting(self, width: int) -> list[Shown]:
        """Parts of the table that fit a terminal, each with the columns of words and some of the others.

        Examples
        --------
        >>> [part.columns for part in Shown("t", ("name", "a", "b"), (("x", "1.0", "2.0"),)).fitting(16)]
        [('name', 'a'), ('name', 'b')]
        """
        widths = [max(map(len, cells)) + 3 for cells in zip(self.columns, *self.rows, strict=True)]
        free = width - 1 - sum(widths[: self.text_columns])
        parts: list[list[int]] = [[]]
        for number in range(self.text_columns, len(self.columns)):
            if parts[-1] and sum(widths[each] for each in (*parts[-1], number)) > free:
                parts.append([])
            parts[-1].append(number)
        words = range(self.text_columns)
        return [
            replace(
                self,
                columns=tuple(self.columns[each] for each in (*words, *part)),
                rows=tuple(tuple(row[each] for each in (*words, *part)) for row in self.rows),
            )
            for part in parts
        ]

    def markdown(self) -> str:
        """For a page of the documentation; the title and the caption are left to the page.

        Examples
        --------
        >>> print(Shown("t", ("name", "n"), (("a", "1"),)).markdown())
        | name | n |
        |---|---:|
        | a | 1 |
        """
        return "\n".join(markdown_table(self.columns, self.rows, self.text_columns))

    def latex(self) -> str:
        r"""A ``table`` environment; needs the package booktabs.

        Examples
        --------
        >>> print(Shown("t", ("name", "n"), (("a_b", "1 ± 2"),)).latex())
        \begin{table}
        \caption{t}
        \begin{tabular}{lr}
        \toprule
        name & n \\
        \midrule
        a\_b & $1 \pm 2$ \\
        \bottomrule
        \end{tabular}
        \end{table}
        """
        texts, numbers = self.text_columns, len(self.columns) - self.text_columns
        title = f"{self.title} ({self.caption})" if self.caption else self.title
        return "\n".join(
            [
                "\\begin{table}",
                f"\\caption{{{_latex_text(title)}}}",
                f"\\begin{{tabular}}{{{'l' * texts}{'r' * numbers}}}",
                "\\toprule",
                f"{' & '.join(map(_latex_text, self.columns))} \\\\",
                "\\midrule",
                *(
                    " & ".join([*map(_latex_text, row[:texts]), *map(_latex_number, row[texts:])]) + " \\\\"
                    for row in self.rows
                ),
                "\\bottomrule",
                "\\end{tabular}",
                "\\end{table}",
            ]
        )

    def html(self) -> str:
        """A ``<table>`` with its caption, to be put into a page.

        Examples
        --------
        >>> print(Shown("t", ("name", "n"), (("a & b", "1"),)).html().splitlines()[4])
        <tr><td>a &amp; b</td><td class="number">1</td></tr>
        """
        title = f"{self.title} ({self.caption})" if self.caption else self.title
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(f"<tr>{self._html_cells(row)}</tr>\n" for row in self.rows)
        return (
            f"<table>\n<caption>{html.escape(title)}</caption>\n<thead><tr>{head}</tr></thead>\n"
            f"<tbody>\n{body}</tbody>\n</table>\n"
        )

    def _html_cells(self, row: tuple[str, ...]) -> str:
        return "".join(
            f"<td>{html.escape(cell)}</td>"
            if number < self.text_columns
            else f'<td class="number">{html.escape(cell)}</td>'
            for number, cell in enumerate(row)
        )


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{mark: rf"\{mark}" for mark in "&%$#_{}"},
    "±": r"$\pm$",
    "–": "--",
    "−": "$-$",
    "²": "$^2$",
    "÷": r"$\div$",
    "×": r"$\times$",
    # No font of plain LaTeX has it.
    "⚠": r"$^{\dagger}$",
}


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(mark, mark) for mark in text)


def _latex_number(text: str) -> str:
    if "±" not in text:
        return _latex_text(text)
    value, star = (text[:-1], "^{*}") if text.endswith("*") else (text, "")
    return f"${value.replace('±', chr(92) + 'pm').strip()}{star}$"


def _cell(text: str) -> str:
    indent = len(text) - len(text.lstrip(" "))
    return " " * min(indent, DEEPEST) + plain(text.lstrip(" "))


@dataclass(frozen=True)
class FirstScreen:
    """What stands above the tables of a page: one sentence, charts, and figures by name."""

    cost: str = ""
    charts: tuple[DotChart, ...] = ()
    caption: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)


def write_pages(
    folder: Path,
    title: str,
    tables: Sequence[Shown],
    notes: Sequence[str],
    first: FirstScreen | None = None,
) -> None:
    """Tables as files to read: ``tables.md``, ``tables.tex`` and ``tables.html``."""
    markdown = [f"# {title}", "\n".join(f"- {note}" for note in notes)]
    for each in tables:
        markdown += [f"## {each.title}", each.markdown(), each.caption]
    texts = {
        "tables.md": "\n\n".join(markdown) + "\n",
        "tables.tex": "\n".join(each.latex() for each in tables) + "\n",
        "tables.html": _page(title, tables, notes, first or FirstScreen()),
    }
    for name, text in texts.items():
        write_text(folder / name, text)


def _page(title: str, tables: Sequence[Shown], notes: Sequence[str], first: FirstScreen) -> str:
    from unskew.report.page import picture, render

    return render(
        "tables.html.j2",
        title=f"{title} · unskew study",
        heading=f"Study: {title}" if " " not in title else title,
        cost=first.cost,
        picture=picture("overview", first.caption, [chart.figure() for chart in first.charts])
        if first.charts
        else None,
        figures=[picture(name, "", [figure]) for name, figure in first.figures.items()],
        tables=tables,
        notes=list(notes),
    )
