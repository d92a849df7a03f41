"""Each calibrator has a page that the index names, and the examples on the pages are true."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from unskew.calibration import CALIBRATORS

PAGES = Path(__file__).parents[2] / "docs" / "calibrators"


def test_every_calibrator_has_a_page_and_a_row_in_the_index():
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    for name, kind in CALIBRATORS.items():
        assert f"[`{name}`]({name}.md) | `{kind.__name__}`" in index
        page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# {name} — ")
        assert page.split("\n", 2)[2].startswith("$$"), f"{name}.md opens with its formula"


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_examples_on_the_page_run_and_say_what_is_printed(page):
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.attempted > 0
    assert result.failed == 0
