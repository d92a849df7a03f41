"""Results that show themselves: a sentence where they are printed, a figure and a table in a notebook."""

from __future__ import annotations

from importlib import import_module
from typing import Any

DISPLAYS = "unskew.report.notebook"
"""The module that lays out what each kind of result shows; loaded when one is shown."""


class ShowsItself:
    """A result that is one sentence where it is printed; a notebook adds a figure and a table."""

    def __repr__(self) -> str:
        sentence: str = import_module(DISPLAYS).sentence_of(self)
        return f"{type(self).__name__}: {sentence}"

    def _repr_html_(self) -> str:
        html: str = import_module(DISPLAYS).html_of(self)
        return html


class Figures(dict[str, Any], ShowsItself):
    """Values by the names of metrics, or figures by kind: a dictionary that a notebook shows as a table."""
