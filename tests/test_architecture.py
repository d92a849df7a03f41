"""The drawing of the packages is that of the code, and its walks can be walked."""

from __future__ import annotations

import re

import pytest
from import_graph import SOURCE, imported_files
from make_architecture import DRAWING, PAGE, direct, drawing, page, rounded, written_lines

TEXT = PAGE.read_text(encoding="utf-8")
WALKS = dict(re.findall(r"^### (.+)\n\n((?:\d+\. .+\n)+)", TEXT, re.MULTILINE))


def test_the_drawing_and_the_table_are_those_of_the_code():
    told, now = written_lines(TEXT), rounded()
    assert set(told) == set(now), "run make pages"
    # A package may grow a little before it is drawn again.
    far = {name for name in now if abs(told[name] - now[name]) > max(50, 0.1 * now[name])}
    assert far == set(), "run make pages"
    assert page(TEXT, told) == TEXT, "run make pages"
    assert DRAWING.read_text(encoding="utf-8") == drawing(told), "run make pages"


def test_an_arrow_is_drawn_once_and_leads_to_what_is_not_reached_otherwise():
    needs = direct()
    assert "debias" in needs["fields"]
    assert "propensity" not in needs["fields"], "reached through debias"
    assert "debias" not in needs["run"], "reached through fields"
    assert "errors" not in needs, "a file that all import has no arrows"


def test_there_are_three_walks():
    assert [title.strip("`").split("(")[0] for title in WALKS] == ["us.IPS", "unskew run", "unskew audit"]


@pytest.mark.parametrize("walk", WALKS)
def test_each_file_of_a_walk_is_imported_by_one_above_it_and_none_comes_twice(walk):
    files = [SOURCE / name for name in re.findall(r"^\d+\. `([\w/]+\.py)`", WALKS[walk], re.MULTILINE)]
    assert len(files) == WALKS[walk].count("\n"), "one file a line"
    assert len(files) == len(set(files))
    reached = {files[0]}
    for file in files:
        assert file.is_file()
        assert file in reached, f"{file.relative_to(SOURCE)} is not imported by a file above it"
        reached |= imported_files(file)


def test_a_fit_is_followed_in_six_files():
    (fit,) = (steps for walk, steps in WALKS.items() if ".fit(" in walk)
    assert fit.count("\n") <= 6
