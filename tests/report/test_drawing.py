"""Figures without matplotlib: values are where they belong, names are escaped, colours are the page's."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from unskew.audit.segments import Segment
from unskew.metrics import CalibrationSketch, reliability_curve
from unskew.report.plots.axes import linear_ticks, log_ticks, logit_ticks
from unskew.report.plots.drawing import Axis, Panel
from unskew.report.plots.panels import reliability_panels, weight_panels
from unskew.report.plots.segments import segments_chart

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def sketches():
    generator = np.random.default_rng(0)
    score = 1 / (1 + np.exp(-generator.normal(-3, 1, 20_000)))
    outcome = generator.random(len(score)) < score
    raw = CalibrationSketch.of(score=np.minimum(1.5 * score, 1), outcome=outcome)
    return {"raw": raw, "calibrated": CalibrationSketch.of(score=score, outcome=outcome)}


def segment(value, ratio=1.0):
    return Segment("c", value, 100, 0.1, 0.1, ratio, 0.8 * ratio, 1.2 * ratio, 0.1, 0.1, 0.5, 0.5)


def test_values_are_placed_by_their_scale():
    np.testing.assert_allclose(Axis(0.0, 2.0).share([0, 1, 2, 9, -9]), [0, 0.5, 1, 1, 0])
    np.testing.assert_allclose(Axis(0.01, 1.0, "log").share([0.01, 0.1, 1]), [0, 0.5, 1])
    np.testing.assert_allclose(Axis(0.1, 0.9, "logit").share([0.1, 0.5, 0.9]), [0, 0.5, 1])


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.55), (0.0, 1.04), (0.0, 3e-5), (-1.0, 12.0)])
def test_ticks_are_round_and_within(low, high):
    ticks = linear_ticks(low, high)
    assert 2 <= len(ticks) <= 7
    assert all(low <= tick <= high for tick in ticks)
    assert len({round(step, 12) for step in np.diff(ticks)}) == 1 or len(ticks) == 2


def test_ticks_of_other_scales_are_within():
    assert log_ticks(0.01, 100) == [0.01, 0.1, 1.0, 10.0, 100.0]
    assert logit_ticks((0.001, 0.999))[0] == 0.001


def test_a_line_goes_through_its_values_and_says_them():
    panel = Panel("t", Axis(0.0, 1.0), Axis(0.0, 10.0), height=50.0)
    panel.line(np.array([0.0, 0.5, 1.0]), np.array([0.0, 5.0, 10.0]), "raw", ["a", "<b>", "c"])
    group = ET.fromstring(panel.parts[0])
    assert group.get("class") == "of-raw"
    assert group.find("polyline").get("points") == "60.0,80.0 233.0,55.0 406.0,30.0"
    assert [each.text for each in group.iter("title")] == ["a", "<b>", "c"]


def test_the_reliability_diagram_has_a_point_a_group_in_both_panels(sketches):
    for panel in reliability_panels(sketches):
        picture = ET.fromstring(panel.drawn("Reliability of p < 1 & <b>"))
        groups = {
            name: len(reliability_curve(sketch=sketch, bins=20, spacing="mass").score)
            for name, sketch in sketches.items()
        }
        squares = [each for each in picture.iter(f"{SVG}rect") if each.get("width") == "5.6"]
        assert (len(squares), len(list(picture.iter(f"{SVG}circle")))) == tuple(groups.values())
        assert picture.find(f"{SVG}title").text == "Reliability of p < 1 & <b>"
        assert sum(each.text.startswith("raw: said") for each in picture.iter(f"{SVG}title")) == groups["raw"]


def test_honest_weights_are_drawn_nearer_to_one(sketches):
    (panel,) = weight_panels(sketches)
    picture = ET.fromstring(panel.drawn("Weights"))
    (rule,) = (each for each in picture.iter(f"{SVG}polyline") if each.get("stroke-width") == "1.2")
    one = float(rule.get("points").split()[0].split(",")[1])
    raw = [
        float(each.get("y")) + 2.8 - one for each in picture.iter(f"{SVG}rect") if each.get("width") == "5.6"
    ]
    honest = [float(each.get("cy")) - one for each in picture.iter(f"{SVG}circle")]
    assert np.mean(raw) > 10, "overstated scores make weights too small: below the line"
    assert abs(np.mean(honest)) < 0.3 * np.mean(raw)


def test_segments_are_named_from_the_top_and_filled_if_clear():
    names = ["<b>&", "x" * 100, "fr"]
    chart = segments_chart([segment(n, 1 + i) for i, n in enumerate(names)], [True, False, False])
    assert [row.dots[0].filled for row in chart.rows] == [True, False, False]
    assert [chart.placed(row)[0].at for row in chart.rows] == sorted(
        chart.placed(row)[0].at for row in chart.rows
    )
    assert chart.rows[0].name == "c = <b>&"
    assert chart.rows[0].aside == "10", "rows × error"
    assert all(len(row.name) < 90 for row in chart.rows)
    assert chart.is_long


@pytest.mark.parametrize(("ratio", "beyond"), [(np.inf, "right"), (60.0, "right"), (0.01, "left"), (2.0, "")])
def test_a_segment_beyond_the_axis_is_marked(ratio, beyond):
    chart = segments_chart([segment("a", ratio)], [True])
    assert chart.placed(chart.rows[0])[0].beyond == beyond


def test_a_report_of_an_audit_loads_no_matplotlib():
    code = (
        "import sys, pyarrow as pa, numpy as np, unskew as us\n"
        "from unskew.report.audit_report import render_audit_report\n"
        "p = np.tile([.1, .4], 500); o = np.arange(1000) % 5 == 0\n"
        "frame = pa.table({'p': p, 'o': o, 'c': np.repeat(['a', 'b'], 500)})\n"
        "page = render_audit_report(us.audit(frame, score='p', outcome='o', segments=['c']))\n"
        "assert page.count('<figure') == 3, page.count('<figure')\n"
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
