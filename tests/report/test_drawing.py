"""Figures without matplotlib: values are where they belong, names are escaped, colours are the page's."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from unskew.audit.segments import Segment
from unskew.metrics import CalibrationSketch, reliability_curve
from unskew.report.plots.audit import (
    histograms_picture,
    reliability_picture,
    segments_picture,
    weights_picture,
)
from unskew.report.plots.axes import linear_ticks, log_ticks, logit_ticks
from unskew.report.plots.drawing import Axis, Panel

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


def test_a_line_goes_through_its_values():
    panel = Panel(10.0, 20.0, 100.0, 50.0, Axis(0.0, 1.0), Axis(0.0, 10.0))
    panel.line(np.array([0.0, 0.5, 1.0]), np.array([0.0, 5.0, 10.0]), "raw")
    line = ET.fromstring(panel.parts[0])
    assert line.get("points") == "10.0,70.0 60.0,45.0 110.0,20.0"
    assert len(panel.parts) == 1 + 3


def test_the_reliability_diagram_has_a_point_a_group_in_both_panels(sketches):
    picture = ET.fromstring(reliability_picture(sketches, "Reliability of p < 1 & <b>"))
    groups = sum(
        len(reliability_curve(sketch=sketch, bins=20, spacing="mass").score) for sketch in sketches.values()
    )
    squares = [each for each in picture.iter(f"{SVG}rect") if each.get("width") == "5.6"]
    assert len(squares) + len(list(picture.iter(f"{SVG}circle"))) == 2 * groups
    assert picture.find(f"{SVG}title").text == "Reliability of p < 1 & <b>"


def test_honest_weights_are_drawn_nearer_to_one(sketches):
    picture = ET.fromstring(weights_picture(sketches, "Weights"))
    (rule,) = (each for each in picture.iter(f"{SVG}polyline") if each.get("stroke-width") == "1.2")
    one = float(rule.get("points").split()[0].split(",")[1])
    raw = [
        float(each.get("y")) + 2.8 - one for each in picture.iter(f"{SVG}rect") if each.get("width") == "5.6"
    ]
    honest = [float(each.get("cy")) - one for each in picture.iter(f"{SVG}circle")]
    assert np.mean(raw) > 10, "overstated scores make weights too small: below the line"
    assert abs(np.mean(honest)) < 0.3 * np.mean(raw)


def test_histograms_name_the_clip_and_do_without_clicks(sketches):
    drawn = histograms_picture(sketches, "Histograms", p_min=0.02)
    assert "p_min 0.02" in drawn
    assert "clip 50" in drawn
    quiet = CalibrationSketch.of(score=[0.1, 0.2], outcome=[0, 0])
    assert "no clicked rows" in histograms_picture({"raw": quiet}, "Histograms")


def test_segments_are_named_from_the_top_and_filled_if_clear():
    names = ["<b>&", "x" * 100, "fr"]
    drawn = segments_picture(
        [segment(n, 1 + i) for i, n in enumerate(names)], [True, False, False], "Segments"
    )
    picture = ET.fromstring(drawn)
    marks = list(picture.iter(f"{SVG}circle"))
    assert [mark.get("fill") for mark in marks] == ["var(--before)", "var(--surface)", "var(--surface)"]
    assert [float(mark.get("cx")) for mark in marks] == sorted(float(mark.get("cx")) for mark in marks)
    assert [float(mark.get("cy")) for mark in marks] == sorted(float(mark.get("cy")) for mark in marks)
    words = [each.text for each in picture.iter(f"{SVG}text")]
    assert "c = <b>&" in words
    assert all(len(each) < 90 for each in words if each)


def test_an_infinite_ratio_is_drawn_at_the_edge():
    (mark,) = ET.fromstring(segments_picture([segment("a", np.inf)], [True], "Segments")).iter(f"{SVG}circle")
    assert 0 < float(mark.get("cx")) < 960


def test_a_report_of_an_audit_loads_no_matplotlib():
    code = (
        "import sys, pyarrow as pa, numpy as np, unskew as us\n"
        "from unskew.report.audit_report import render_audit_report\n"
        "p = np.tile([.1, .4], 500); o = np.arange(1000) % 5 == 0\n"
        "frame = pa.table({'p': p, 'o': o, 'c': np.repeat(['a', 'b'], 500)})\n"
        "page = render_audit_report(us.audit(frame, score='p', outcome='o', segments=['c']))\n"
        "assert page.count('<svg') == 4, page.count('<svg')\n"
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
