"""Without torch, numba and safetensors: linear models and trees from log to score, to the last digit."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from unskew.cli import main

pl = pytest.importorskip("polars")

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numba", "safetensors"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocked())
"""
RUN = ["run", "log.parquet", "--space", "impressions", "--features", "age", "--crossfit", "2", "--seeds", "1"]
SCORED = ["scored.parquet", "--score", "propensity", "--outcome", "click"]
COMMANDS = [
    [*RUN, "--propensity", "linear", "--learner", "blend", "--method", "snips", "--out", "run"],
    ["score", "run", "log.parquet", "--out", "scored.parquet"],
    ["audit", "scored.parquet", "--score", "conversion", "--outcome", "click"],
    [
        "weights",
        "scored.parquet",
        "--score",
        "conversion",
        "--outcome",
        "click",
        "--out",
        "w.parquet",
    ],
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    user, item, age = rng.integers(40, size=900), rng.integers(20, size=900), rng.normal(size=900)
    click = rng.random(900) < 1 / (1 + np.exp(0.5 - age))
    conversion = click & (rng.random(900) < 0.4)
    columns = {"user": user, "item": item, "age": age, "click": click * 1, "conversion": conversion * 1}
    pl.DataFrame(columns).write_parquet(tmp_path / "log.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def in_a_process(code, folder):
    return subprocess.run([sys.executable, "-c", BLOCKED + code], cwd=folder, capture_output=True, text=True)


def test_verbs_do_the_same_work(folder, undrawn):
    run, score = COMMANDS[:2]
    done = in_a_process(f"from unskew.cli import main\nprint([main(each) for each in {COMMANDS!r}])", folder)
    assert done.stdout.splitlines()[-1] in ("[0, 0, 0, 0]", "[0, 0, 1, 0]"), done.stderr
    theirs = pl.read_parquet(folder / "scored.parquet")
    assert main([*run, "--overwrite"]) == 0
    assert main([*score, "--overwrite"]) == 0
    ours = pl.read_parquet(folder / "scored.parquet")
    assert ours.equals(theirs)


LOG = "import unskew as us; log = us.load('synthetic', n_users=20, n_items=20).train; "


@pytest.mark.parametrize(
    "code",
    [
        LOG + "us.IPS().fit(log, propensity=0.5)",
        LOG + "us.Propensity().fit(log)",
        LOG + "us.export_onnx(us.Propensity(learner=us.Linear(), crossfit=2).fit(log), 'p.onnx')",
        f"from unskew.cli import main; main({[*RUN, '--learner', 'dcn', '--method', 'naive', '--out', 'x']})",
    ],
)
def test_what_needs_torch_says_what_to_install(folder, code):
    said = in_a_process(code, folder).stderr.strip().splitlines()[-1]
    assert "needs PyTorch" in said
    assert "pip install 'unskew[torch]'" in said
