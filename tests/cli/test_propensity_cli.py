"""Which propensity `run` and `weights` train: by name, by a column, or the best of three."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.cli import main

QUICK = ["--space", "impressions", "--learner", "mf", "--method", "naive", "--seeds", "1", "--crossfit", "2"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Impressions, clicked by habit and appeal, with somebody's propensities that are half of the true."""
    draw = np.random.default_rng(0)
    user, item = draw.integers(0, 200, 4000), draw.integers(0, 80, 4000)
    p = 1 / (1 + np.exp(2 - draw.normal(0, 0.7, 200)[user] - draw.normal(0, 0.7, 80)[item]))
    click = (draw.random(4000) < p).astype(int)
    conversion = click * (draw.random(4000) < 0.4)
    table = pa.table({"user": user, "item": item, "click": click, "conversion": conversion, "theirs": p / 2})
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(table, path)
    return path


def run(log, tmp_path, *arguments):
    assert main(["run", "--data", str(log), *QUICK, "--out", str(tmp_path / "run"), *arguments]) == 0
    return json.loads((tmp_path / "run" / "metrics.json").read_text())


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    monkeypatch.setattr("unskew.report.render_run_report", lambda **told: "<html></html>")


def test_the_choice_is_printed_and_written(log, tmp_path, capsys):
    metrics = run(log, tmp_path)
    assert metrics["propensity_by"]["chosen"] in ("linear", "popularity")
    assert f"propensity by {metrics['propensity_by']['chosen']}, chosen by" in capsys.readouterr().out
    config = (tmp_path / "run" / "config.toml").read_text()
    assert 'kind = "auto"' in config


def test_a_column_is_calibrated_and_no_propensity_is_kept(log, tmp_path, capsys):
    metrics = run(log, tmp_path, "--propensity", "theirs")
    assert "propensity by column 'theirs'" in capsys.readouterr().out
    assert metrics["propensity"]["raw"]["mean_over_base_rate"] == pytest.approx(0.5, abs=0.05)
    assert metrics["propensity"]["calibrated"]["mean_over_base_rate"] == pytest.approx(1.0, abs=0.02)
    scored = tmp_path / "scored.parquet"
    assert main(["score", str(tmp_path / "run"), str(log), "-o", str(scored)]) == 0
    assert "propensity" not in pq.read_schema(scored).names
    assert (
        main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "p.onnx"), "--what", "propensity"]) == 2
    )
    assert "holds no propensity" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--propensity", "linaer"], "unknown propensity 'linaer'. To fix: use linear, or one of auto"),
        (["--propensity", "linear", "--propensity-epochs", "3"], "'linear' has no propensity_epochs"),
        (["--propensity", "trees", "--uncertainty", "mc-dropout"], "'trees' has no uncertainty"),
        (["--propensity", "popularity", "--protocol", "paper"], "has no protocol 'paper'"),
        (["--propensity", "naive-bayes"], "naive Bayes needs a test set of pairs shown at random"),
        (["--propensity", "theirs", "--space", "matrix", "--duplicates", "max"], "tells nothing of pairs"),
    ],
)
def test_what_does_not_go_together_is_one_line(log, tmp_path, capsys, arguments, words):
    given = [
        each for each in QUICK if "protocol" not in " ".join(arguments) or each not in ("--crossfit", "2")
    ]
    assert main(["run", "--data", str(log), *given, "--out", str(tmp_path / "run"), *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["auto", "popularity", "trees"])
def test_weights_train_any_kind_and_say_which(log, tmp_path, name, capsys):
    out = tmp_path / "w.parquet"
    arguments = [
        "--user",
        "user",
        "--item",
        "item",
        "--outcome",
        "click",
        "--propensity",
        name,
        "--folds",
        "2",
    ]
    figures = tmp_path / "w.json"
    assert main(["weights", str(log), *arguments, "-o", str(out), "--json", str(figures)]) == 0
    told = json.loads(figures.read_text())["propensity"]
    assert told.startswith("propensity by ")
    assert ("chosen by held-out NLL" in told) == (name == "auto")
    assert told[1:] in " ".join(capsys.readouterr().out.split())
    assert len(pq.read_table(out)) == 4000
