"""The report of an audit: figures, tables and words put together into one HTML file."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from unskew.base.plain_text import plain
from unskew.metrics import CalibrationSketch
from unskew.metrics.judgement import LEAST_POWER
from unskew.metrics.promise import promise
from unskew.metrics.registry import MISSING, PROPENSITY_METRICS
from unskew.report.cost import excess_words, judge_promise
from unskew.report.html_tables import HtmlCell, HtmlRow, HtmlTable, number_cell
from unskew.report.page import Picture, picture, render
from unskew.report.plots.parts import SEGMENTS_DRAWN, segments_chart
from unskew.report.plots.scores import (
    histogram_figures,
    reaching,
    reliability_figures,
    sketched_weights,
    weights_figure,
)
from unskew.report.words import brief, counted, listed, number, p_value, percent

if TYPE_CHECKING:
    from unskew.audit.audit_figures import ErrorFigure
    from unskew.audit.audit_result import AuditResult
    from unskew.audit.segment_repair import SegmentRepair

SEGMENTS_LISTED = 50


def render_audit_report(result: AuditResult) -> str:
    """One HTML file that opens offline and shows what an audit found."""
    return render(
        "audit.html.j2",
        title=f"{result.roles.score} against {result.roles.outcome} · unskew audit",
        question=f"Is '{result.roles.score}' an honest probability of '{result.roles.outcome}'?",
        cost=_cost(result),
        tone={True: "good", None: "open", False: "bad"}[result.healthy],
        headline=result.headline,
        verdict=result.verdict,
        data_line=_data_line(result),
        columns=_columns(result),
        pictures=_pictures(result),
        figures=_figures(result),
        segments=_segments(result) if result.segments else None,
        judged_count=len(result.judged_segments),
        small_count=len(result.segments) - len(result.judged_segments),
        calibrators=_calibrators(result) if result.calibrators else None,
        command=result.command,
        repair=None if result.repair is None else _repair(result.repair),
        repair_words=None if result.repair is None else result.repair.sentence,
        rule=_rule(result),
    )


def _cost(result: AuditResult) -> str:
    """Outcomes promised too many or too few on these rows; that they cancel out where they do."""
    found, roles = promise(result.sketch), result.roles
    stop = "" if result.headline.endswith("?") else ":"
    promised, total, came = (number(each, 0) for each in (found.promised, result.sketch.total, found.came))
    said = (
        f"{result.headline}{stop} '{roles.score}' promises '{roles.outcome}' on {promised} of {total} rows"
        f" and it came on {came}: {excess_words(found, result.tolerance)}."
    )
    if result.healthy is False and judge_promise(found, result.tolerance) != "bad":
        said += f" Too many here cancel too few there: the weights are off by {percent(result.wce_debiased)}."
    return said


def _data_line(result: AuditResult) -> str:
    files = result.files[0] if len(result.files) == 1 else counted(len(result.files), "file")
    return f"{files}: {counted(result.rows, 'row')}, {counted(result.clicks, result.outcome_words.noun)}."


def _columns(result: AuditResult) -> list[tuple[str, str]]:
    roles = result.roles
    named = [("Score", roles.score), ("Outcome", roles.outcome)]
    named += [("Weight", roles.weight)] if roles.weight else []
    named += [("Segments", ", ".join(roles.segments))] if roles.segments else []
    return [
        *named,
        ("Tolerance", percent(result.tolerance)),
        ("Significance", brief(result.significance, 1)),
        ("Files", listed(list(result.files[:5])) + (" …" if len(result.files) > 5 else "")),
    ]


def _rule(result: AuditResult) -> str:
    judgement = result.judgement
    needed = (
        f", and {number(judgement.rows_needed, 0)} rows like these would"
        if judgement.rows_needed is not None and judgement.rows_needed > result.rows
        else ""
    )
    chance = f"; AUC is beyond chance with p {p_value(judgement.chance.p_value)}" if judgement.chance else ""
    return (
        f"Miscalibrated means: weights beyond the tolerance, {percent(result.tolerance)}, and not by noise"
        f" (χ² test, p below {brief(result.significance, 1)}). Healthy means: not so, with rows enough to"
        f" find weights that are off by a factor {brief(judgement.error, 2)} in {percent(LEAST_POWER)} of"
        " cases, and an AUC beyond chance; else it is undecided. Here p"
        f" {p_value(result.p_beyond_tolerance)}, these rows would find them in"
        f" {percent(judgement.power)}{needed}{chance}."
    )


def _sketches(result: AuditResult) -> dict[str, CalibrationSketch]:
    shown = {"raw": result.sketch}
    if result.calibrated is not None and result.recommended != "none":
        shown["calibrated"] = result.calibrated
    return shown


def _pictures(result: AuditResult) -> dict[str, Picture]:
    """Return every figure there is data for, by name."""
    sketches = _sketches(result)
    noun, row = result.outcome_words
    words = {"predicted": f"predicted probability of a {noun}", "seen": _share(result)}
    p_min = None if result.weights is None else result.weights.p_min
    figures = {
        "reliability": reliability_figures(sketches, **words),
        "weights": [
            weights_figure(sketches),
            *histogram_figures(sketches, sketched_weights(sketches), p_min=p_min, of=row),
        ],
    }
    captions = {
        "reliability": _reliability_caption(sketches, result),
        "weights": f"{_weights_caption(result)} {_histogram_caption(result)}",
    }
    if result.judged_segments:
        drawn = result.judged_segments[:SEGMENTS_DRAWN]
        limits = {"tolerance": result.tolerance, "significance": result.significance}
        clear = [segment.is_off(**limits) for segment in drawn]
        figures["segments"] = [segments_chart(drawn, clear).figure()]
        captions["segments"] = (
            "Ranked by rows × error, which stands at the right: what is left of WCE after noise, in rows."
            " Bars are 95 % intervals; an arrow is a segment beyond the axis, with its value; a filled marker"
            f" is off by more than {percent(result.tolerance)}, beyond chance, all segments taken together"
            " (Benjamini and Hochberg)."
        )
    return {name: picture(name, captions[name], each) for name, each in figures.items()}


def _share(result: AuditResult) -> str:
    return f"share that was {result.outcome_words.row}"


def _reliability_caption(sketches: dict[str, CalibrationSketch], result: AuditResult) -> str:
    after = (
        f" Calibrated is {result.recommended}, each row without its own fold." if len(sketches) > 1 else ""
    )
    return (
        f"Each point is a group of rows of equal size, with the 95 % interval of the {_share(result)};"
        f" on the diagonal a score means what it says. Here {listed(reaching(sketches))}.{after}"
    )


def _weights_caption(result: AuditResult) -> str:
    return (
        f"Among rows of one score, the weights of the {result.outcome_words.row} ones should add up to the"
        " number of rows: the line at 1. Above it they are too large. Here they are off by"
        f" {percent(result.wce.value)} on average (WCE); noise alone would show {percent(result.wce.floor)}."
    )


def _histogram_caption(result: AuditResult) -> str:
    weights, row = result.weights, result.outcome_words.row
    if weights is None:
        return "A small score becomes a large weight, and few large weights decide."
    return (
        "A small score on the left becomes a large weight on the right, and few large weights decide. A clip"
        f" at {brief(weights.p_min, 1)} touches {percent(weights.clipped)} of the {row} rows and takes"
        f" {percent(weights.clipped_mass)} of the sum of the weights; after it"
        f" {counted(weights.rows, f'{row} row')} carry as much information as"
        f" {number(weights.effective_sample_size, 0)} of equal weight."
    )


def _figures(result: AuditResult) -> HtmlTable:
    def called(text: str) -> str:
        """Words of the registry, which is of propensities of clicks."""
        return text.replace("clicks", f"{result.outcome_words.noun}s")

    def error(name: str, figure: ErrorFigure) -> HtmlRow:
        about = PROPENSITY_METRICS[name]
        limits = MISSING if figure.low is None else f"{number(figure.low)} to {number(figure.high)}"
        cells = (number_cell(figure.value), HtmlCell(limits), number_cell(figure.floor))
        return HtmlRow(about.label, cells, called(about.note))

    def plain(name: str, value: float | None, ideal: str, note: str, decimals: int = 4) -> HtmlRow:
        return HtmlRow(name, (number_cell(value, decimals), HtmlCell(""), HtmlCell(ideal)), note)

    def known(name: str, value: float | None, ideal: str = "") -> HtmlRow:
        about = PROPENSITY_METRICS[name]
        return plain(called(about.label), value, ideal, called(about.note), about.decimals)

    rows = [
        error("wce", result.wce),
        plain("WCE without noise", result.wce_debiased, "0", "the same, less what noise adds"),
        error("ece", result.ece),
        plain("Mean o/p", result.mean_outcome_over_score, "1", "sum of the weights ÷ rows", 3),
        known("mean_over_base_rate", result.mean_score / result.base_rate if result.base_rate else None, "1"),
        known("nll", result.nll),
        known("brier", result.brier),
        known("auc", result.auc),
    ]
    if result.weights is not None:
        weights = result.weights
        rows += [
            plain(
                "Largest weight",
                weights.largest,
                "",
                f"1/p, clipped from {number(weights.largest_unclipped, 1)}",
                1,
            ),
            known("effective_sample_size", weights.effective_sample_size, number(weights.rows, 0)),
        ]
    return HtmlTable(("value", "without noise, 95 %", "if honest"), tuple(rows))


def _segments(result: AuditResult) -> HtmlTable:
    rows = []
    for segment in result.judged_segments[:SEGMENTS_LISTED]:
        ratio = segment.mean_outcome_over_score
        limits = f"{number(segment.low, 2)} to {number(segment.high, 2)}" if math.isfinite(ratio) else ""
        cells = (
            number_cell(segment.rows, 0),
            HtmlCell(brief(segment.mean_score), segment.mean_score),
            HtmlCell(brief(segment.base_rate), segment.base_rate),
            number_cell(ratio, 3, limits),
            HtmlCell(percent(segment.wce_debiased), segment.wce_debiased),
            number_cell(segment.rows * segment.wce_debiased, 0),
            HtmlCell(p_value(segment.q_value).removeprefix("= "), segment.q_value),
        )
        rows.append(HtmlRow(plain(f"{segment.column} = {segment.value}"), cells))
    heads = (
        "rows",
        "mean score",
        result.outcome_words.row,
        "mean o/p",
        "WCE without noise",
        "rows × error",
        "q",
    )
    return HtmlTable(heads, tuple(rows))


def _repair(repair: SegmentRepair) -> HtmlTable:
    rows = []
    for line in repair.lines:
        worst = line.worst
        cells = (
            number_cell(line.nll, 6),
            HtmlCell("none" if worst is None else plain(f"{worst.column} = {worst.value}")),
            HtmlCell("" if worst is None else percent(worst.wce_debiased)),
        )
        rows.append(HtmlRow("none (as given)" if line.name == "none" else plain(line.name), cells))
    return HtmlTable(
        (PROPENSITY_METRICS["nll"].heading, "worst segment that is off", "its WCE without noise"),
        tuple(rows),
    )


def _calibrators(result: AuditResult) -> HtmlTable:
    rows = []
    for score in result.calibrators:
        cells = (
            number_cell(score.nll, 6),
            number_cell(score.wce),
            number_cell(score.ece, 5),
            number_cell(score.mean_outcome_over_score, 3),
        )
        name = "none (as given)" if score.name == "none" else score.name.replace("_", " ")
        rows.append(HtmlRow(name, cells, "recommended" if score.name == result.recommended else ""))
    return HtmlTable(
        (*(PROPENSITY_METRICS[name].heading for name in ("nll", "wce", "ece")), "mean o/p"), tuple(rows)
    )
