"""The tables of an audit, of weights and of a monitor, for reports and for the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unskew.base.plain_text import plain
from unskew.metrics import mean_outcome_over_score, wce
from unskew.metrics.registry import PROPENSITY_METRICS
from unskew.report.numbers import between, brief, counted, number, percent
from unskew.report.table import Cell, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unskew.audit.actions import ActionsResult
    from unskew.audit.audit_result import AuditResult
    from unskew.audit.by_segment import SegmentRepair
    from unskew.audit.monitor import MonitorResult, SegmentHistory
    from unskew.audit.weights_result import WeightsResult

USE_THIS = " ← use this"
WORST_BREAKS = 10
"""Segments of a monitor that are listed with what broke."""


def data_line(result: AuditResult) -> str:
    """Return the files, rows and outcomes of an audit in one line."""
    files = result.files[0] if len(result.files) == 1 else counted(len(result.files), "file")
    outcomes = counted(result.clicks, result.outcome_words.noun)
    means = f"mean score {brief(result.mean_score)}, base rate {brief(result.base_rate)}"
    return f"{files}: {counted(result.rows, 'row')}, {outcomes}; {means}."


def figures_table(result: AuditResult) -> Table:
    """Return the errors of the scores with their noise, and the weights that they make."""
    noun = result.outcome_words.noun

    def row(name: str, value: float | None, beside: str = "", ideal: Any = "") -> Sequence[Any]:
        about = PROPENSITY_METRICS[name]
        label, note = (text.replace("clicks", f"{noun}s") for text in (about.label, about.note))
        return label, Cell(about.text(value), value), beside, ideal, note

    wrong = {"wce": result.wce, "ece": result.ece}
    level = result.mean_score / result.base_rate if result.base_rate else None
    rows = [
        *(row(name, of.value, between(of.low, of.high, number), of.floor) for name, of in wrong.items()),
        ("WCE without noise", result.judgement.wce_debiased, "", "0", "the WCE less what noise adds"),
        ("Mean o/p", result.mean_outcome_over_score, "", "1", "sum of the weights ÷ rows"),
        row("mean_over_base_rate", level, ideal="1"),
        *(row(name, getattr(result, name)) for name in ("nll", "brier", "auc")),
    ]
    if (weights := result.weights) is not None:
        largest = Cell(number(weights.largest, 1), weights.largest)
        clip = f"1/p; before the clip {number(weights.largest_unclipped, 1)}"
        size = row("effective_sample_size", weights.effective_sample_size, ideal=number(weights.rows, 0))
        rows += [("Largest weight", largest, "", "", clip), size]
        rows += [row(name, getattr(weights, name)) for name in ("clipped", "clipped_mass")]
    columns = ("", "value", "without noise, 95 %", "if calibrated", "what it is")
    return Table("The scores as they are", columns, rows, notes=True)


def segments_table(result: AuditResult, most: int) -> Table:
    """Return the worst segments."""
    rows = []
    for segment in result.judged_segments[:most]:
        ratio, error = segment.mean_outcome_over_score, segment.wce_debiased
        off = segment.is_off(tolerance=result.tolerance, significance=result.significance)
        interval = between(segment.low, segment.high, lambda end: number(end, 2))
        shown = Cell(number(ratio, 3), ratio, interval, "✗" if off else "")
        means = (segment.rows, segment.mean_score, segment.base_rate)
        name = f"{segment.column} = {segment.value}"
        rows.append((name, *means, shown, error, segment.rows * error, segment.q_value))
    outcome = result.outcome_words.row
    columns = ("segment", "rows", "mean score", outcome, "mean o/p", "WCE without noise", "rows × error", "q")
    units = {"rows": "count", "mean score": "brief", outcome: "brief", "rows × error": "count", "q": "q"}
    title = f"Worst of {number(len(result.judged_segments), 0)} segments"
    caption = f"✗ off by more than {percent(result.tolerance)}, beyond chance, over all segments together."
    return Table(title, columns, rows, caption, units | {"WCE without noise": "percent"})


def calibrators_table(result: AuditResult) -> Table:
    """Return what each calibrator reaches on rows that it was not fitted on."""
    by_segment = result.repair is not None and result.repair.worth_it
    rows = [
        (
            Cell(
                "none (as given)" if score.name == "none" else score.name.replace("_", " "),
                mark=USE_THIS if score.name == result.recommended != "none" and not by_segment else "",
            ),
            score.nll,
            score.wce,
            score.ece,
            score.mean_outcome_over_score,
        )
        for score in result.calibrators
    ]
    nll, wce_, ece = (PROPENSITY_METRICS[name].heading for name in ("nll", "wce", "ece"))
    units = {nll: "fixed6", ece: "fixed5", "mean o/p": "fixed3"}
    return Table("Calibrators, cross-fitted", ("calibrator", nll, wce_, ece, "mean o/p"), rows, units=units)


def repair_table(repair: SegmentRepair) -> Table:
    """Return what calibrators that read the segments reach beside those that do not."""
    rows = []
    for line in repair.lines:
        worst = line.worst
        use = repair.worth_it and line.name not in ("none", repair.beside)
        rows.append(
            (
                Cell("none (as given)" if line.name == "none" else line.name, mark=USE_THIS if use else ""),
                line.nll,
                "none" if worst is None else f"{worst.column} = {worst.value}",
                Cell("") if worst is None else worst.wce_debiased,
            )
        )
    columns = ("calibrator", "NLL", "worst segment that is off", "its WCE without noise")
    units = {"NLL": "fixed6", "its WCE without noise": "percent"}
    return Table(f"By segment, cross-fitted on {repair.rows:,} rows", columns, rows, units=units)


def actions_table(result: ActionsResult) -> Table:
    """Return the figures of known probabilities of showing."""
    ends = between(result.low, result.high, number)
    rows = [
        ("mean(1/p) ÷ actions", result.ratio, ends, "1"),
        ("largest 1/p", Cell(number(1 / result.smallest, 1)), "", ""),
    ]
    return Table("Figures", ("", "value", "95 %", "if right"), rows)


def weights_table(result: WeightsResult) -> Table:
    """Return what the weights are, before and after calibration."""
    both = (result.raw, result.calibrated)
    ratios = [mean_outcome_over_score(sketch) for sketch in both]
    rows: list[Sequence[Any]] = [
        (PROPENSITY_METRICS["wce"].heading, *(wce(sketch) for sketch in both)),
        ("mean o/p", *(Cell(number(ratio, 3), ratio) for ratio in ratios)),
    ]
    if (after := result.weights) is not None:
        size = f"{number(after.effective_sample_size, 0)} of {number(after.rows, 0)}"
        rows += [
            ("effective sample size", "", size),
            ("largest weight", "", number(after.largest, 1)),
            (f"clipped at {after.p_min:g}", "", percent(after.clipped)),
            ("clipped mass", "", f"{percent(after.clipped_mass)} of Σ 1/p"),
        ]
    return Table("Weights of the clicked rows", ("", "as given", "calibrated"), rows)


def breaks_table(off: Sequence[SegmentHistory]) -> Table:
    """Return what broke in the worst segments of a monitor, since when, and what it costs."""
    rows = []
    for history in off[:WORST_BREAKS]:
        broken = history.breaks[-1]
        ends = between(broken.low, broken.high, lambda end: number(end, 2))
        share = percent(abs(broken.weight_share))
        rows.append(
            (
                history.name,
                f"{broken.first} to {broken.last}" if broken.over else f"since {broken.first}",
                broken.found,
                broken.kind,
                Cell(number(broken.ratio, 3), broken.ratio, ends),
                broken.slope,
                Cell(number(broken.weight_error, 0), broken.weight_error, share),
                broken.click_error,
                broken.money,
                Cell(f"10^{broken.log_evidence / math.log(10):.0f}", broken.log_evidence),
            )
        )
    columns = ["segment", "off", "found", "in", "mean o/p", "slope", "Σ weights − rows"]
    columns += ["clicks − expected", "money", "evidence"]
    units = {"slope": "fixed2", "clicks − expected": "count", "money": "count"}
    caption = (
        "The worst ten. A slope below 1 means that scores are too spread out, above 1 too flat. Σ weights −"
        " rows is the error of a sum of weights 1/p over the clicks. The evidence is how many times more"
        " likely the data are if the scores broke."
    )
    return Table("", columns, rows, caption, units, words=4)


def histories_table(result: MonitorResult, most: int) -> Table:
    """Return the state of each segment of a monitor, and the least change that it would show."""
    words = {"off": "off", "over": "honest again", "honest": "honest", "too few rows": "undecided"}
    rows = []
    for history in result.histories[:most]:
        closed = [period for period in history.periods if period.closed]
        changes = [
            Cell(f"× {factor:.2f}" if math.isfinite(factor) else "none", factor)
            for factor in (history.smallest_now, history.smallest_so_far)
        ]
        last = closed[-1].ratio if closed else None
        since = history.breaks[-1].first if history.breaks and not history.breaks[-1].over else ""
        state = words[history.judgement.reason] + (f" since {since}" if since else "")
        rows.append((plain(history.name), state, history.rows, last, *changes))
    columns = ["segment", "now", "rows", "o/p of the last period"]
    columns += ["seen in one period", "seen from the start"]
    title = f"All rows, and the worst of {len(result.segments):,} segments" if result.segments else "All rows"
    caption = (
        "The last two columns are the least factor of a change of the level that would have been found: with"
        " the last period alone, and if it had been so from the start. Undecided: not even a factor of 1.2"
        " would have shown."
    )
    units = {"rows": "count", "o/p of the last period": "fixed3"}
    return Table(title, columns, rows, caption, units, words=2)
