"""Every example in a docstring runs, and says what is printed."""

from __future__ import annotations

import doctest
import importlib
import warnings
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
MODULES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def test_there_are_examples():
    assert len(MODULES) > 100


@pytest.mark.parametrize("name", MODULES)
def test_examples_run_and_say_what_is_printed(name, tmp_path, monkeypatch):
    module = importlib.import_module(name)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.failed == 0
