"""``unskew export``: a runtime answers as ``unskew score`` does, and what cannot be is told in one line."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import unskew as us
from cli.conftest import fails
from unskew.cli import main

onnxruntime = pytest.importorskip("onnxruntime")

QUICK = [
    "--method",
    "ips",
    "--learner",
    "mf",
    "--seeds",
    "2",
    "--propensity-epochs",
    "2",
    "--calibrator",
    "platt",
]


def make_run(folder, *arguments: str):
    """A whole run through the command line, on a file with clicks drawn from the synthetic world."""
    log = us.load("synthetic", n_users=50, n_items=40, density=0.2, seed=3).train
    table = pa.table({"user": log.user, "item": log.item, "conversion": log.known_conversion().astype(int)})
    pyarrow.csv.write_csv(table, folder / "train.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unskew.report.render_run_report", lambda **told: "<html></html>")
        data = ["--data", str(folder / "train.csv"), "--out", str(folder / "run")]
        assert main(["run", *data, *QUICK, *arguments]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs"), "--crossfit", "2")


@pytest.fixture(scope="module")
def split_run(tmp_path_factory):
    """Without cross-fitting, where no pair has a fold of its own."""
    return make_run(tmp_path_factory.mktemp("split"), "--crossfit", "0", "--method", "naive")


@pytest.fixture
def pairs(tmp_path):
    """Pairs to score, two of them unknown."""
    table = pa.table({"user": [0, 49, 7, 50, 3], "item": [39, 0, 7, 1, 99]})
    pq.write_table(table, tmp_path / "pairs.parquet")
    return tmp_path / "pairs.parquet"


def answers(path, pairs) -> np.ndarray:
    runtime = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    table = pq.read_table(pairs)
    ids = {name: np.array(list(map(str, table[name].to_pylist())), object) for name in ("user", "item")}
    return runtime.run(None, ids)[0]


def scored(run, pairs, *further: str) -> pa.Table:
    out = pairs.with_name("scored.parquet")
    arguments = [str(run), str(pairs), "-o", str(out), "--unseen", "nan", "--overwrite", *further]
    assert main(["score", *arguments]) == 0
    return pq.read_table(out)


def test_conversions_are_those_that_score_writes(run, pairs, tmp_path, capsys):
    out = tmp_path / "model.onnx"
    assert main(["export", str(run), "-o", str(out), "--json", str(tmp_path / "told.json")]) == 0
    assert (
        "conversion, propensity, click_and_conversion (ips, calibrated by platt, mean of 2 seeds) as ONNX"
        in capsys.readouterr().out
    )
    expected = scored(run, pairs)["conversion"].to_numpy()
    assert np.isnan(expected).tolist() == [False, False, False, True, True]
    np.testing.assert_allclose(answers(out, pairs), expected, rtol=1e-5)
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["bytes"] == out.stat().st_size
    assert (told["what"], told["users"], told["items"], told["seeds"]) == ("conversion", 50, 40, [0, 1])


def test_propensities_without_folds_are_those_that_score_writes(split_run, pairs, tmp_path, capsys):
    out = tmp_path / "p.onnx"
    assert main(["export", str(split_run), "-o", str(out), "--what", "propensity"]) == 0
    assert "propensity (calibrated by platt, mean of 2 seeds)" in capsys.readouterr().out
    np.testing.assert_allclose(answers(out, pairs), scored(split_run, pairs)["propensity"], rtol=1e-5)


def test_with_folds_it_says_that_score_differs(run, tmp_path, capsys):
    assert main(["export", str(run), "-o", str(tmp_path / "p.onnx"), "--what", "propensity"]) == 0
    assert (
        "the mean over 2 folds as its propensity here, and that of its own fold from unskew score"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "-o", "m.onnx"], ["nowhere", "is not a folder"]),
        (["{run}", "-o", "m.onnx", "--what", "clicks"], ["--what must be all, conversion or propensity"]),
        (["{run}", "-o", "m.onnx", "--method", "mrdr"], ["no method 'mrdr'", "naive, ips_raw, ips"]),
        (
            ["{run}", "-o", "m.onnx", "--what", "propensity", "--method", "ips"],
            ["--method goes with a conversion model"],
        ),
        (["{run}", "-o", "nowhere/m.onnx"], ["nowhere/m.onnx", "folder does not exist"]),
        (["{run}", "-o", "."], ["is a folder"]),
        (["{run}", "-o", "new/"], ["new/: names a folder", "such as new/model.onnx"]),
    ],
)
def test_what_cannot_be_exported_is_told_in_one_line(run, tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    line = fails(["export", *(each.format(run=run) for each in arguments)], capsys)
    for word in words:
        assert word in line
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_a_model_alone_has_no_propensity(run, tmp_path, capsys):
    us.load_model(run).save(tmp_path / "model")
    line = fails(["export", tmp_path / "model", "-o", tmp_path / "p.onnx", "--what", "propensity"], capsys)
    assert "holds no propensity" in line
    assert [each.name for each in tmp_path.iterdir()] == ["model"]
