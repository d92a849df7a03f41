"""The results of an audit and of weights on a terminal."""

from __future__ import annotations

from rich.text import Text

from unskew.audit.actions import ActionsResult
from unskew.audit.audit_result import AuditResult
from unskew.audit.weights_result import WeightsResult
from unskew.base.plain_text import plain
from unskew.cli.console import plain_console, print_verdict
from unskew.report.audit_tables import (
    actions_table,
    calibrators_table,
    data_line,
    figures_table,
    repair_table,
    segments_table,
    weights_table,
)

SEGMENTS_SHOWN = 10


def print_audit(result: AuditResult) -> None:
    """Print the verdict, the figures, the worst segments and the calibrators."""
    console = plain_console()
    console.print(data_line(result) + "\n")
    print_verdict(console, result)
    console.print(figures_table(result).rich(), "")
    if result.judged_segments:
        console.print(segments_table(result, SEGMENTS_SHOWN).rich(), "")
    small = len(result.segments) - len(result.judged_segments)
    if small:
        console.print(f"{small:,} of {len(result.segments):,} segments have too few rows to be judged.")
    if result.calibrators:
        console.print(calibrators_table(result).rich(), "")
    if result.repair is not None:
        console.print(repair_table(result.repair).rich(), "")
        console.print(result.repair.sentence)
    if result.command is not None:
        console.print(f"Write the weights: {plain(result.command)}", soft_wrap=True, highlight=False)


def print_actions(result: ActionsResult) -> None:
    """Print the verdict on probabilities of showing, and its figures."""
    console = plain_console()
    files = result.files[0] if len(result.files) == 1 else f"{len(result.files):,} files"
    console.print(f"{files}: {result.rows:,} rows, {result.actions:,} actions\n")
    print_verdict(console, result)
    console.print(actions_table(result).rich())


def print_weights(result: WeightsResult, out: str) -> None:
    """Print what the weights are, before and after; where the clip decides, that before anything else."""
    console = plain_console()
    if result.clip_decides:
        console.print(Text.assemble(("✗", "bold red"), " ", result.verdict), soft_wrap=True)
    console.print(weights_table(result).rich())
    for message in result.messages:
        console.print(f"{result.calibrators[0].name}: {message}")
    if result.trained is not None:
        console.print(f"{result.trained[0].upper()}{result.trained[1:]}.")
    names = ", ".join(dict.fromkeys(result.chosen))
    console.print(f"{result.rows:,} rows in {result.folds} folds, calibrated by {names}: {out}")
