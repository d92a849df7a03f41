"""``unskew weights``: what it writes, and one line for every bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.cli import main

COLUMNS = ("--score", "p", "--outcome", "clicked")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    generator = np.random.default_rng(0)
    truth = np.exp(generator.uniform(np.log(0.005), np.log(0.3), 20_000))
    table = {"id": np.arange(20_000), "p": 2 * truth, "clicked": generator.random(20_000) < truth}
    pq.write_table(pa.table(table), "log.parquet")


def test_weights_are_written_and_their_figures_told(capsys: pytest.CaptureFixture[str]) -> None:
    platt = ["--calibrator", "platt"]
    written = ["-o", "out.parquet", "--json", "figures.json"]
    assert main(["weights", "log.parquet", *COLUMNS, *platt, *written]) == 0
    told = capsys.readouterr().out
    assert "20,000 rows in 5 folds, calibrated by platt: out.parquet" in told
    table = pq.read_table("out.parquet")
    assert table.column_names == ["id", "p", "clicked", "propensity_calibrated", "weight", "fold", "clipped"]
    assert table["id"].to_pylist() == list(range(20_000))
    figures = json.loads(Path("figures.json").read_text())
    assert figures["raw"]["mean_outcome_over_score"] == pytest.approx(0.5, abs=0.05)
    assert figures["calibrated"]["mean_outcome_over_score"] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(("p_min", "decides"), [("0.1", True), ("0.001", False)])
def test_a_clip_that_decides_is_told_first(
    p_min: str, decides: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--p-min", p_min, "-o", "out.parquet", "--json", "figures.json"]
    assert main(["weights", "log.parquet", *COLUMNS, *arguments]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    figures = json.loads(Path("figures.json").read_text())
    assert figures["clip_decides"] is decides
    assert (figures["weights"]["clipped_mass"] > 0.1) is decides
    assert first.startswith(f"✗ {figures['verdict']}") is decides
    if decides:
        assert "Lower p_min" in first
        table = pq.read_table("out.parquet")
        clicked = np.asarray(table["clicked"])
        p = np.asarray(table["propensity_calibrated"])[clicked]
        lost = 1 - np.asarray(table["weight"])[clicked].sum() / (1 / p).sum()
        assert figures["weights"]["clipped_mass"] == pytest.approx(lost, abs=0.01)


@pytest.mark.parametrize(("calibrator", "told"), [("venn_abers", True), ("platt", False)])
def test_weights_by_venn_abers_are_told_to_be_too_small(
    calibrator: str, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--calibrator", calibrator, "-o", "out.parquet", "--json", "figures.json"]
    assert main(["weights", "log.parquet", *COLUMNS, *arguments]) == 0
    assert capsys.readouterr().out.count("venn_abers: leans towards 1/2") == told
    assert (
        any("use platt or beta" in m for m in json.loads(Path("figures.json").read_text())["messages"])
        is told
    )


def test_rows_without_a_click_have_weight_0_unless_asked_for() -> None:
    for flags, share in (([], None), (["--weight-all"], 1.0)):
        arguments = [*flags, "-o", "out.parquet", "--overwrite"]
        assert main(["weights", "log.parquet", *COLUMNS, *arguments]) == 0
        table = pq.read_table("out.parquet")
        clicked, weight = np.asarray(table["clicked"]), np.asarray(table["weight"])
        assert (weight > 0).mean() == pytest.approx(share or clicked.mean(), abs=0)


def test_audit_of_the_output_finds_it_healthy() -> None:
    main(["weights", "log.parquet", *COLUMNS, "-o", "out.parquet"])
    assert main(["audit", "log.parquet", *COLUMNS]) == 1
    assert main(["audit", "out.parquet", "--score", "propensity_calibrated", "--outcome", "clicked"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*COLUMNS, "-o", "none/out.parquet"], "none/out.parquet: its folder does not exist"),
        ([*COLUMNS, "-o", "out.csv"], "out.csv must end in .parquet"),
        (["--score", "p", "-o", "out.parquet"], "--score needs --outcome"),
        (["--outcome", "clicked", "-o", "out.parquet"], "there is no propensity"),
        ([*COLUMNS, "--folds", "1", "-o", "out.parquet"], "folds must be a whole number from 2 to 100"),
        ([*COLUMNS, "--p-min", "0", "-o", "out.parquet"], "p_min must be 'auto' or a number in (0, 1)"),
        ([*COLUMNS], "--out is missing"),
    ],
)
def test_bad_input_is_one_line_exit_code_2_and_nothing_written(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path("log.parquet").read_bytes()
    assert main(["weights", "log.parquet", *arguments]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("unskew: ")
    assert said.err.count("\n") == 1
    assert message in said.err
    assert [path.name for path in Path().iterdir()] == ["log.parquet"]
    assert Path("log.parquet").read_bytes() == before


def test_weights_in_a_database_are_those_of_its_own_folds(capsys: pytest.CaptureFixture[str]) -> None:
    duckdb = pytest.importorskip("duckdb")
    counted = ["audit", "--sql", "duckdb", "--table", "log.parquet", *COLUMNS, "--fold-by", "id"]
    assert main(counted) == 0
    duckdb.sql(capsys.readouterr().out).write_parquet("cells.parquet")
    asked = ["weights", "--sql", "duckdb", "--from", "cells.parquet", "--table", "log.parquet", *COLUMNS]
    assert main([*asked, "--fold-by", "id", "--calibrator", "platt"]) == 0
    query = capsys.readouterr().out
    assert query.startswith("-- Weights by unskew: the score, calibrated by platt, clipped at ")
    there = duckdb.sql(query).to_arrow_table()
    assert there.num_rows == 20_000
    q, clicked = (there[name].to_numpy(zero_copy_only=False) for name in ("propensity_calibrated", "clicked"))
    assert np.mean(clicked / q) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--sql", "duckdb"], "--from is missing"),
        (["--sql", "duckdb", "--from", "c.parquet"], "--table is missing"),
        (["--sql", "duckdb", "--from", "c.parquet", "--table", "t", "--seed", "1"], "--seed has no effect"),
        (["--table", "t"], "--table has no effect without --sql"),
        (["-o", "out.parquet"], "FILE... or --out is missing"),
        (["--sql", "oracle", "--from", "c.parquet", "--table", "t"], "dialect"),
        (["--sql", "duckdb", "--from", "log.parquet", "--table", "t"], "column 'cell' is missing"),
    ],
)
def test_wrong_options_of_a_database_are_one_line(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["weights", *COLUMNS, *options]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
