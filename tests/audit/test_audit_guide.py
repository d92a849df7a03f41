"""The guide's code runs, and what it says of commands and columns is so."""

from __future__ import annotations

import doctest
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "audit.md"


def test_the_code_of_the_guide_gives_what_it_says() -> None:
    failed, attempted = doctest.testfile(str(GUIDE), module_relative=False, encoding="utf-8")
    assert attempted > 5
    assert failed == 0
