"""``--log-json`` of the verbs that work for long: a JSON object a line, from the first to the last step."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.cli import main


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.9, 400)
    rows = {"user": rng.integers(0, 20, 400), "item": rng.integers(0, 15, 400), "p": p}
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(pa.table({**rows, "click": (rng.random(400) < p).astype(int)}), path)
    return path


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_training_and_scoring_are_logged(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick = ["--learner", "mf", "--seeds", "1", "--crossfit", "2", "--propensity-epochs", "2"]
    run = ["run", "--data", str(table), "--space", "impressions", "--method", "none", "--out", "run"]
    assert main([*run, *quick, "--propensity", "mf", "--log-json", "run.jsonl"]) == 0
    told = [each for each in records(tmp_path / "run.jsonl") if each["phase"] == "propensity"]
    assert [each["event"] for each in told] == ["start", "progress", "progress", "end"]
    assert [each.get("epoch") for each in told] == [None, 1, 2, 2]
    assert told[-1]["loss"] > 0
    assert told[-1]["rows_per_second"] > 0
    assert main(["score", "run", str(table), "-o", "scored.parquet", "--log-json", "score.jsonl"]) == 0
    assert records(tmp_path / "score.jsonl")[-1]["rows"] == 400


def test_a_log_that_cannot_be_written_stops_before_the_work(table, tmp_path, capsys):
    line = ["audit", str(table), "--score", "p", "--outcome", "click", "--no-report"]
    assert main([*line, "--log-json", str(tmp_path / "none" / "log.jsonl")]) == 2
    assert "--log-json" in capsys.readouterr().err
