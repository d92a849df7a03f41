"""The results of a run on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unskew.base.plain_text import plain
from unskew.cli.console import plain_console
from unskew.metrics.registry import SHOWN_METRICS
from unskew.report.facts import COLLAPSED_MARK, collapsed_sentences, tested_on, units
from unskew.report.run_tables import methods_table, propensity_table, schema_table, truth_table

if TYPE_CHECKING:
    from unskew.data.datasets import Dataset
    from unskew.report.finding import Answer

MARKS = {"good": "✓", "bad": "✗", "open": "?"}


def print_schema(dataset: Dataset) -> None:
    """Print what a model reads, and what is left out."""
    console = plain_console()
    console.print(schema_table(dataset.train.schema_table()).rich())
    left_out = {} if dataset.train.features is None else dataset.train.features.left_out
    for name, reason in left_out.items():
        console.print(f"  · {plain(name)} is left out: {reason}", style="dim")
    console.print()


def print_run(metrics: Mapping[str, Any], findings: Sequence[Answer] = ()) -> None:
    """Print the tables of ``unskew run``, and what it found in a few sentences."""
    console = plain_console()
    data = metrics["data"]
    seen = f"{data['clicks']:,} clicks, density {data['density']:.4g}"
    if data.get("known_propensity") is not None:
        seen = f"{data['rows']:,} shown rows, each one of {data['actions']:,} actions"
    console.print(
        f"{data['name']}: {data['users']:,} users × {data['items']:,} items, {seen}; {_test_rows(data)}"
    )
    unclicked = data["rows"] - data["clicks"]
    if data["space"] == "matrix" and unclicked:
        console.print(
            f"  ! {unclicked:,} listed rows are not clicked, and pairs that are not listed count as not"
            f" clicked too. If the {data['rows']:,} rows are all that was shown, give --space impressions."
        )
    if data["conversion_rate_of_clicks"] is None:
        console.print(
            "  ! The log has no conversions: the propensity alone is trained, which gives weights and scores,"
            " but no conversion model. If a column holds conversions, give --conversion COLUMN."
        )
    if data["test_is"] == "logged":
        console.print(
            "  ! The test set is taken as logged: its clicks are as biased as those of training. If its pairs"
            " were shown at random, give --test-is random."
        )
    console.print(f"protocol: {metrics['protocol']}", style="dim")
    for label in metrics["labels"]:
        console.print(f"  · {label}", style="dim")
    console.print()
    tables = [propensity_table(metrics["propensity"], units(metrics))]
    if metrics["methods"]:
        tables.append(methods_table(metrics, f"Conversion models on {tested_on(metrics)}", SHOWN_METRICS))
    if "truth" in metrics:
        tables.append(truth_table(metrics["truth"]))
    for table in tables:
        console.print(table.rich(), "")
    for line in collapsed_sentences(metrics):
        console.print(f"{COLLAPSED_MARK} {line}")
    for finding in findings:
        console.print(f"{MARKS[finding.tone]} {finding.short}", soft_wrap=True)
    if any(finding.tone == "open" for finding in findings):
        console.print(f"({MARKS['open']}: these data do not decide it)", style="dim")


def _test_rows(data: Mapping[str, Any]) -> str:
    if not data["test_rows"]:
        return "no test set"
    counts = f"{data['test_rows']:,} test rows"
    if data["test_rows_judged"] < data["test_rows"]:
        counts += f" ({data['test_rows_judged']:,} are clicked, and judged by)"
    if data.get("unseen_rows_dropped"):
        counts += f", {data['unseen_rows_dropped']:,} of unseen users or items dropped"
    return f"{counts}, {data['leaked_cells_dropped']:,} leaked cells dropped"
