"""Tables, figures and the HTML report, from predictions and plain numbers; nothing here trains or measures.

Names are loaded when they are first used: an audit draws three figures and does not wait for the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.report.plots.methods import overview_figures, overview_svg
    from unskew.report.run_report import render_run_report

__all__ = ["overview_figures", "overview_svg", "render_run_report"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        home = "run_report" if name == "render_run_report" else "plots.methods"
        return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
