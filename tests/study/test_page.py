"""The page of a study: a picture and one sentence first, then tables that a phone can show."""

from __future__ import annotations

import re

import pytest

from unskew.metrics.user_bootstrap import UserInterval
from unskew.study.grid import Row
from unskew.study.page import first_screen, write_pages
from unskew.study.table import Figure, StudySummary


def figure(mean: float, low: float | None = None, high: float | None = None) -> Figure:
    users = None if low is None else UserInterval(low=low, high=high)
    return Figure(mean=mean, std=0.01, seeds=3, users=users, is_of_users=low is not None)


@pytest.fixture
def summary() -> StudySummary:
    rows = {
        Row("coat", "honest", "", "", "naive"): figure(1.7, 1.4, 2.0),
        Row("coat", "honest", "neumf", "none", "ips"): figure(0.8, 0.7, 0.9),
        Row("coat", "honest", "neumf", "platt", "ips"): figure(1.01, 0.95, 1.07),
    }
    made = {row: {"mean_over_rate": level, "auc": figure(0.7)} for row, level in rows.items()}
    return StudySummary("Models", made, ("auc", "mean_over_rate"), "mean <b>")


def test_charts_have_a_row_each_with_its_interval(summary):
    level, auc = first_screen(summary, None, "naive").charts
    assert [row.dots[0].look for row in level.rows] == ["naive", "raw", "calibrated"]
    assert (level.rule, level.rows[1].dots[0].low, level.rows[1].aside) == (1, 0.7, "0.800")
    assert auc.rows[0].dots[0].low == pytest.approx(0.69), "one standard deviation where users are not known"


def test_the_page_begins_with_them_and_names_its_cells(summary, tmp_path):
    write_pages(tmp_path, "mine", [summary.shown()], ["a `note`"], first_screen(summary, None, "naive"))
    page = (tmp_path / "tables.html").read_text()
    assert page.index('class="panel') < page.index("<table")
    assert "<h1>Study: mine</h1>" in page
    assert "<code>note</code>" in page
    assert "<b>" not in page[page.index("<table") :]
    assert all("data-head" in cell for cell in re.findall(r"<td([^>]*)>", page))
    assert not re.findall(r"https?:", re.sub(r'xmlns(:\w+)?="[^"]*"', "", page))


def test_a_study_of_propensities_shows_their_errors(summary):
    errors = {row: {"wce": figure(0.2), "ece": figure(0.01)} for row in summary.rows}
    made = first_screen(None, StudySummary("P", errors, ("ece", "wce"), ""), "naive")
    assert [chart.title for chart in made.charts] == ["WCE", "ECE"]
    assert first_screen(None, None, "naive").charts == ()
