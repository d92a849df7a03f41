"""Figures and the HTML report, from predictions and plain numbers; nothing here trains or measures.

Names are loaded when they are first used: an audit draws three figures, and does not wait for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.report.plots import overview_figure, overview_svg
    from unskew.report.run_report import render_run_report

__all__ = ["overview_figure", "overview_svg", "render_run_report"]


def __getattr__(name: str) -> Any:
    if name == "render_run_report":
        from unskew.report.run_report import render_run_report

        return render_run_report
    if name in __all__:
        from unskew.report import plots

        return getattr(plots, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
