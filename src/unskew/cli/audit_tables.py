"""The result of an audit, and of weights, on a terminal."""

from __future__ import annotations

import math

from rich.table import Table
from rich.text import Text

from unskew.audit.actions import ActionsResult
from unskew.audit.audit_result import AuditResult
from unskew.audit.segment_repair import MULTI, SegmentRepair
from unskew.audit.verdict import counted
from unskew.audit.weights_result import WeightsResult
from unskew.base.plain_text import plain
from unskew.cli.console import plain_console, print_verdict
from unskew.metrics import mean_outcome_over_score, wce
from unskew.metrics.registry import PROPENSITY_METRICS
from unskew.report.text_tables import figure_table

SEGMENTS_SHOWN = 10


def print_audit(result: AuditResult) -> None:
    """Verdict, figures, worst segments and calibrators."""
    console = plain_console()
    files = result.files[0] if len(result.files) == 1 else f"{len(result.files):,} files"
    found = counted(result.clicks, result.outcome_words.noun)
    console.print(
        f"{plain(files)}: {result.rows:,} rows, {found}; mean score {result.mean_score:.4g},"
        f" base rate {result.base_rate:.4g}\n"
    )
    print_verdict(console, result)
    console.print(_figures(result))
    if result.judged_segments:
        console.print(_segments(result))
    small = len(result.segments) - len(result.judged_segments)
    if small:
        console.print(f"{small:,} of {len(result.segments):,} segments have too few rows to be judged.")
    if result.calibrators:
        console.print(_calibrators(result))
    if result.repair is not None:
        console.print(_repair(result.repair))
        console.print(result.repair.sentence)
    if result.command is not None:
        console.print(f"Write the weights: {plain(result.command)}", soft_wrap=True, highlight=False)


def print_actions(result: ActionsResult) -> None:
    """The verdict on probabilities of showing, and its figures."""
    console = plain_console()
    files = result.files[0] if len(result.files) == 1 else f"{len(result.files):,} files"
    console.print(f"{files}: {result.rows:,} rows, {result.actions:,} actions\n")
    print_verdict(console, result)
    table = figure_table("Figures", ("", "value", "95 %", "if right"))
    table.add_row(
        "mean(1/p) ÷ actions", _number(result.ratio), f"{_number(result.low)} to {_number(result.high)}", "1"
    )
    table.add_row("largest 1/p", f"{1 / result.smallest:,.1f}", "", "")
    console.print(table)


def print_weights(result: WeightsResult, out: str) -> None:
    """Where the clip decides, that before anything else; then what the weights are, before and after."""
    console = plain_console()
    if result.clip_decides:
        console.print(Text.assemble(("✗", "bold red"), " ", result.verdict), soft_wrap=True)
    table = figure_table("Weights of the clicked rows", ("", "as given", "calibrated"))
    both = (result.raw, result.calibrated)
    table.add_row(_name("wce"), *(_number(wce(sketch=sketch)) for sketch in both))
    table.add_row("mean o/p̂", *(_number(mean_outcome_over_score(sketch=sketch), 3) for sketch in both))
    after = result.weights
    if after is not None:
        table.add_row("effective sample size", "", f"{after.effective_sample_size:,.0f} of {after.rows:,}")
        table.add_row("largest weight", "", f"{after.largest:,.1f}")
        table.add_row(f"clipped at {after.p_min:g}", "", f"{100 * after.clipped:.2f} %")
        table.add_row("clipped mass", "", f"{100 * after.clipped_mass:.2f} % of Σ 1/p̂")
    console.print(table)
    for message in result.messages:
        console.print(f"{result.calibrators[0].name}: {message}")
    if result.trained is not None:
        console.print(f"{result.trained[0].upper()}{result.trained[1:]}.")
    names = ", ".join(dict.fromkeys(result.chosen))
    console.print(f"{result.rows:,} rows in {result.folds} folds, calibrated by {names}: {out}")


def _name(metric: str) -> str:
    return PROPENSITY_METRICS[metric].heading


def _number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _figures(result: AuditResult) -> Table:
    table = figure_table("Figures", ("", "value", "without noise, 95 %", "noise alone"))
    for name, figure in (("ece", result.ece), ("wce", result.wce)):
        limits = "–" if figure.low is None else f"{_number(figure.low)} to {_number(figure.high)}"
        table.add_row(_name(name), _number(figure.value), limits, _number(figure.floor))
    table.add_row(
        "WCE without noise", _number(result.wce_debiased), f"p {_p_value(result.test.p_value)}", "0"
    )
    table.add_row("mean o/p̂", _number(result.mean_outcome_over_score), "", "1")
    for name, value in (("nll", result.nll), ("brier", result.brier), ("auc", result.auc)):
        table.add_row(_name(name), _number(value), "", "")
    weights = result.weights
    if weights is not None:
        before = f"{weights.largest_unclipped:,.1f} before the clip"
        table.add_row("largest weight", f"{weights.largest:,.1f}", before, "")
        table.add_row(
            "effective sample size", f"{weights.effective_sample_size:,.0f}", "", f"{weights.rows:,}"
        )
        cost = f"takes {100 * weights.clipped_mass:.2g} % of the sum"
        table.add_row(f"clipped at {weights.p_min:g}", f"{100 * weights.clipped:.2f} %", cost, "")
    return table


def _segments(result: AuditResult) -> Table:
    columns = ("segment", "rows", "mean score", result.outcome_words.row, "mean o/p̂", "q")
    table = figure_table(f"Worst of {len(result.judged_segments):,} segments (bold: off)", columns)
    limits = {"tolerance": result.tolerance, "significance": result.significance}
    for segment in result.judged_segments[:SEGMENTS_SHOWN]:
        table.add_row(
            plain(f"{segment.column} = {segment.value}"),
            f"{segment.rows:,}",
            _number(segment.mean_score),
            _number(segment.base_rate),
            _number(segment.mean_outcome_over_score, 3),
            _p_value(segment.q_value or 0.0).removeprefix("= "),
            style="bold" if segment.is_off(**limits) else None,
        )
    return table


def _calibrators(result: AuditResult) -> Table:
    columns = ("", *map(_name, ("nll", "wce", "ece")), "mean o/p̂")
    table = figure_table("Calibrators, cross-fitted", columns)
    by_segment = result.repair is not None and result.repair.worth_it
    for score in result.calibrators:
        chosen = score.name == result.recommended and not by_segment
        table.add_row(
            f"{score.name} ← use this" if chosen and score.name != "none" else score.name,
            _number(score.nll, 6),
            _number(score.wce),
            _number(score.ece, 5),
            _number(score.mean_outcome_over_score, 3),
            style="bold" if chosen else None,
        )
    return table


def _repair(repair: SegmentRepair) -> Table:
    table = Table(title=f"By segment, cross-fitted on {repair.rows:,} rows", title_justify="left")
    table.add_column("")
    table.add_column(_name("nll"), justify="right")
    table.add_column("worst segment that is off")
    table.add_column("WCE without noise", justify="right")
    for line in repair.lines:
        worst = line.worst
        table.add_row(
            f"{line.name} ← use this" if line.name == MULTI and repair.worth_it else line.name,
            _number(line.nll, 6),
            "none" if worst is None else plain(f"{worst.column} = {worst.value}"),
            "" if worst is None else _number(worst.wce_debiased, 3),
            style="bold" if line.name == (MULTI if repair.worth_it else repair.beside) else None,
        )
    return table


def _p_value(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"= {value:.2g}"
