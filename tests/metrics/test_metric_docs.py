"""Each metric has a page that the index names, opens with its formula, and whose examples are true."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

from unskew import metrics

PAGES = Path(__file__).parents[2] / "docs" / "metrics"
METRICS = [name for name in metrics.__all__ if not inspect.isclass(getattr(metrics, name))]


def test_every_public_metric_has_a_page_that_the_index_names():
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    assert {page.stem for page in PAGES.glob("*.md")} == {*METRICS, "index"}
    for name in METRICS:
        assert f"[`{name}`]({name}.md)" in index, name


@pytest.mark.parametrize("name", METRICS)
def test_a_page_opens_with_the_formula(name):
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name} — ")
    assert page.split("\n", 2)[2].startswith("$$")


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_examples_on_the_page_run_and_say_what_is_printed(page):
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.attempted > 0
    assert result.failed == 0
