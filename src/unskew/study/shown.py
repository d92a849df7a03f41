"""A small table of results as people read it: on a terminal, or in Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


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

    def rich(self) -> Table:
        """For ``rich.print``."""
        from rich.table import Table

        table = Table(title=self.title, title_justify="left", caption=self.caption, caption_justify="left")
        for number, name in enumerate(self.columns):
            table.add_column(name, justify="left" if number < self.text_columns else "right")
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """For a page of the documentation; the title and the caption are left to the page.

        Examples
        --------
        >>> print(Shown("t", ("name", "n"), (("a", "1"),)).markdown())
        | name | n |
        |---|---:|
        | a | 1 |
        """
        rules = ["---" if number < self.text_columns else "---:" for number in range(len(self.columns))]
        lines = [f"| {' | '.join(cells)} |" for cells in (self.columns, *self.rows)]
        return "\n".join([lines[0], f"|{'|'.join(rules)}|", *lines[1:]])
