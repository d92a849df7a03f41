"""Each metric has a section on the page that opens with its formula; the examples are true."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import pytest

from unskew import metrics

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
TEXT = PAGE.read_text(encoding="utf-8")
METRICS = [name for name in metrics.__all__ if not inspect.isclass(getattr(metrics, name))]


@pytest.mark.parametrize("name", METRICS)
def test_every_public_metric_has_a_section_with_its_formula(name):
    assert f"[`{name}`](#{name})" in TEXT
    assert re.search(rf"^## {name}\n\n[^\n]+\n\n\$\$", TEXT, re.MULTILINE)


def test_examples_run_and_say_what_is_printed():
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted > len(METRICS)
    assert result.failed == 0
