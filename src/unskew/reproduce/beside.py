"""What was measured beside what the paper prints: mean ± deviation over seeds, marks, and how far off."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from unskew.metrics.registry import PROPENSITY_METRICS, RANKING
from unskew.reproduce.presets import ALONE, PAPER_NAMES, SOURCES, Preset, sources_of
from unskew.reproduce.published import Published, published_row
from unskew.run.protocol import ProtocolName
from unskew.study.shown_table import Shown
from unskew.study.table import Figure, Row, StudySummary, summary, users_text

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
        """Plain values, for JSON."""
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
    table: pa.Table, preset: Preset, protocol: ProtocolName, dataset: str, part: str
) -> StudySummary:
    """Figures of a preset's rows on one test set; all its tests are one family."""
    if part == "propensity":
        wanted = [("", key) for key in sources_of(protocol)]
    else:
        wanted = [(method, key) for method in preset.methods for key in preset.rows_of(method, protocol)]
    lines = table.select(["dataset", "part", "method", "propensity", "calibrator"]).to_pylist()
    rows: dict[tuple[str, str], list[int]] = {}
    for number, line in enumerate(lines):
        if line["dataset"] == dataset and line["part"] in (part, "users"):
            key = SOURCE_OF.get((line["propensity"], line["calibrator"]), ALONE)
            rows.setdefault((line["method"], key), []).append(number)
    chosen = table.take([number for each in wanted for number in rows.get(each, ())])
    metrics = RANKING if part == "method" else PAPER_PROPENSITY if protocol == "paper" else HONEST_PROPENSITY
    against = {"method": "escm2-dr"} if preset.name == "table-sota" else RAW
    return summary(
        chosen,
        part="method" if part == "method" else "propensity",
        metrics=metrics,
        against=against,
        title=preset.title,
    )


def comparisons(found: StudySummary, preset: Preset) -> list[PaperComparison]:
    """Every number of a summary with the paper's, where it prints one."""
    result = []
    for row, figures in found.rows.items():
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


def beside(found: StudySummary, preset: Preset, *, note: str = "", with_paper: bool = True) -> Shown:
    """Three lines for each row: ours, the paper's, and by how many of its standard deviations they differ.

    Rows that the paper does not have are one line.
    """
    by_row: dict[tuple[str, str], list[PaperComparison]] = {}
    for each in comparisons(found, preset):
        by_row.setdefault((each.method, each.source), []).append(each)
    methods = {method for method, _ in by_row}
    lines: list[tuple[str, ...]] = []
    for (method, source), numbers in by_row.items():
        of = {each.metric: each for each in numbers}
        name = SOURCES[source].title if source else "–"
        first = f"{method} {name}" if len(methods) > 1 and source else name if source else method
        lines.append((first, *(_ours(of.get(metric)) for metric in found.metrics)))
        if with_paper and any(each.paper for each in numbers):
            lines.append(("  paper", *(_paper(of.get(metric)) for metric in found.metrics)))
            if any(each.deviation is not None for each in numbers):
                lines.append(("  off, in its s.d.", *(_off(of.get(metric)) for metric in found.metrics)))
    against = "ESCM²-DR" if preset.name == "table-sota" else "raw"
    measured = re.sub("differs from .*? at 5 %", f"differs from {against} at 5 %", found.caption)
    marked = f"{PAPER_MARK} the paper's mark" if with_paper and preset.published else ""
    caption = "; ".join(part for part in (measured, marked, note) if part)
    return Shown(
        title=preset.title,
        columns=(
            "",
            *(
                PROPENSITY_METRICS[metric].heading if not preset.methods else metric
                for metric in found.metrics
            ),
        ),
        rows=tuple(lines),
        caption=caption,
    )


def _ours(number: PaperComparison | None) -> str:
    if number is None or not math.isfinite(number.ours.mean):
        return "–"
    places = 4 if abs(number.ours.mean) < 100 else 0
    spread = "" if math.isnan(number.ours.std) else f" ± {number.ours.std:.{places}f}"
    users = "" if number.ours.users is None else users_text(number.ours.users, places)
    return f"{number.ours.mean:.{places}f}{spread}{users}{'*' if number.ours.is_significant else ''}"


def _paper(number: PaperComparison | None) -> str:
    if number is None or number.paper is None:
        return ""
    spread = "" if number.paper.std is None else f" ± {number.paper.std:.4f}"
    return f"{number.paper.mean:.4f}{spread}{PAPER_MARK if number.paper.significant else ''}"


def _off(number: PaperComparison | None) -> str:
    deviation = None if number is None else number.deviation
    return "" if deviation is None else f"{deviation:+.1f}"
