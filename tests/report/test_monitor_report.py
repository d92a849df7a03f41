"""The report of a monitor: well-formed, escaped, in the page's colours, and of what was found."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.patches import Rectangle

from unskew.audit.monitor import monitor
from unskew.audit.monitor_add import add
from unskew.audit.monitor_store import MonitorSettings
from unskew.audit.periods import By
from unskew.data.stream import Roles
from unskew.report.monitor_report import render_monitor_report
from unskew.report.plots.over_time import heat_map, history_figure, shared_reach

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


def test_the_page_says_what_was_found(page, result):
    assert "have been off since 2026-01-09" in page
    assert result.headline in page
    for title in (
        "What broke",
        "Is this propensity still calibrated?",
        "How did it develop?",
        "What would have been noticed?",
    ):
        assert title in page


def test_the_heat_map_has_a_field_a_segment_and_period_and_frames_what_is_off(result):
    (axes,) = heat_map(result.histories, result.periods).axes
    fields = [patch for patch in axes.patches if not isinstance(patch, Rectangle)]
    corners = sum(len(patch.get_path().vertices) // 5 for patch in fields)
    assert corners == 2 * 12 * (1 + len(NAMES)), "a ground and a colour each"
    frames = [patch.get_bbox() for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len(frames) == sum(len(each.breaks) for each in result.histories)
    row = [each.name for each in result.histories].index("c = fr")
    column = result.periods.index("2026-01-09")
    assert sum(frame.contains(column, row) for frame in frames) == 1
    (waiting,) = (line for line in axes.lines if line.get_marker() == "o")
    assert len(waiting.get_xdata()) == len(result.open) * (1 + len(NAMES))


def test_figures_of_segments_have_a_point_a_period(result):
    for history in result.histories:
        (axes,) = history_figure(history, result.periods, tolerance=0.05, reach=0.5).axes
        closed, waiting = (line for line in axes.lines if line.get_marker() == "o")
        assert len(closed.get_xdata()) + len(waiting.get_xdata()) == 12
        low, high = axes.get_ylim()
        assert all(low <= ratio <= high for ratio in [*closed.get_ydata(), *waiting.get_ydata()])
    assert shared_reach(result.histories) > np.log(1.5)


def test_names_are_escaped_and_pictures_are_well_formed(page, result):
    pictures = [ET.fromstring(each) for each in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    assert len(pictures) == 2 + len(NAMES)
    assert "<b>" not in page[page.index("<main>") :]
    assert page.count("<script") == 1
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_first_screen_is_what_it_costs_and_the_heat_map(page, result):
    top = page[page.index('id="top"') : page.index('id="verdict"')]
    assert top.index('class="cost') < top.index("<svg")
    assert re.search(
        r"for c = fr since 2026-01-09, the scores\spredict .* too (few|many) \(95 % interval", top
    )
    assert "scroll sideways" in top
