"""Every example runs, and prints what it is there to show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
MOST_LINES = 30
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
    files = sorted(EXAMPLES.glob("*.py"))
    assert {file.stem for file in files} == set(SHOWN)
    for file in files:
        assert len(file.read_text(encoding="utf-8").splitlines()) < MOST_LINES, file.name


@pytest.mark.parametrize("name", SHOWN)
def test_the_example_runs_without_warnings_and_shows(name: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(SHOWN[name], done.stdout), done.stdout
