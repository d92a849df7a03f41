"""The battery: methods and ``auto`` on worlds of known truth; resumed, and judged on what nobody chose on."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import pytest

import unskew as us
from unskew.cli import main
from unskew.errors import ParameterError
from unskew.study.battery import run_battery
from unskew.study.battery_result import AUTO, AUTO_ALONE, Standing, WorldResult
from unskew.study.battery_world import SINGLE

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.CollapseWarning")

ROOT = Path(__file__).parents[2]

QUICK = {
    "worlds": ["tiny"],
    "methods": ["ips"],
    "scale": "small",
    "seeds": 2,
    "members": 2,
    "backbone": "mf",
    "epochs": 3,
    "grid": False,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("battery") / "battery"


@pytest.fixture(scope="module")
def result(folder):
    return run_battery(folder, **QUICK)


def test_every_row_is_there_and_regret_is_against_the_best_candidate(result):
    (world,) = result.worlds
    assert list(world.standings) == [SINGLE, "naive", "ips", AUTO, AUTO_ALONE]
    assert world.standings[world.best].regret == 0.0
    assert world.best in ("naive", "ips")
    naive = world.standings["naive"]
    assert (naive.advantage, naive.loses, naive.wins) == (0.0, False, False)
    best = world.standings[world.best].metrics["auc"]
    for standing in world.standings.values():
        assert standing.regret == pytest.approx(best - standing.metrics["auc"], abs=1e-6)


def test_a_gap_is_beyond_noise_where_the_best_of_many_is():
    def world(advantage, others):
        standings = {
            "ips": Standing(metrics={}, advantage=advantage, standard_error=0.01, regret=0.0, seconds=1.0)
        }
        return WorldResult("toy", {}, standings, {}, "ips", others)

    assert world(0.025, 1).gap == 0.025
    assert world(0.025, 12).gap is None
    assert world(0.03, 12).gap == 0.03
    assert world(0.03, 12).closed("ips") == 1.0
    assert world(0.025, 12).closed("ips") is None


def test_auto_without_a_sample_is_the_naive_ensemble(result):
    (world,) = result.worlds
    assert {each.chosen for each in world.decisions[AUTO_ALONE]} == {"naive"}
    assert world.standings[AUTO_ALONE].metrics == world.standings["naive"].metrics
    for each in world.decisions[AUTO]:
        assert each.shipped == ("naive",) or each.mean_advantage > 0
    assert world.decisions[AUTO][0].rows == world.facts["sample"] > 10


def test_metrics_are_those_of_an_ordinary_fit(result):
    data = us.load("battery", world="tiny", scale="small")
    model = us.Naive(backbone=us.MF(dim=16), members=2, epochs=3).fit(data.train, seeds=2, device="cpu")
    expected = us.evaluate(model, data.test)["auc"].mean()
    (world,) = result.worlds
    assert world.standings["naive"].metrics["auc"] == pytest.approx(expected, abs=1e-4)
    single = us.Naive(backbone=us.MF(dim=16), epochs=3).fit(data.train, seeds=2, device="cpu")
    assert world.standings[SINGLE].metrics["auc"] == pytest.approx(
        us.evaluate(single, data.test)["auc"].mean(), abs=1e-4
    )


def test_it_is_resumed_without_training(result, folder, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nothing is left to train")

    monkeypatch.setattr("unskew.debias.method.Debiaser.fit", refuse)
    again = run_battery(folder, **QUICK)
    assert json.dumps(again.to_dict()) == json.dumps(result.to_dict())


def test_several_processes_leave_what_one_does(result, tmp_path, monkeypatch):
    trained = []
    fit = us.Debiaser.fit
    monkeypatch.setattr(
        "unskew.debias.method.Debiaser.fit", lambda *given, **options: trained.append(given) or fit(*given)
    )
    before = dict(os.environ)
    beside = run_battery(tmp_path / "battery", **QUICK, jobs=2)
    assert dict(os.environ) == before
    assert trained == []
    assert not list((tmp_path / "battery" / "results").glob(".*.claim"))
    for one, other in zip(result.worlds, beside.worlds, strict=True):
        assert other.decisions.keys() == one.decisions.keys()
        for name, standing in one.standings.items():
            assert other.standings[name].metrics == pytest.approx(standing.metrics, rel=1e-6)
    with pytest.raises(ParameterError, match="jobs must be at least 1"):
        run_battery(tmp_path / "battery", **QUICK, jobs=0)


def test_the_command_writes_tables_figures_and_a_picture(folder, result, tmp_path, capsys):
    options = ["--world", "tiny", "--method", "ips", "--scale", "small", "--seeds", "2", "--members", "2"]
    options += ["--backbone", "mf", "--epochs", "3", "--device", "cpu", "--json", str(tmp_path / "b.json")]
    options += ["--jobs", "1"]
    # With the grid, two more trainings than before.
    assert main(["study", "battery", "--out", str(folder), *options]) == 0
    shown = capsys.readouterr().out
    figures = json.loads((tmp_path / "b.json").read_text())
    assert set(figures["worlds"]["tiny"]["methods"]) == {
        SINGLE, "naive", "naive, other λ", "ips", "ips, other λ", AUTO, AUTO_ALONE,
    }  # fmt: skip
    assert figures["worlds"]["tiny"]["methods"]["naive"]["metrics"]["auc"] == pytest.approx(
        result.worlds[0].standings["naive"].metrics["auc"]
    )
    assert "loses to naive" in shown
    assert (folder / "battery.svg").read_text().startswith("<svg")
    assert "What auto chose" in (folder / "tables.md").read_text()


def test_the_page_of_results_has_its_sentences_picture_and_tables(folder, result, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    make_results = importlib.import_module("make_results")
    result.write(folder)
    page = tmp_path / "results.md"
    page.write_text(
        "# Results\n\n<!-- results: battery -->\n\nEarlier.\n\n<!-- end of results -->\n\nBelow.\n"
    )
    make_results.write_page(page, folder)
    text = page.read_text()
    assert "auto: worse than the naive ensemble beyond noise in 0 of 1 worlds" in text
    assert "| auto, no sample | " in text
    assert "Earlier." not in text
    assert text.endswith("Below.\n")
    assert (tmp_path / "figures" / "battery.svg").read_text().startswith("<svg")


def test_what_it_costs_is_said_before(folder, result):
    said = []
    again = run_battery(folder, **QUICK, tell=said.append)
    assert said[0].startswith("tiny: 240 clicks, 3 ensembles of 2 members, 2 repetitions; about ")
    assert said[-1].startswith("The battery takes about ")
    assert again.worlds[0].facts["repetitions"] == 2


def test_bad_options_are_one_line(tmp_path, capsys):
    with pytest.raises(ParameterError, match="world must be 'coat', "):
        run_battery(tmp_path / "x", worlds=["mars"])
    assert main(["study", "small", "--scale", "small"]) == 2
    assert "--scale has no effect on the study small" in capsys.readouterr().err
    assert main(["study", "battery", "--data", "coat"]) == 2
    assert "which has worlds of its own" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
