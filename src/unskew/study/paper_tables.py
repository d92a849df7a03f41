"""The paper's tables: our numbers beside the printed ones, times, and one switch at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.metrics.registry import PROPENSITY_METRICS, RANKING
from unskew.report.table import Table
from unskew.run.protocol import ProtocolName
from unskew.study.grid import Row
from unskew.study.presets import ALONE, PAPER_NAMES, SOURCES, Preset, sources_of, timed_sources
from unskew.study.published import Published, published_row
from unskew.study.table import Figure, StudySummary, figure_cell, summary

if TYPE_CHECKING:
    from unskew.study.reproduce import Reproduction

PAPER_PROPENSITY = (
    "ece",
    "ece_floor",
    "nll",
    "brier",
    "auc",
    "mean_over_base_rate",
    "weight_check",
    "ece_all_of_d",
    "mean_over_base_rate_all_of_d",
)
HONEST_PROPENSITY = (
    "ece",
    "ece_floor",
    "wce",
    "nll",
    "brier",
    "auc",
    "mean_over_base_rate",
    "weight_check",
    "effective_sample_size",
)
RAW = {"propensity": "neumf", "calibrator": "none"}
SOURCE_OF = {(source.propensity, source.calibrator): key for key, source in SOURCES.items()}
"""The source of a row of the long table; a method without propensities has none."""
PAPER_MARK = "‡"


@dataclass(frozen=True)
class PaperComparison:
    """One number of ours beside the paper's."""

    method: str
    source: str
    metric: str
    ours: Figure
    paper: Published | None

    @property
    def deviation(self) -> float | None:
        """(ours − paper's) ÷ paper's standard deviation."""
        return None if self.paper is None else self.paper.deviation(self.ours.mean)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "method": self.method,
            "source": self.source,
            "metric": self.metric,
            **vars(self.ours),
            "is_significant": self.ours.is_significant,
            "paper_mean": self.paper and self.paper.mean,
            "paper_std": self.paper and self.paper.std,
            "deviation": self.deviation,
        }


def summarised(
    table: pa.Table, preset: Preset, protocol: ProtocolName, dataset: str, kind: str
) -> StudySummary:
    """Sum up a preset's rows on one test set; all its tests are one family."""
    if kind == "propensity":
        wanted = [("", key) for key in sources_of(protocol)]
    else:
        wanted = [(method, key) for method in preset.methods for key in preset.rows_of(method, protocol)]
    lines = table.select(["dataset", "part", "method", "propensity", "calibrator"]).to_pylist()
    rows: dict[tuple[str, str], list[int]] = {}
    for number, line in enumerate(lines):
        if line["dataset"] == dataset and line["part"] in (kind, "users"):
            key = SOURCE_OF.get((line["propensity"], line["calibrator"]), ALONE)
            rows.setdefault((line["method"], key), []).append(number)
    chosen = table.take([number for each in wanted for number in rows.get(each, ())])
    metrics = RANKING if kind == "method" else PAPER_PROPENSITY if protocol == "paper" else HONEST_PROPENSITY
    against = {"method": "escm2-dr"} if preset.name == "table-sota" else RAW
    return summary(
        chosen,
        kind="method" if kind == "method" else "propensity",
        metrics=metrics,
        against=against,
        title=preset.title,
    )


def comparisons(summary: StudySummary, preset: Preset) -> list[PaperComparison]:
    """Set every number of a summary beside the paper's, where it prints one."""
    result = []
    for row, figures in summary.rows.items():
        source = SOURCE_OF.get((row.propensity, row.calibrator), ALONE)
        for metric, ours in figures.items():
            paper = _printed(preset, row, source, metric) if preset.published else None
            result.append(PaperComparison(row.method, source, metric, ours, paper))
    return result


def _printed(preset: Preset, row: Row, source: str, metric: str) -> Published | None:
    without = source == ALONE or (preset.published == "sota" and row.method != "mrdr")
    return published_row(
        preset.published,
        row.dataset.split(" (")[0],
        PAPER_NAMES.get(row.method, row.method),
        "none" if without else source,
        "ece@100" if metric == "ece" else metric,
    )


def beside(summary: StudySummary, preset: Preset, *, note: str = "", with_paper: bool = True) -> Table:
    """Return three lines a row: ours, the paper's, and by how many of its standard deviations they differ.

    Rows that the paper does not have are one line.
    """
    by_row: dict[tuple[str, str], dict[str, PaperComparison]] = {}
    for number in comparisons(summary, preset):
        by_row.setdefault((number.method, number.source), {})[number.metric] = number
    is_one_method = len({method for method, _ in by_row}) == 1
    lines: list[Sequence[Any]] = []
    for (method, source), numbers in by_row.items():
        name = SOURCES[source].title if source else ""
        head = (name or method) if is_one_method else f"{method} {name}".strip()
        lines += _lines(head, [numbers.get(metric) for metric in summary.metrics], with_paper)
    against = "ESCM²-DR" if preset.name == "table-sota" else "raw"
    measured = re.sub("differs from .*? at 5 %", f"differs from {against} at 5 %", summary.caption)
    marked = f"{PAPER_MARK} the paper's mark" if with_paper and preset.published else ""
    names = (
        summary.metrics if preset.methods else [PROPENSITY_METRICS[name].heading for name in summary.metrics]
    )
    return Table(
        title=preset.title,
        columns=("", *names),
        rows=tuple(lines),
        caption="; ".join(text for text in (measured, marked, note) if text),
    )


def _lines(head: str, numbers: list[PaperComparison | None], with_paper: bool) -> list[Sequence[Any]]:
    lines: list[Sequence[Any]] = [
        (head, *(figure_cell(number.ours if number else None) for number in numbers))
    ]
    papers = [_paper(number) if number else "" for number in numbers]
    if with_paper and any(papers):
        lines.append(("  paper", *papers))
        differences = [number and number.deviation for number in numbers]
        if any(value is not None for value in differences):
            texts = ("" if value is None else f"{value:+.1f}" for value in differences)
            lines.append(("  off, in its s.d.", *texts))
    return lines


def _paper(number: PaperComparison) -> str:
    if number.paper is None:
        return ""
    spread = "" if number.paper.std is None else f" ± {number.paper.std:.4f}"
    return f"{number.paper.mean:.4f}{spread}{PAPER_MARK if number.paper.significant else ''}"


TRAINING, INFERENCE = "training_s", "inference_s"
"""Names of the paper's columns."""


def efficiency_table(table: pa.Table, protocol: ProtocolName, title: str, machine: str) -> Table:
    """Return seconds and ratios to raw from the timings of a long table, beside the paper's ratios."""
    known = table.filter(pc.and_(pc.equal(table["part"], "timing"), pc.equal(table["method"], "")))
    seconds = {
        (row["propensity"], row["calibrator"], row["metric"]): row["value"]
        for row in known.select(["propensity", "calibrator", "metric", "value"]).to_pylist()
    }
    rows, first = [], dict[str, float]()
    for key in timed_sources(protocol):
        source = SOURCES[key]
        trained, calibrated, read = (
            seconds[source.propensity, source.calibrator, f"{name}_seconds"]
            for name in ("train", "calibrate", "predict")
        )
        trained += calibrated if source.calibrator != "none" else 0.0
        cells = [source.title]
        for column, value in ((TRAINING, trained), (INFERENCE, read)):
            paper, base = (published_row("efficiency", "coat", "", name, column) for name in (key, "raw"))
            ratio = f"{paper.mean / base.mean:.2f}" if paper and base else "–"
            cells += [f"{value:.3g}", f"{value / first.setdefault(column, value):.2f}", ratio]
        rows.append(tuple(cells))
    ratios = ("÷ raw", "paper's ÷ raw")
    return Table(
        title=title,
        columns=("", "training, s", *ratios, "inference, s", *ratios),
        rows=tuple(rows),
        caption=f"all seeds at once, on {machine}; inference scores the cells on which propensities are"
        " judged; the paper's is of a RTX 3090",
    )


PROPENSITY_SWITCHES = (
    "sampled_negatives",
    "negatives_once",
    "no_offset",
    "spare_tenth",
    "propensity_epochs_fixed",
    "embedding_dropout",
    "platt_in_sample",
    "platt_dropout",
    "ece_in_sample",
)
"""Switches that the propensities depend on."""

ROWS = ("raw", "platt")
"""The propensities of the table of switches."""


def switch_table(work: Reproduction, preset: Preset) -> Table:
    """Return the ECE of raw and Platt with every switch as it is, and with each one reversed alone."""
    rows = []
    for name in ("", *PROPENSITY_SWITCHES):
        reverse = {*work.plain.evaluation.reverse} ^ ({name} if name else set())
        configs = [work.config(key, reverse=sorted(reverse)) for key in ROWS]
        raw, platt = work.values(configs, "propensity")
        eces = [np.asarray(found["ece"]) for found in (raw, platt)]
        rows.append(
            (
                f"without {name}" if name else "as it is",
                *map(spread_text, eces),
                f"{eces[1].mean() / eces[0].mean():.2f}",
                f"{np.mean(platt['auc']):.3f}",
                f"{np.mean(platt['weight_check']):.3g}",
            )
        )
    return Table(
        title=preset.title,
        columns=("", "ECE raw", "ECE Platt", "Platt ÷ raw", "AUC Platt", "Σ1/p ÷ size of D, Platt"),
        rows=tuple(rows),
        caption="mean ± standard deviation over seeds; where ECE is measured, its switch says",
    )


def spread_text(values: NDArray[np.float64]) -> str:
    """Return the mean and the standard deviation over seeds."""
    spread = f" ± {values.std(ddof=1):.4f}" if len(values) > 1 else ""
    return f"{values.mean():.4f}{spread}"
