"""The report of an audit as one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unskew.metrics.judgement import LEAST_POWER
from unskew.metrics.reliability import promise
from unskew.report.audit_tables import (
    calibrators_table,
    data_line,
    figures_table,
    repair_table,
    segments_table,
)
from unskew.report.facts import excess_words, judge_promise
from unskew.report.page import Picture, picture, render
from unskew.report.plots.methods import SEGMENTS_DRAWN, segments_chart
from unskew.report.plots.scores import histogram_figures, reliability_figures, weights_figure

if TYPE_CHECKING:
    from unskew.audit.audit_result import AuditResult
    from unskew.metrics import CalibrationSketch

SEGMENTS_LISTED = 50

TONES = {True: "good", None: "open", False: "bad"}


def render_audit_report(result: AuditResult) -> str:
    """Return one HTML file that opens offline and shows what an audit found."""
    promised, sketches = promise(result.sketch), _sketches(result)
    off = judge_promise(promised, result.tolerance) == "bad"
    return render(
        "audit.html.j2",
        title=f"{result.roles.score} against {result.roles.outcome} · unskew audit",
        result=result,
        tone=TONES[result.healthy],
        promised=promised,
        excess=excess_words(promised, result.tolerance),
        cancels=result.healthy is False and not off,
        least_power=LEAST_POWER,
        data_line=data_line(result),
        pictures=_pictures(result, sketches),
        figures=figures_table(result),
        segments=segments_table(result, SEGMENTS_LISTED),
        calibrators=calibrators_table(result) if result.calibrators else None,
        repair=None if result.repair is None else repair_table(result.repair),
    )


def _sketches(result: AuditResult) -> dict[str, CalibrationSketch]:
    shown = {"raw": result.sketch}
    if result.calibrated is not None and result.recommended != "none":
        shown["calibrated"] = result.calibrated
    return shown


def _pictures(result: AuditResult, sketches: dict[str, CalibrationSketch]) -> dict[str, Picture]:
    """Return every figure there is data for, by name."""
    noun, row = result.outcome_words
    words = {"predicted": f"predicted probability of a {noun}", "seen": f"share that was {row}"}
    p_min = None if result.weights is None else result.weights.p_min
    figures: dict[str, list[Any]] = {
        "reliability": reliability_figures(sketches, **words),
        "weights": [weights_figure(sketches), *histogram_figures(sketches, p_min=p_min, positive=row)],
    }
    if result.judged_segments:
        drawn = result.judged_segments[:SEGMENTS_DRAWN]
        limits = {"tolerance": result.tolerance, "significance": result.significance}
        clear = [segment.is_off(**limits) for segment in drawn]
        figures["segments"] = [segments_chart(drawn, clear).figure()]
    return {name: picture(name, panels) for name, panels in figures.items()}
