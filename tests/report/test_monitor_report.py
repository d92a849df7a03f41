"""The report of a monitor: well-formed, escaped, in the page's colours, and of what was found."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.audit.monitor import monitor
from unskew.audit.monitor_add import add
from unskew.audit.monitor_store import MonitorSettings
from unskew.audit.periods import By
from unskew.io.stream import Roles
from unskew.report.monitor_report import render_monitor_report
from unskew.report.plots.over_time import shared_reach
from unskew.report.style import COLOURS

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["de", "fr", "<b>&'x", "a name that is longer than anybody reads, by far"]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("monitor")
    generator = np.random.default_rng(0)
    rows = 60_000
    score = 1 / (1 + np.exp(-generator.normal(-2, 1, rows)))
    which, day = generator.integers(0, len(NAMES), rows), generator.integers(0, 12, rows)
    rate = score * np.where((which == 1) & (day >= 8), 1.6, 1.0)
    time = np.datetime64("2026-01-01", "us") + day.astype("timedelta64[D]")
    table = {"p": score, "o": generator.random(rows) < rate, "c": np.array(NAMES)[which], "t": time}
    pq.write_table(pa.table(table), folder / "rows.parquet")
    kept = MonitorSettings(Roles("p", "o", None, ("c",)), By("t", "day"), maturity="1d")
    add(folder / "store", folder / "rows.parquet", settings=kept, as_of=np.datetime64("2026-01-12T12"))
    return monitor(folder / "store", value=2.0)


@pytest.fixture(scope="module")
def page(result):
    return render_monitor_report(result)


@pytest.fixture(scope="module")
def pictures(page):
    return [ET.fromstring(each) for each in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_the_page_says_what_was_found(page, result):
    assert "have been off since 2026-01-09" in page
    assert result.headline in page
    for title in (
        "What broke",
        "Is this propensity still honest?",
        "How did it come about?",
        "What would have been seen?",
    ):
        assert title in page


def test_the_heat_map_has_a_field_a_segment_and_period_and_frames_what_is_off(pictures, result):
    heat = pictures[0]
    assert len(heat.findall(f"{SVG}g")) == 12 * (1 + len(NAMES))
    frames = [each for each in heat.iter(f"{SVG}rect") if each.get("fill") == "none"]
    width = float(heat.get("viewBox").split()[2])
    assert all(float(each.get("x")) + float(each.get("width")) + 1 <= width for each in frames)
    assert len(frames) == sum(len(each.breaks) for each in result.histories)
    (field,) = (
        g for g in heat.findall(f"{SVG}g") if g.find(f"{SVG}title").text.startswith("c = fr, 2026-01-09")
    )
    place = field.find(f"{SVG}rect")
    framed = [
        frame
        for frame in frames
        if float(frame.get("x")) <= float(place.get("x")) <= float(frame.get("x")) + float(frame.get("width"))
        and float(frame.get("y"))
        <= float(place.get("y"))
        <= float(frame.get("y")) + float(frame.get("height"))
    ]
    assert len(framed) == 1
    open_fields = [g for g in heat.findall(f"{SVG}g") if g.find(f"{SVG}circle") is not None]
    assert len(open_fields) == len(result.open) * (1 + len(NAMES))


def test_small_figures_have_a_point_a_period_within_their_frame(pictures, result):
    small = pictures[1:]
    assert len(small) == 1 + len(NAMES)
    for picture in small:
        _, _, width, height = map(float, picture.get("viewBox").split())
        points = list(picture.iter(f"{SVG}circle"))
        assert len(points) == 12
        assert all(0 <= float(p.get("cx")) <= width and 0 <= float(p.get("cy")) <= height for p in points)
    assert shared_reach(result.histories) > np.log(1.5)


def test_colours_follow_the_page_and_names_are_escaped(page, pictures):
    used = set(re.findall(r"var\(--(\w+)\)", "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))))
    assert used <= {colour.name for colour in COLOURS}
    assert "#" not in "".join(ET.tostring(each, encoding="unicode") for each in pictures)
    assert "<b>" not in page[page.index("<main>") :]
    assert page.count("<script") == 1
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_first_screen_is_what_it_costs_and_the_heat_map(page, result):
    top = page[page.index('id="top"') : page.index('id="verdict"')]
    assert top.index('class="cost') < top.index("<svg")
    assert re.search(r"for c = fr since 2026-01-09 the scores promise .* too (few|many) \(95 % interval", top)
    assert "move it sideways" in top


def test_the_worst_are_listed_with_their_cost(page, result):
    section = page[page.index('id="worst"') : page.index('id="time"')]
    assert section.count("<tr>") == 1 + sum(bool(each.breaks) for each in result.histories)
    assert "c = fr" in section
    found = result.segments[0].breaks[0]
    assert f"{found.money:,.0f}" in section
