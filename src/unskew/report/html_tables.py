"""Tables of the report as plain rows; the template only lays them out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.metrics.judgement import judge_difference
from unskew.metrics.registry import SHOWN_PROPENSITY, Metric, metric
from unskew.report.finding import deviation
from unskew.report.words import COLLAPSED_MARK, brief, counted, method_name, number, real, signed_fixed


@dataclass(frozen=True)
class HtmlCell:
    """What is shown, the exact value behind it, what stands small beside it, and a mark."""

    text: str
    value: float | None = None
    aside: str = ""
    mark: str = ""


def number_cell(value: float | None, decimals: int = 4, aside: str = "") -> HtmlCell:
    """A cell with a number of so many decimals."""
    return HtmlCell(number(value, decimals), value, aside)


@dataclass(frozen=True)
class HtmlRow:
    """One line of a table: its name, its cells, and what it tells."""

    name: str
    cells: tuple[HtmlCell, ...]
    note: str = ""


@dataclass(frozen=True)
class HtmlTable:
    """Column heads (without the first) and rows."""

    heads: tuple[str, ...]
    rows: tuple[HtmlRow, ...]


def propensity_table(figures: Mapping[str, Any]) -> HtmlTable:
    """Every figure of the raw and the calibrated propensities side by side, with the spread over seeds."""
    kinds = list(figures)
    rows = []
    for figure in SHOWN_PROPENSITY:
        if all(figures[kind].get(figure.name) is None for kind in kinds):
            continue
        cells = [_figure_cell(figures[kind], figure) for kind in kinds]
        rows.append(HtmlRow(figure.label, (*cells, HtmlCell(figure.ideal)), figure.note))
    return HtmlTable((*kinds, "ideal"), tuple(rows))


def _figure_cell(figures: Mapping[str, Any], figure: Metric) -> HtmlCell:
    value = real(figures.get(figure.name))
    spread = _spread(figures.get("per_seed", {}).get(figure.name, []))
    return HtmlCell(
        _text(figure, value), value, f"± {_text(figure, spread)}" if math.isfinite(spread) else ""
    )


def _text(figure: Metric, value: float) -> str:
    return (
        f"{number(100 * value, 2)} %"
        if figure.percent and math.isfinite(value)
        else number(value, figure.decimals_of(value) if math.isfinite(value) else figure.decimals)
    )


def _spread(seeds: Sequence[Any]) -> float:
    values = np.array([real(seed) for seed in seeds], dtype=np.float64)
    values = values[np.isfinite(values)]
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def methods_table(
    methods: Mapping[str, Any],
    comparison: Mapping[str, Any],
    rails: Mapping[str, Mapping[str, float]],
    collapsed: Mapping[str, Any] | None = None,
) -> HtmlTable:
    """Every metric of every method between its rails, with marks for what is beyond noise, and beside the
    names of models with a network that learned nothing."""
    marked = [
        f"{method_name(key)} {COLLAPSED_MARK}" if (collapsed or {}).get(key) else method_name(key)
        for key in methods
    ]
    names = list(dict.fromkeys(name for of in methods.values() for name in of))
    rows = []
    for name in names:
        about = metric(name)
        known = about.rails(rails)
        cells = [HtmlCell(brief(known.get("random")), known.get("random"))]
        for key, of in methods.items():
            summary = of.get(name, {})
            judged = judge_difference(name, comparison.get(key, {}).get(name, {}))
            std = real(summary.get("std"))
            cells.append(
                HtmlCell(
                    number(summary.get("mean")),
                    summary.get("mean"),
                    _asides(std, summary),
                    {"good": "▲", "bad": "▼"}.get(judged.level, ""),
                )
            )
        cells.append(HtmlCell(brief(known.get("oracle")), known.get("oracle")))
        rows.append(HtmlRow(about.label + (f" ({about.advice})" if about.advice else ""), tuple(cells)))
    return HtmlTable(("random", *marked, "oracle"), tuple(rows))


def _asides(std: float, summary: Mapping[str, Any]) -> str:
    """Show the deviation over seeds, the interval, the mean of members, and all seeds together, as far as
    known."""
    spread = [f"± {number(std)}"] if math.isfinite(std) else []
    ends = [real(summary.get(end)) for end in ("low", "high")]
    if all(map(math.isfinite, ends)):
        spread.append(f"[{number(ends[0], 3)}, {number(ends[1], 3)}]")
    members = real(summary.get("members_mean"))
    if math.isfinite(members):
        spread.append(f"members {number(members)}")
    together = real(summary.get("together"))
    if math.isfinite(together):
        spread.append(f"all seeds {number(together)}")
    return " ".join(spread)


def truth_table(truth: Mapping[str, Any]) -> HtmlTable:
    """Every estimate: its value, how far it is off on average, and the two parts."""
    rows = []
    for key, of in truth.get("estimates", {}).items():
        error = real(of.get("standard_error"))
        off = deviation(of)
        cells = [number_cell(of.get("estimate"), aside=f"± {number(error)}")]
        for name in ("bias", "calibration_part", "refinement_part"):
            part = deviation(of, name)
            cells.append(HtmlCell(signed_fixed(part), part))
        errors = abs(off) / error if error else None
        cells.append(HtmlCell(brief(errors, 2) if error > 0 else number(None), errors))
        rows.append(HtmlRow(method_name(key), tuple(cells)))
    heads = (
        "estimate ± standard error",
        "off on average",
        "calibration part",
        "refinement part",
        "in standard errors",
    )
    return HtmlTable(heads, tuple(rows))


def values_table(values: Sequence[Mapping[str, Any]]) -> HtmlTable:
    """Show predicted ÷ actual rates of values: ✗ is off beyond chance and tolerance, ? has too few rows."""
    rows = []
    for each in values:
        low, high = (brief(each[end], 3) if each[end] is not None else "∞" for end in ("low", "high"))
        mark = "?" if each["q_value"] is None else "✗" if each["off"] else ""
        cells = (
            HtmlCell(number(each["rows"], 0), each["rows"]),
            HtmlCell(brief(each["predicted"], 3), each["predicted"]),
            HtmlCell(brief(each["actual"], 3), each["actual"]),
            HtmlCell(brief(each["level"], 3), each["level"], f"[{low}, {high}]", mark),
            HtmlCell(brief(each["excess"], 3), each["excess"]),
        )
        rows.append(HtmlRow(f"{each['field']} = {each['value']}", cells))
    heads = ("rows", "predicted", "actual", "predicted ÷ actual rate", "rows × error")
    return HtmlTable(heads, tuple(rows))


def settings_rows(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted names and text, for a list."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += settings_rows(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", _setting(value)))
    return rows


def _setting(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return number(None) if value is None else str(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_listed, value))
    return (
        f"{value:.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    )


def _listed(value: Any) -> str:
    """One of several; of a field of a log its name, kind and number of values."""
    if isinstance(value, Mapping) and {"name", "kind", "cardinality"} <= value.keys():
        return f"{value['name']} ({value['kind']}, {counted(value['cardinality'], 'value')})"
    return str(value)


def search_table(search: Mapping[str, Any]) -> HtmlTable:
    """Every training of a search: its rung, members, time, how far it was ahead, and what became of it."""
    judged = {each["name"]: each for each in search.get("judged", ())}
    last = max((each["rung"] for each in search.get("tried", ())), default=0)
    shipped = search.get("shipped", [search["chosen"]])
    part = "shipped" if len(shipped) == 1 else f"in the mean of {len(shipped)} that is shipped"
    rows = []
    for each in search.get("tried", ()):
        of = judged.get(each["name"], {}) if each["rung"] == last else {}
        end = each["left_out"] or (part if each["rung"] == last and each["name"] in shipped else "")
        if not end and of.get("rejected"):
            end = "clearly worse"
        rows.append(
            HtmlRow(
                each["name"],
                (
                    number_cell(each["rung"] + 1, 0),
                    number_cell(each["members"], 0),
                    number_cell(each["seconds"], 1),
                    number_cell(each["advantage"], aside=_error(of.get("standard_error"))),
                    number_cell(of.get("biased"), aside=_error(of.get("biased_error"))),
                    number_cell(of.get("weight"), 2),
                    number_cell(of.get("combined"), aside=_error(of.get("combined_error"))),
                    HtmlCell(end),
                ),
            )
        )
    heads = (
        "round",
        "members",
        "seconds",
        "by the sample",
        "by clicks",
        "weight of the sample",
        "together",
        "",
    )
    return HtmlTable(heads, tuple(rows))


def _error(value: float | None) -> str:
    return "" if value is None else f"± {number(value, 4)}"
