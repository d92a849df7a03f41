"""Each page about a method opens with its name and formula, and its examples are true."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from unskew.debias import METHODS

PAGES = Path(__file__).parents[2] / "docs" / "methods"
BY_METHOD = sorted(page for page in PAGES.glob("*.md") if page.stem != "index")


@pytest.mark.parametrize("page", BY_METHOD, ids=lambda page: page.stem)
def test_the_page_is_about_a_method_and_opens_with_its_formula(page: Path):
    assert page.stem in METHODS
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {page.stem} — ")
    assert text.split("\n", 2)[2].startswith("$$")


@pytest.mark.parametrize("page", BY_METHOD, ids=lambda page: page.stem)
def test_examples_on_the_page_run_and_say_what_is_printed(page: Path):
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.attempted > 0
    assert result.failed == 0
