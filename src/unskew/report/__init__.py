"""Figures and the HTML report, from predictions and plain numbers; nothing here trains or measures."""

from __future__ import annotations

from unskew.report.plots import overview_figure, overview_svg
from unskew.report.run_report import render_run_report

__all__ = ["overview_figure", "overview_svg", "render_run_report"]
