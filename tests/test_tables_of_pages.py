"""The tables and lists on pages are what the code makes today."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import make_tables
import pytest

from unskew.base.errors import DataError
from unskew.debias import METHODS

DOCS = Path(__file__).parents[1] / "docs"
PAGES = DOCS / "methods"
INDEX = PAGES / "index.md"


@pytest.mark.parametrize("page", make_tables.PAGES, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_tables_and_lists_are_up_to_date(page):
    text = page.read_text(encoding="utf-8")
    assert "<!-- table: " in text or "<!-- names: " in text
    assert text == make_tables.with_tables(text), "run make pages"


def test_the_index_has_its_tables():
    page = INDEX.read_text(encoding="utf-8")
    assert re.findall(r"<!-- table: (\w+) -->", page) == ["methods"]


def test_every_method_of_the_library_has_a_line_and_a_page():
    lines = {row[0]: row for row in make_tables.show_methods().rows}
    for name, method in METHODS.built_in.items():
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


def test_an_unknown_table_is_told():
    with pytest.raises(DataError, match="there is no table 'weather'"):
        make_tables.with_tables("<!-- table: weather -->\n<!-- end of table -->")


def test_marks_may_be_empty_and_text_around_them_is_kept():
    page = "before\n<!-- table: methods -->\n<!-- end of table -->\nafter <!-- end of table -->"
    made = make_tables.with_tables(page)
    assert made.startswith("before\n<!-- table: methods -->\n\n| method |")
    assert made.endswith("<!-- end of table -->\nafter <!-- end of table -->")
    assert make_tables.with_tables(made) == made
