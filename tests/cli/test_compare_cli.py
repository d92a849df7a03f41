"""``unskew compare``: a run's models on the clicks that they held out, from the run folder alone."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import unskew as us
from unskew.cli import main

QUICK = ["--method", "ips", "--learner", "mf", "--seeds", "2", "--propensity-epochs", "2", "--device", "cpu"]


def quick_run(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Path:
    monkeypatch.setattr("unskew.report.render_run_report", lambda **told: "<html></html>")
    monkeypatch.chdir(folder)
    data = us.load("synthetic", n_users=50, n_items=40, density=0.2, seed=3)
    rows = zip(data.train.user, data.train.item, data.train.known_conversion(), strict=True)
    lines = [f"u{user},{item},{conversion:.0f}" for user, item, conversion in rows]
    Path("log.csv").write_text("\n".join(["who,what,bought", *lines]))
    columns = ("--user", "who", "--item", "what", "--conversion", "bought")
    options = options or ("--crossfit", "2")
    assert main(["run", "--data", "log.csv", *columns, *QUICK, "--out", "run", *options]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return quick_run(tmp_path_factory.mktemp("compare"), monkeypatch)


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["compare", *arguments]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    return error


def test_it_prints_estimates_and_a_verdict_for_every_pair_and_metric(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["compare", str(run), "--metric", "nll", "--metric", "auc", "--resamples", "50"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"nll +0\.\d{4} \(0\.\d{4} to 0\.\d{4}\)", told)
    assert re.search(r"auc +0\.\d{4} \(0\.\d{4} to [01]\.\d{4}\) \[0\.\d+ to [01]\.\d+\]", told)
    assert len(re.findall("^· .*(is better than|the data cannot tell)", told, re.MULTILINE)) == 3 * 2


def test_json_holds_what_the_library_finds_with_the_models_of_the_folder(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "told.json"
    page = tmp_path / "told.md"
    options = ["--estimator", "dr", "--baseline", "naive", "--resamples", "50", "--seed", "7"]
    code = main(["compare", str(run), *options, "--json", str(out), "--markdown", str(page)])
    assert code == 0
    expected = us.compare_run(run, estimator="dr", baseline="naive", resamples=50, seed=7)
    assert json.loads(out.read_text()) == json.loads(json.dumps(expected.to_dict()))
    assert page.read_text(encoding="utf-8") == expected.to_markdown() + "\n"
    assert {each.worse for each in expected.differences} | {each.better for each in expected.differences} == {
        "naive",
        "ips_raw",
        "ips",
    }


def test_models_that_held_nothing_out_are_one_line_and_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = quick_run(tmp_path, monkeypatch, "--protocol", "paper")
    assert "ips_raw, ips trained on every click of the log" in fails(capsys, str(run))


def test_bad_folders_and_options_are_one_line_and_code_2(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is not a folder" in fails(capsys, str(tmp_path / "nothing"))
    assert "this run has no model 'magic'" in fails(capsys, str(run), "--model", "magic")
    assert "no off-policy estimate of 'recall@2'" in fails(capsys, str(run), "--metric", "recall@2")
    assert "is a folder" in fails(capsys, str(run), "--json", str(tmp_path))
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    (broken / "propensities.parquet").unlink()
    assert "propensities.parquet is missing" in fails(capsys, str(broken))


def test_random_impressions_are_planned_from_a_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "plan.json"
    assert main(["plan-random", str(run), "--metric", "nll", "--metric", "dcg@4", "--json", str(out)]) == 0
    plan = json.loads(out.read_text())
    compared = us.compare_run(run, models=("naive", "ips"), metrics=["nll"], slate=16)
    assert plan["models"] == ["naive", "ips"]
    assert plan["metrics"]["nll"]["difference"] == pytest.approx(compared.differences[0].advantage)
    assert plan["metrics"]["nll"]["better"] == compared.differences[0].better
    assert plan["metrics"]["dcg@4"]["sigma"] > 0
    assert "in sign too" in capsys.readouterr().out
    # Two folders of one log are as two models of one run.
    two = us.plan_random(run, run, models=("naive", "ips"), metrics=["nll"])
    assert two.plans["nll"].difference == plan["metrics"]["nll"]["difference"]


def test_a_plan_from_a_run_refuses_models_that_are_not_there(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, message in (
        (["--model", "ips"], "1 model(s) are named"),
        (["--model", "ips", "--model", "mrdr"], "this run has no model 'mrdr'"),
        (["--model", "ips", "--model", "ips"], "compared with itself"),
        (["--score", "x"], "--score has no effect on run folders"),
    ):
        assert main(["plan-random", str(run), *options]) == 2
        assert message in capsys.readouterr().err
