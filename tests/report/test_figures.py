"""Every figure of a page can be read: labels apart, nothing clipped, all rows named, in its colours."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any

import pytest

from unskew.audit.segments import Segment
from unskew.metrics.reliability import Promise
from unskew.report.page import picture
from unskew.report.plots.axes import Axis
from unskew.report.plots.curves import learning_figures, plan_figure
from unskew.report.plots.dots import Dot, DotChart, DotRow
from unskew.report.plots.methods import (
    difference_charts,
    estimates_chart,
    fields_charts,
    metric_charts,
    predicted_chart,
    search_chart,
    segments_chart,
)
from unskew.report.plots.over_time import heat_map, history_figure
from unskew.report.plots.reproduction import Cloud, ece_performance_figures, histogram_grid, reliability_grid
from unskew.report.plots.scores import (
    histogram_figures,
    reliability_figures,
    weights_figure,
)
from unskew.report.style import PANEL_WIDTH

NAMES = ["<b>&", "x" * 100, "fr"]
NARROW = 390 - 2 * 16 - 2 * 12 - 2
"""Pixels of a panel on a telephone."""


def segment(value: str, ratio: float = 1.0) -> Segment:
    return Segment("c", value, 100, 0.1, 0.1, ratio, 0.8 * ratio, 1.2 * ratio, 0.1, 0.1, 0.5, 0.5)


def history(name: str, days: int) -> Any:
    periods = [
        SimpleNamespace(
            period=f"2026-01-{d + 1:02}", ratio=1.0 + d / 9, low=0.8, high=2.0, wce=0.3, floor=0.1
        )
        for d in range(days)
    ]
    for each in periods:
        each.closed = each is not periods[-1]
    return SimpleNamespace(
        name=name, periods=periods, breaks=[SimpleNamespace(first="2026-01-02", last="2026-01-03")]
    )


def every_figure(inputs: dict[str, Any]) -> dict[str, list[Any]]:
    metrics, sketches = inputs["metrics"], inputs["sketches"]
    methods = metrics["methods"]
    tried = [
        {"name": name, "advantage": value, "standard_error": 0.01}
        for name, value in {"naive": 0.0, "ips": 0.05, "a method with a long name": -0.01}.items()
    ]
    search = {"criterion": "auc", "shipped": ["ips"], "tried": tried}
    losses = {"mean": 0.03, "low": 0.02, "high": 0.04}
    charts = [
        *metric_charts(methods, metrics["rails"]),
        *difference_charts(metrics["comparison"], methods),
        estimates_chart(metrics["truth"]),
        predicted_chart(
            {"naive": Promise(15_000, 10_000, 8_000, 12_000)}, 10_000, "the randomly shown test impressions"
        ),
        search_chart(search),
        *fields_charts({"A": {"fields": [{"field": "f", "auc": losses}]}, "B": {"fields": []}}),
        segments_chart([segment(name, 9.0**i) for i, name in enumerate(NAMES)], [True, False, False]),
    ]
    days = [f"2026-01-{d + 1:02}" for d in range(9)]
    lived = [history(name, 9) for name in NAMES]
    sizes = [10**n for n in range(2, 7)]
    plan = {
        "sizes": sizes,
        "detectable": {"auc": [n**-0.5 for n in sizes]},
        "metrics": {"auc": {"difference": 0.01, "impressions": 10_000}},
    }
    clouds = [Cloud(name, [0.01, 0.02], {"auc": [0.70001, 0.70002]}) for name in "ab"]
    return {
        "charts": [chart.figure() for chart in charts],
        "scores": [
            *reliability_figures(sketches),
            weights_figure(sketches, rows="impressions"),
            *histogram_figures(sketches, p_min=0.02, rows="impressions"),
        ],
        "time": [
            heat_map(lived, days),
            *(history_figure(each, days, tolerance=0.05, reach=0.3) for each in lived),
            *learning_figures(inputs["histories"]),
        ],
        "files": [
            plan_figure(plan),
            *reliability_grid(sketches),
            *histogram_grid(sketches),
            *ece_performance_figures(clouds, {"auc": "ρ 0.5"}),
        ],
    }


@pytest.fixture(scope="module")
def figures(inputs: dict[str, Any]) -> dict[str, list[Any]]:
    drawn = every_figure(inputs)
    for each in itertools.chain(*drawn.values()):
        each.draw_without_rendering()
    return drawn


@pytest.mark.parametrize("kind", ["charts", "scores", "time", "files"])
def test_labels_of_ticks_are_unlike_and_do_not_touch(figures: dict[str, list[Any]], kind: str) -> None:
    for figure in figures[kind]:
        for axes in figure.axes:
            for axis in (axes.xaxis, axes.yaxis):
                labels = [
                    each
                    for each in axis.get_ticklabels()
                    if axes.axison and each.get_visible() and each.get_text()
                ]
                texts = [each.get_text() for each in labels]
                assert len(set(texts)) == len(texts), texts
                boxes = [each.get_window_extent() for each in labels]
                for one, other in itertools.combinations(boxes, 2):
                    assert not one.overlaps(other), (figure.get_suptitle(), texts)


@pytest.mark.parametrize("kind", ["charts", "scores", "time", "files"])
def test_nothing_is_clipped(figures: dict[str, list[Any]], kind: str) -> None:
    for figure in figures[kind]:
        box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
        room = 0.05
        assert box.x0 > -room, figure.get_suptitle()
        assert box.y0 > -room, figure.get_suptitle()
        assert box.x1 < width + room, figure.get_suptitle()
        assert box.y1 < height + room, figure.get_suptitle()


@pytest.mark.parametrize("kind", ["charts", "scores", "time"])
def test_letters_are_ten_pixels_high_on_a_telephone(figures: dict[str, list[Any]], kind: str) -> None:
    for figure in figures[kind]:
        shown = picture("p", [figure])
        root = ET.fromstring(str(shown.panels[0]))
        width = float(root.get("viewBox", "").split()[2])
        sizes = [
            float(size) for size in re.findall(r"font(?:-size)?: (?:bold )?([\d.]+)px", str(shown.panels[0]))
        ]
        assert sizes
        assert min(sizes) * (shown.width or NARROW) / width > 9.9


def test_names_are_escaped_and_ids_are_of_one_figure(figures: dict[str, list[Any]]) -> None:
    panels = picture("p", figures["charts"]).panels
    texts = [element.text or "" for each in panels for element in ET.fromstring(str(each)).iter()]
    assert "c = <b>&" in texts
    ids = [set(re.findall(r'\bid="([^"]+)"', each)) for each in panels]
    assert all(not one & other for one, other in itertools.combinations(ids, 2))
    for each, own in zip(panels, ids, strict=True):
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', each)) <= own


@pytest.mark.parametrize(
    ("ratio", "shown"), [(math.inf, "∞ ▸"), (60.0, "60 ▸"), (0.01, "◂ 0.010"), (2.0, "")]
)
def test_a_value_beyond_the_axis_is_an_arrow_with_its_value(ratio: float, shown: str) -> None:
    rows = (DotRow("a", (Dot(ratio, 1.0, 3.0),)),)
    (axes,) = DotChart("t", rows, axis=Axis(0.1, 10.0, "log")).figure().axes
    assert [text.get_text() for text in axes.texts if text.get_text()] == ["a", *([shown] if shown else [])]


def test_every_row_is_named_with_its_number_and_filled_beyond_noise() -> None:
    rows = tuple(DotRow(name, (Dot(1.0, filled=name == "b"),), f"{name}!") for name in "abc")
    (axes,) = DotChart("t", rows).figure().axes
    assert [text.get_text() for text in axes.texts] == ["a", "a!", "b", "b!", "c", "c!"]
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert [line.get_markerfacecolor() == line.get_color() for line in dots] == [False, True, False]


def test_a_panel_is_as_wide_as_a_telephone_and_what_is_wider_is_moved_sideways() -> None:
    days = [f"2026-01-{d + 1:02}" for d in range(20)]
    narrow, wide = (picture("heat", [heat_map([history("a", n)], days[:n])]) for n in (5, 20))
    assert narrow.width is None
    assert (wide.width or 0) > 80 * PANEL_WIDTH


def test_an_audit_without_a_report_loads_no_matplotlib() -> None:
    code = (
        "import sys, pyarrow as pa, numpy as np, unskew as us, unskew.cli.audit\n"
        "p = np.tile([.1, .4], 500); o = np.arange(1000) % 5 == 0\n"
        "us.audit(pa.table({'p': p, 'o': o}), score='p', outcome='o')\n"
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
