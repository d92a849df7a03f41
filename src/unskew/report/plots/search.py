"""The search of ``auto``: how far each candidate is ahead of the naive ensemble, by sample and by clicks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unskew.metrics.registry import metric as registered
from unskew.report.plots.dot_charts import Dot, DotChart, DotRow, axis_of
from unskew.report.words import signed

NOISE = 1.96
SAMPLE, CLICKS = "calibrated", "raw"
"""Series of what the sample says, and of what biased clicks say."""
KEYS = {
    SAMPLE: "random sample, helped by clicks (95 % interval)",
    CLICKS: "biased clicks alone (range over Γ)",
}


def search_chart(search: Mapping[str, Any]) -> DotChart:
    """A row for each candidate; filled where it is beyond noise, or beyond what Γ allows.

    Parameters
    ----------
    search
        ``"search"`` of ``metrics.json``.
    """
    rows, ends = [], [0.0]
    for each in search["judged"]:
        dots = []
        if each["combined"] is not None:
            half = NOISE * each["combined_error"]
            dots.append(
                _dot(SAMPLE, each, each["combined"], each["combined"] - half, each["combined"] + half)
            )
        if each["biased"] is not None:
            dots.append(_dot(CLICKS, each, each["biased"], each["range_low"], each["range_high"]))
        ends += [end for dot in dots for end in (dot.low, dot.high)]
        names = search.get("shipped", [search["chosen"]])
        part = "shipped" if len(names) == 1 else "in the mean that is shipped"
        shipped = f" ({part})" if each["name"] in names else ""
        rows.append(DotRow(f"{each['name']}{shipped}", tuple(dots), signed(dots[0].value) if dots else ""))
    label = f"{registered(search['criterion']).label} ahead of the {search['baseline']} ensemble"
    return DotChart("Candidates", axis_of(ends, label), tuple(rows), rule=0.0)


def _dot(series: str, each: Mapping[str, Any], value: float, low: float, high: float) -> Dot:
    tip = f"{each['name']}, {KEYS[series]}: {signed(value)} ({signed(low)} to {signed(high)})"
    return Dot(value, low, high, look=series, filled=low > 0 or high < 0, tip=tip)
