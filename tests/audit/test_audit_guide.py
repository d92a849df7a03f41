"""The guide's code runs, and what it says of commands and columns is so."""

from __future__ import annotations

import doctest
from pathlib import Path

from unskew.audit.audit import FOLDS
from unskew.audit.segments import MOST_SEGMENTS
from unskew.audit.weights_files import ADDED
from unskew.metrics.judgement import LEAST_POWER, SIGNIFICANCE, TOLERANCE

GUIDE = Path(__file__).parents[2] / "docs" / "guide-propensity-honest.md"


def test_the_code_of_the_guide_gives_what_it_says() -> None:
    failed, attempted = doctest.testfile(str(GUIDE), module_relative=False, encoding="utf-8")
    assert attempted > 5
    assert failed == 0


def test_the_guide_tells_the_defaults_and_the_columns_that_are() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for field in ADDED:
        assert f"| `{field.name}` |" in text
    assert f"({100 * TOLERANCE:g} % by default)" in text
    assert f") < {SIGNIFICANCE:g}" in text
    assert f"power}} < {100 * LEAST_POWER:g}\\,\\%" in text
    assert f"| 0 … {FOLDS - 1} |" in text
    assert f"Up to {MOST_SEGMENTS:,} values" in text
