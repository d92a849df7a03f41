"""Results as tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

SHOWN = ("auc", "nll", "mean_over_rate", "dcg@2", "dcg@4", "dcg@6", "hits@2", "hits@4", "hits@6")


def print_run(metrics: Mapping[str, Any]) -> None:
    """The short tables of ``unskew run``."""
    console = Console(highlight=False)
    data = metrics["data"]
    console.print(
        f"{data['name']}: {data['users']:,} users × {data['items']:,} items, {data['clicks']:,} clicks,"
        f" density {data['density']:.4g}; {data['test_rows']:,} test rows,"
        f" {data['leaked_cells_dropped']:,} leaked cells dropped"
    )
    console.print(f"protocol: {metrics['protocol']}", style="dim")
    for label in metrics["labels"]:
        console.print(f"  · {label}", style="dim")
    console.print()
    console.print(_propensity_table(metrics["propensity"]))
    if metrics["methods"]:
        console.print(_method_table(metrics))
    if "truth" in metrics:
        console.print(_truth_table(metrics["truth"]))


def _number(value: Any, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _propensity_table(propensity: Mapping[str, Any]) -> Table:
    table = Table(title="Propensities on held-out cells (mean over seeds)", title_justify="left")
    rows = (
        ("ECE", "ece", 4),
        ("ECE of a perfect one", "ece_floor", 4),
        ("WCE", "wce", 4),
        ("NLL", "nll", 4),
        ("Brier", "brier", 4),
        ("AUC", "auc", 4),
        ("mean p ÷ base rate", "mean_over_base_rate", 3),
        ("Σ 1/p ÷ |D|", "weight_check", 3),
        ("effective sample size", "effective_sample_size", 0),
        ("clipped share", "clipped", 4),
    )
    table.add_column("")
    for kind in propensity:
        table.add_column(kind, justify="right")
    for title, name, digits in rows:
        table.add_row(title, *(_number(figures[name], digits) for figures in propensity.values()))
    return table


def _method_table(metrics: Mapping[str, Any]) -> Table:
    methods = metrics["methods"]
    seeds = len(next(iter(methods.values()))["auc"]["seeds"])
    table = Table(
        title=f"Conversion models on randomly shown pairs (mean ± standard deviation of {seeds} seeds)",
        title_justify="left",
    )
    table.add_column("metric")
    for key in methods:
        table.add_column(key.replace("_", " "), justify="right")
    for rail in metrics["rails"]:
        table.add_column(rail, justify="right", style="dim")
    comparison = metrics["comparison"]
    for name in SHOWN:
        cells = []
        for key, of in methods.items():
            mark = "*" if comparison.get(key, {}).get(name, {}).get("p_holm", 1.0) < 0.05 else " "
            told = of.get(name)
            cells.append(f"{_number(told['mean'])} ± {_number(told['std'])}{mark}" if told else "– ")
        rails = (_number(rail.get(name)) for rail in metrics["rails"].values())
        table.add_row(name, *cells, *rails)
    table.caption = (
        "* differs from naive at 5 % (paired t-test, Holm-corrected; mean_over_rate in its distance from 1)"
    )
    return table


def _truth_table(truth: Mapping[str, Any]) -> Table:
    table = Table(
        title=f"Estimates of the ideal loss {truth['ideal_loss']:.4f} of one fixed predictor, and their bias",
        title_justify="left",
    )
    for title in ("", "estimate", "± s.e.", "bias", "calibration part", "refinement part"):
        table.add_column(title, justify="left" if not title else "right")
    for name, of in truth["estimates"].items():
        table.add_row(
            name.replace("_", " "),
            *(
                _number(of.get(key))
                for key in ("estimate", "standard_error", "bias", "calibration_part", "refinement_part")
            ),
        )
    return table
