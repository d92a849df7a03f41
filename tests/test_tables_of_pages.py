"""The tables and lists on pages are what the code makes today."""

from __future__ import annotations

import doctest
from pathlib import Path

import make_tables
import pytest

from unskew.debias import METHODS

DOCS = Path(__file__).parents[1] / "docs"
PAGES = DOCS / "methods"
INDEX = PAGES / "index.md"


@pytest.mark.parametrize("page", make_tables.PAGES, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_tables_and_lists_are_up_to_date(page):
    text = page.read_text(encoding="utf-8")
    assert "<!-- table: " in text or "<!-- names: " in text
    assert text == make_tables.with_tables(text), "run make pages"


def test_every_method_of_the_library_has_a_line_and_a_page():
    lines = {row[0]: row for row in make_tables.show_methods().rows}
    for name, method in METHODS.built_in.items():
        assert lines[f"[`{name}`]({name}.md)"][1] == f"`{method.__name__}`"
        assert (PAGES / f"{name}.md").is_file(), f"docs/methods/{name}.md is missing"


def test_the_example_on_the_index_is_true():
    result = doctest.testfile(str(INDEX), module_relative=False, encoding="utf-8")
    assert result.attempted > 0
    assert result.failed == 0
