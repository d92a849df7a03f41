"""Results as tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.table import Table

from unskew.base.plain_text import plain
from unskew.cli.console import plain_console
from unskew.metrics.judgement import differs
from unskew.metrics.registry import SHOWN_METRICS, SHOWN_PROPENSITY
from unskew.report.finding import collapsed_sentences, sampled, units
from unskew.report.words import COLLAPSED_MARK

if TYPE_CHECKING:
    from unskew.data.datasets import Dataset
    from unskew.report.finding import Finding

MARKS = {"good": "✓", "bad": "✗", "open": "?"}


def print_schema(dataset: Dataset) -> None:
    """What networks read, before they are trained: a line for each field, and what is left out."""
    table = _table("What the network reads")
    for name in ("field", "kind", "of", "values", "missing", "example", ""):
        table.add_column(name, justify="right" if name in ("values", "missing") else "left")
    for line in dataset.train.schema_table():
        table.add_row(
            plain(line["name"]),
            line["kind"],
            line["role"],
            f"{line['cardinality']:,}",
            f"{line['missing']:.1%}" if line["missing"] else "",
            plain(line["example"], 40),
            line["note"],
        )
    console = plain_console()
    console.print(table)
    left_out = {} if dataset.train.features is None else dataset.train.features.left_out
    for name, reason in left_out.items():
        console.print(f"  · {plain(name)} is left out: {reason}", style="dim")
    console.print()


def print_run(metrics: Mapping[str, Any], findings: Sequence[Finding] = ()) -> None:
    """The short tables of ``unskew run``, and what it found in a few words."""
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
    console.print(_propensity_table(metrics["propensity"]), "")
    if metrics["methods"]:
        console.print(_method_table(metrics), "")
    if "truth" in metrics:
        console.print(_truth_table(metrics["truth"]), "")
    for line in collapsed_sentences(metrics):
        console.print(f"{COLLAPSED_MARK} {line}")
    for finding in findings:
        console.print(f"{MARKS[finding.tone]} {finding.short}")
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


def _number(value: Any, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _off(value: Any) -> str:
    """Estimate − truth from the paper's bias, which is truth − estimate."""
    return "–" if value is None else f"{0.0 - value:+.4f}"


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE, show_edge=False, pad_edge=False, padding=0)


def _propensity_table(propensity: Mapping[str, Any]) -> Table:
    known = "known" in propensity
    table = _table("Known propensities" if known else "Held-out propensities, mean of seeds")
    table.add_column("")
    for kind in propensity:
        table.add_column(kind, justify="right")
    for metric in SHOWN_PROPENSITY:
        values = [figures.get(metric.name) for figures in propensity.values()]
        if any(value is not None for value in values) or not known:
            table.add_row(metric.label, *map(metric.text, values))
    return table


def _method_table(metrics: Mapping[str, Any]) -> Table:
    methods = metrics["methods"]
    seeds = len(next(iter(methods.values()))["auc"]["seeds"])
    random = metrics["data"]["test_is"] == "random"
    shown = f"randomly shown {units(metrics)}" if random else "a logged, biased test set"
    of_seeds = f" (mean ± deviation of {seeds} seeds)" if seeds > 1 else ""
    table = _table(f"Conversion models on {shown}{of_seeds}")
    table.add_column("metric")
    for key in methods:
        mark = f" {COLLAPSED_MARK}" if (metrics.get("collapsed") or {}).get(key) else ""
        table.add_column(key.replace("_", " ") + mark, justify="right")
    for rail in metrics["rails"]:
        table.add_column(rail, justify="right", style="dim")
    comparison = metrics["comparison"]
    for name in SHOWN_METRICS:
        cells, intervals = [], []
        for key, of in methods.items():
            mark = "*" if differs(comparison.get(key, {}).get(name, {})) else " "
            figures = of.get(name)
            spread = f" ±{_number(figures['std'], 3)}" if figures and seeds > 1 else ""
            cells.append(f"{_number(figures['mean'])}{spread}{mark}" if figures else "– ")
            intervals.append(_interval(figures))
        rails = (_number(rail.get(name), 3) for rail in metrics["rails"].values())
        table.add_row(name, *cells, *rails)
        if any(intervals):
            table.add_row("", *intervals, *("" for _ in metrics["rails"]), style="dim")
        for label, part in (("  its members", "members_mean"), ("  all seeds", "together")):
            beside = [(of.get(name) or {}).get(part) for of in methods.values()]
            if any(value is not None for value in beside):
                cells = ["" if value is None else f"{_number(value)} " for value in beside]
                table.add_row(label, *cells, *("" for _ in metrics["rails"]), style="dim")
    table.caption = (
        f"below: 95 % interval over {sampled(methods)}, the mean of an ensemble's members, and the mean"
        " prediction of all seeds, which is what scores, exports and services give; * differs from naive at"
        f" 5 % (paired, over {sampled(methods)}, Holm-corrected), mean_over_rate in its distance from 1"
    )
    return table


def _interval(figures: Mapping[str, Any] | None) -> str:
    if not figures or figures.get("low") is None:
        return ""
    return f"{_number(figures['low'], 3)} to {_number(figures['high'], 3)} "


def _truth_table(truth: Mapping[str, Any]) -> Table:
    table = _table(f"Estimates of the true loss {truth['ideal_loss']:.4f} of a fixed predictor")
    for title in ("", "estimate", "± s.e.", "off on average", "calibration", "refinement"):
        table.add_column(title, justify="left" if not title else "right")
    for name, of in truth["estimates"].items():
        table.add_row(
            name.replace("_", " "),
            *(_number(of.get(key)) for key in ("estimate", "standard_error")),
            *(_off(of.get(key)) for key in ("bias", "calibration_part", "refinement_part")),
        )
    return table
