"""``unskew audit --sql``, ``--run`` and ``--cells``: the same audit, whoever counted the rows."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.cli import main


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Scores that are honest in one country and 1.5 times too high in the other."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    score = 1 / (1 + np.exp(-generator.normal(-2, 1, 40_000)))
    country = np.array(["de", "fr"])[generator.integers(0, 2, len(score))]
    clicked = generator.random(len(score)) < score / np.where(country == "fr", 1.5, 1.0)
    table = pa.table({"p": score, "clicked": clicked, "country": country})
    for part in range(2):
        pq.write_table(table.slice(part * 20_000, 20_000), tmp_path / f"rows-{part}.parquet")
    return tmp_path


COLUMNS = ["--score", "p", "--outcome", "clicked", "--segments", "country"]


def figures(arguments, place):
    code = main([*arguments, "--no-report", "--json", str(place)])
    return code, json.loads(place.read_text())


def test_an_audit_in_duckdb_is_that_of_the_files(rows, capsys):
    code, streamed = figures(["audit", "rows-*.parquet", *COLUMNS], rows / "streamed.json")
    run, found = figures(
        ["audit", "--sql", "duckdb", "--run", "--table", "rows-*.parquet", *COLUMNS], rows / "sql.json"
    )
    assert code == run == 1
    assert (found["headline"], found["healthy"]) == (streamed["headline"], streamed["healthy"])
    for name in ("rows", "clicks", "ece", "wce", "nll", "brier", "auc", "power"):
        assert found[name] == pytest.approx(streamed[name], rel=1e-9), name
    assert found["columns"] == streamed["columns"]
    for one, other in zip(found["segments"], streamed["segments"], strict=True):
        assert one["value"] == other["value"]
        for name in ("rows", "base_rate", "mean_score", "mean_outcome_over_score", "wce", "low", "high"):
            assert one[name] == pytest.approx(other[name], rel=1e-3), name
    assert found["recommended"] is not None
    best = {each["name"]: each["nll"] for each in streamed["calibrators"]}
    for each in found["calibrators"]:
        assert each["nll"] == pytest.approx(best[each["name"]], rel=1e-3)


def test_a_printed_query_gives_cells_that_can_be_audited(rows, capsys):
    import duckdb

    assert main(["audit", "--sql", "duckdb", "--table", "rows-*.parquet", *COLUMNS]) == 0
    query = capsys.readouterr().out
    pq.write_table(duckdb.sql(query).to_arrow_table(), rows / "cells.parquet")
    code, found = figures(["audit", "--cells", "cells.parquet"], rows / "cells.json")
    assert code == 1
    assert found["rows"] == 40_000
    assert {each["value"] for each in found["segments"]} == {"de", "fr"}
    assert main(["audit", "--cells", "cells.parquet", "--out", "folder"]) == 1
    assert (rows / "folder" / "report.html").exists()


def test_a_process_that_ran_duckdb_ends_without_a_word(rows):
    arguments = ["--sql", "duckdb", "--run", "--table", "rows-0.parquet", *COLUMNS, "--no-report"]
    code = "from unskew.cli import entry; entry()"
    command = [sys.executable, "-c", code, "audit", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["rows-0.parquet", "--sql", "duckdb", "--score", "p"], "FILE has no effect with --sql"),
        (["rows-0.parquet", "--table", "t", "--score", "p"], "--table has no effect without --sql"),
        (["--sql", "duckdb", "--score", "p", "--outcome", "o"], "--table is missing"),
        (["--sql", "spark", "--run", "--table", "t", *COLUMNS], "--run runs DuckDB alone"),
        (["--sql", "oracle", "--table", "t", *COLUMNS], "oracle"),
        (["--sql", "duckdb", "--table", "t", *COLUMNS, "--by", "day"], "--by day needs the column of times"),
        (["--sql", "duckdb", "--table", "t", *COLUMNS, "--time", "t"], "--time has no effect without --by"),
        (["--sql", "duckdb", "--run", "--table", "none/*.parquet", *COLUMNS], "No files found"),
        (["--cells", "none.parquet"], "none.parquet"),
        (["--cells", "rows-0.parquet"], "column 'cell' is missing"),
        (["--score", "p"], "--outcome is missing"),
        ([*COLUMNS], "there is nothing to audit"),
        (["rows-0.parquet"], "--score is missing"),
    ],
)
def test_what_cannot_be_audited_is_one_line_and_leaves_nothing(rows, capsys, arguments, told):
    before = sorted(rows.iterdir())
    assert main(["audit", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert told in error
    assert "\n" not in error
    assert sorted(rows.iterdir()) == before
