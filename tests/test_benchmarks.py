"""The scripts that make numbers of pages run, on worlds small enough for a test."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import unskew as us

ROOT = Path(__file__).parents[1]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


def test_estimates_are_unbiased_where_theory_says_so_and_only_there(benchmark):
    rows = benchmark("unbiasedness").study(redraws=400, n_users=60, n_items=50)
    assert [row[0] for row in rows] == ["naive", "IPS", "IPS", "EIB", *["DR"] * 6]
    assert all(row[-1].endswith(": holds") for row in rows)


def test_calibration_brings_estimators_close_to_true_propensities(benchmark):
    study = benchmark("estimators").study
    rows = {row[:2]: float(row[-1].split()[0]) for row in study(draws=3, calibrator="isotonic")}
    for name in ("dr", "mrdr", "stable-dr", "tdr"):
        assert rows["calibrated", name] < rows["raw", name]
        assert rows["calibrated", name] == pytest.approx(rows["true", name], abs=1.0)


def test_every_calibrator_has_a_row_beside_the_constant(benchmark):
    log = us.load("synthetic", n_users=80, n_items=60, density=0.12, seed=1).train
    raw = us.PopularityPropensity(calibrator=None, crossfit=2).fit(log)
    rows = benchmark("calibrator_comparison").study(log, raw)
    assert [row[0] for row in rows] == [*us.calibration.CALIBRATORS, "constant"]


def test_a_table_is_put_between_its_marks(benchmark, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- benchmark: x -->\n\nold\n\n<!-- end of benchmark -->\nb\n")
    common = benchmark("common")
    common.put(page, "x", common.markdown(("n", "v"), [("one", "1")]))
    made = "| n | v |\n|---|---:|\n| one | 1 |"
    assert page.read_text() == f"a\n<!-- benchmark: x -->\n\n{made}\n\n<!-- end of benchmark -->\nb\n"


def test_the_battery_judges_what_auto_ships_against_the_naive_ensemble(benchmark):
    battery = benchmark("battery")
    found = battery.run(battery.parsed(["--world", "tiny", "--small", "--epochs", "2"]))
    world = found["tiny"]
    assert set(world["shipped"]) == {"naive ensemble", "auto, no sample", "auto, 5 % sample"}
    assert world["shipped"]["naive ensemble"]["ahead"] == 0.0
    assert world["shipped"]["auto, no sample"]["models"] == 10
    assert max(world["candidates"].values()) == world["candidates"][world["best"]]
    assert "worlds won" in battery.page(found)


def test_what_is_timed_trains(benchmark):
    benchmark("training").stacked(1, "cpu", 1)()


def test_learners_are_compared_with_lightgbm_or_ask_for_it(benchmark, monkeypatch):
    learners = benchmark("learners")
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(SystemExit, match="pip install lightgbm"):
        learners.light_gbm()
    monkeypatch.setattr(learners, "light_gbm", lambda: learners.one_hot)
    table, notes = learners.compare(6_000, 3, 1.0).split("\n\n")
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert len(rows) == 5
    assert all(len(row) == 9 for row in rows)
    assert all(0.5 < float(row[1]) < 1.0 for row in rows)
    assert "noise floor of ECE" in notes
