"""The page of the propensities: its examples are true, and it names every class."""

from __future__ import annotations

import doctest
from pathlib import Path

from unskew import propensity
from unskew.base.estimator import Estimator

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "propensities.md"


def test_examples_on_the_page_run_and_say_what_is_printed():
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted > 5
    assert result.failed == 0


def test_every_propensity_has_its_line():
    page = PAGE.read_text(encoding="utf-8")
    public = [getattr(propensity, name) for name in propensity.__all__ if name.endswith("Propensity")]
    assert len(public) >= 5
    for kind in public:
        assert issubclass(kind, Estimator)
        assert f"| `{kind.__name__}" in page
