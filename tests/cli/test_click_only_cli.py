"""Logs of clicks alone: a propensity, its audit and its weights; no conversion model, and that is said."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.base.errors import ParameterError, RunFolderError
from unskew.cli import main

QUICK = ["--propensity", "linear", "--seeds", "2", "--crossfit", "2"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    draw = np.random.default_rng(0)
    user, item = draw.integers(0, 100, 3000), draw.integers(0, 60, 3000)
    p = 1 / (1 + np.exp(1.5 - draw.normal(0, 0.8, 100)[user] - draw.normal(0, 0.8, 60)[item]))
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    clicks = (draw.random(3000) < p).astype(int)
    pq.write_table(pa.table({"user": user, "item": item, "click": clicks, "p": p}), path)
    return path


@pytest.fixture(scope="module")
def run(log, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main(["run", "--data", str(log), "--space", "impressions", *QUICK, "--out", str(folder)]) == 0
    return folder


def test_run_trains_the_propensity_alone_and_says_so(log, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--data", str(log), "--space", "impressions", *QUICK]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "The log has no conversions: the propensity alone is trained" in out
    assert "give --conversion COLUMN" in out
    metrics = json.loads((tmp_path / "runs" / "log-none" / "metrics.json").read_text())
    assert metrics["methods"] == {}
    assert metrics["data"]["conversion_rate_of_clicks"] is None
    assert metrics["propensity"]["calibrated"]["auc"] > 0.6
    assert not any("test" in label and "nothing to test" not in label for label in metrics["labels"])


def test_its_folder_is_whole_and_is_repeated(run, tmp_path):
    assert "</html>" in (run / "report.html").read_text()
    table = pq.read_table(run / "propensities.parquet")
    assert {"propensity", "weight"} <= set(table.column_names)
    assert "conversion" not in table.column_names
    assert main(["run", "--config", str(run / "config.toml"), "--out", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "metrics.json").read_bytes() == (run / "metrics.json").read_bytes()


def test_score_gives_the_propensity(run, log, tmp_path):
    assert main(["score", str(run), str(log), "-o", str(tmp_path / "s.parquet")]) == 0
    scored = pq.read_table(tmp_path / "s.parquet")
    kept = pq.read_table(run / "propensities.parquet")
    np.testing.assert_allclose(scored["propensity"], kept["propensity"])
    assert "conversion" not in scored.column_names


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "{run}"],
        ["export", "{run}", "-o", "{out}", "--what", "conversion"],
        ["score", "{run}", "{log}", "-o", "{out}.parquet", "--method", "ips"],
    ],
)
def test_what_needs_a_conversion_model_is_refused_in_one_line(run, log, tmp_path, capsys, arguments):
    given = [each.format(run=run, log=log, out=tmp_path / "out") for each in arguments]
    assert main(given) == 2
    error = capsys.readouterr().err
    assert "holds no conversion model" in error
    assert error.count("\n") == 1


def test_a_method_is_refused_in_one_line(log, tmp_path, capsys):
    arguments = ["run", "--data", str(log), "--space", "impressions", "--method", "mrdr", *QUICK]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "the log has no conversions: mrdr cannot be trained, a propensity can" in error
    assert error.count("\n") == 1


def test_any_log_may_train_its_propensity_alone(tmp_path):
    world = {"options": {"n_users": 40, "n_items": 30, "density": 0.2}, "crossfit": 2, "seeds": 1}
    result = us.run(us.Config(**world, propensity="popularity", method="none"))
    assert (result.models, result.main) == ({}, "none")
    assert "truth" in result.metrics
    result.save(tmp_path / "run")
    assert us.load_propensity(tmp_path / "run").name == "popularity"
    with pytest.raises(RunFolderError, match="holds no conversion model"):
        us.load_model(tmp_path / "run")
    with pytest.raises(ParameterError, match=r"has no parameter 'method\.epochs'"):
        us.Config(method="none", parameters={"method.epochs": 3})
