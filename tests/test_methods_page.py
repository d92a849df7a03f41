"""The tables on the pages of the methods are what the code makes today."""

from __future__ import annotations

import doctest
import importlib.util
import re
from pathlib import Path

import pytest

from unskew.debias import METHODS
from unskew.errors import DataError

DOCS = Path(__file__).parents[1] / "docs"
PAGES = DOCS / "methods"
INDEX = PAGES / "index.md"


@pytest.fixture(scope="module")
def make_tables():
    spec = importlib.util.spec_from_file_location("make_tables", DOCS / "make_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_index_is_up_to_date(make_tables):
    page = INDEX.read_text(encoding="utf-8")
    assert re.findall(r"<!-- table: (\w+) -->", page) == ["methods", "unbiasedness", "estimators"]
    remedy = "run: python docs/make_tables.py"
    assert page == make_tables.with_tables(page), remedy


def test_every_method_of_the_library_has_a_line_and_a_page(make_tables):
    lines = {row[0]: row for row in make_tables.show_methods().rows}
    for name, method in METHODS.items():
        if method.__module__.startswith("unskew."):
            assert lines[f"[`{name}`]({name}.md)"][1] == f"`{method.__name__}`"
            assert (PAGES / f"{name}.md").is_file(), f"docs/methods/{name}.md is missing"


def test_links_between_pages_lead_somewhere():
    for page in PAGES.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+\.md)\)", page.read_text(encoding="utf-8")):
            assert (PAGES / target).is_file(), f"{page.name} → {target}"


def test_the_example_on_the_index_is_true():
    result = doctest.testfile(str(INDEX), module_relative=False, encoding="utf-8")
    assert result.attempted > 0
    assert result.failed == 0


def test_an_unknown_table_is_told(make_tables):
    with pytest.raises(DataError, match="there is no table 'weather'"):
        make_tables.with_tables("<!-- table: weather -->\n<!-- end of table -->")


def test_marks_may_be_empty_and_text_around_them_is_kept(make_tables):
    page = "before\n<!-- table: methods -->\n<!-- end of table -->\nafter <!-- end of table -->"
    made = make_tables.with_tables(page)
    assert made.startswith("before\n<!-- table: methods -->\n\n| method |")
    assert made.endswith("<!-- end of table -->\nafter <!-- end of table -->")
    assert make_tables.with_tables(made) == made
