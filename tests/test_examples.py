"""Every example runs, and prints what it is there to show: the scripts, those of the README and the guide."""

from __future__ import annotations

import doctest
import re
import runpy
import warnings
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from unskew.base.registry import METHODS

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
MOST_LINES = 50
ENGINES = ("ray", "spark", "duckdb")
"""Examples on these are in test_engines.py."""

SHOWN = {
    "quickstart": r"propensities: ECE 0\.\d+.*\nauc +0\.\d+ ± 0\.\d+",
    "own_propensities": r"naive +mean conversion 0\.4.*\nsnips +mean conversion (0\.29|0\.30)",
    "add_a_method": r"'damped-ips': 0\.\d+",
    "calibrate_any_scores": r"none +ECE 0\.03.*\nplatt +ECE 0\.00",
    **{
        name: rf"naive predicts \+0\.(1|08)\d+ too much .*\n{method} +predicts \+0\.0[0-5]\d too much"
        for name, method in (
            ("own_torch_loop", "dr"),
            ("own_boosted_trees", "snips"),
            ("own_sklearn_pipeline", "snips"),
        )
    },
    "compare_methods": r"naive +AUC 0\.\d+\n(\S+ +AUC .* p = [01]\.\d\d\n){4}",
}


def test_every_example_is_tested_and_short():
    files = sorted(file for file in EXAMPLES.glob("*.py") if not file.stem.endswith(ENGINES))
    assert {file.stem for file in files} == set(SHOWN)
    for file in files:
        assert len(file.read_text(encoding="utf-8").splitlines()) < MOST_LINES, file.name


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What an example draws needs no window."""
    plt.switch_backend("agg")
    monkeypatch.setattr(plt, "show", lambda: None)
    yield
    plt.close("all")


@pytest.fixture
def own_methods() -> Iterator[None]:
    """What an example registers is gone after it."""
    before = set(METHODS)
    yield
    for name in set(METHODS) - before:
        del METHODS[name]


@pytest.mark.usefixtures("own_methods", "unseen")
@pytest.mark.parametrize("name", SHOWN)
def test_the_example_runs_without_warnings_and_shows(name: str, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert re.search(SHOWN[name], shown), shown


def test_the_guide_does_what_it_says():
    page = ROOT / "docs" / "start" / "ten-minutes.md"
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.attempted > 15
    assert result.failed == 0


@pytest.mark.parametrize("page", ["explanation/ensembles.md", "explanation/level.md"])
def test_the_pages_on_ensembles_and_level_do_what_they_say(page):
    result = doctest.testfile(str(ROOT / "docs" / page), module_relative=False, encoding="utf-8")
    assert result.attempted > 5
    assert result.failed == 0


def test_the_examples_of_the_readme_print_what_it_says():
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False, encoding="utf-8")
    assert result.attempted > 10
    assert result.failed == 0
