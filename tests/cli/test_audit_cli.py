"""``unskew audit``: exit codes, what it writes, and one line for every bad input."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.cli import main
from unskew.metrics import CalibrationSketch

COLUMNS = ("--score", "p", "--outcome", "clicked")


@pytest.fixture(scope="module", autouse=True)
def _undrawn() -> None:
    """Pages here have their drawings."""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of where a report is put, not of what is on it."""
    monkeypatch.setattr("unskew.report.audit_report.render_audit_report", lambda result: "<html></html>")


def write_log(name: str = "log.parquet", *, factor: float = 1.0, rows: int = 20_000, seed: int = 0) -> str:
    """Scores that are too large by a factor."""
    generator = np.random.default_rng(seed)
    truth = np.exp(generator.uniform(np.log(0.01), np.log(0.3), rows))
    clicked = (generator.random(rows) < truth).astype(np.int64)
    table = {
        "p": truth * factor,
        "clicked": clicked,
        "country": generator.choice(np.array(["de", "fr"]), rows),
    }
    pq.write_table(pa.table(table), name)
    return name


def test_healthy_scores_exit_0_and_overstated_ones_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", write_log("good.parquet", rows=60_000), *COLUMNS]) == 0
    assert "Healthy. " in capsys.readouterr().out
    assert main(["audit", write_log("bad.parquet", factor=2.0), *COLUMNS, "--segments", "country"]) == 1
    told = capsys.readouterr().out
    assert re.search(r"Miscalibrated. Overstated by a factor (1.9|2|2.1) on average", told)
    assert "No segment is apart from the rest beyond noise and tolerance." in " ".join(told.split())
    assert "country = de" in told
    assert "platt" in told
    assert "The report: audits/bad/report.html" in told


def test_few_rows_are_undecided_with_exit_code_0_in_words_json_and_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = write_log(rows=800)
    assert main(["audit", log, *COLUMNS, "--out", "found", "--json", "told.json"]) == 0
    assert re.search(r"Undecided. With \d+ clicks on 800 rows", capsys.readouterr().out)
    told = json.loads(Path("told.json").read_text())
    assert (told["healthy"], told["reason"], told["headline"]) == (None, "too few rows", "Undecided")
    assert told["power"]["rows_needed"] > 800
    assert '<h3 class="tone open">Undecided</h3>' in Path("found/report.html").read_text(encoding="utf-8")


def test_without_a_report_the_verdict_is_the_same_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = write_log(factor=2.0)
    assert main(["audit", log, *COLUMNS, "--no-report"]) == 1
    alone = capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == [log]
    assert main(["audit", log, *COLUMNS, "--out", "whole"]) == 1
    assert capsys.readouterr().out == f"{alone}\nThe report: whole/report.html\n"
    assert main(["audit", log, *COLUMNS, "--no-report", "--out", "folder"]) == 2
    assert "--out has no effect with --no-report" in capsys.readouterr().err


def test_the_tolerance_decides() -> None:
    log = write_log(factor=2.0)
    assert main(["audit", log, *COLUMNS, "--no-report"]) == 1
    assert main(["audit", log, *COLUMNS, "--no-report", "--tolerance", "0.6"]) == 0


def test_a_folder_holds_report_figures_and_sketch_and_json_the_same_figures() -> None:
    assert main(["audit", write_log(factor=2.0), *COLUMNS, "--json", "figures.json", "--out", "found"]) == 1
    assert sorted(path.name for path in Path("found").iterdir()) == [
        "audit.json",
        "report.html",
        "sketch.npz",
    ]
    assert Path("figures.json").read_text() == Path("found/audit.json").read_text()
    told = json.loads(Path("figures.json").read_text())
    assert told["rows"] == CalibrationSketch.load("found/sketch.npz").rows == 20_000
    assert told["healthy"] is False
    assert told["recommended"] in {entry["name"] for entry in told["calibrators"]}


def test_the_report_is_one_offline_page_with_every_part() -> None:
    main(["audit", write_log(factor=2.0), *COLUMNS, "--segments", "country", "--out", "found"])
    page = Path("found/report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    for part in ("top", "verdict", "weights", "calibrators", "segments", "settings"):
        assert f'<section id="{part}">' in page
    for figure in ("reliability", "weights", "segments"):
        assert f'id="figure-{figure}"' in page
    top = page[page.index('id="top"') : page.index('id="verdict"')]
    assert re.search(r"predicts [\d,]+ 'clicked' on 20,000 rows, and\s[\d,]+ occurred", top)
    assert re.search(r"[\d,]+ too many \(95 % interval [\d,]+ to [\d,]+\)", top)
    assert top.index('class="cost') < top.index("<svg")
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    assert page.count("<script") == 1


def test_names_from_the_data_are_escaped_in_the_report() -> None:
    table = pa.table({"p": [0.2, 0.4] * 400, "clicked": [0, 1] * 400, "<b>g": ["<script>x</script>"] * 800})
    pq.write_table(table, "log.parquet")
    main(["audit", "log.parquet", *COLUMNS, "--segments", "<b>g", "--out", "found"])
    page = Path("found/report.html").read_text(encoding="utf-8")
    assert "<script>x" not in page
    assert "&lt;script&gt;x" in page


def test_segments_of_a_few_rows_are_counted_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    generator = np.random.default_rng(0)
    table = {"p": [0.02] * 600, "clicked": generator.random(600) < 0.02, "user": np.arange(600) // 3}
    pq.write_table(pa.table(table), "log.parquet")
    assert main(["audit", "log.parquet", *COLUMNS, "--segments", "user", "--out", "found"]) == 0
    assert "200 of 200 segments have too few rows to be judged." in capsys.readouterr().out
    page = Path("found/report.html").read_text(encoding="utf-8")
    assert "200 segments with too few rows to be judged: left out." in page
    assert "user = 7" not in page


@pytest.mark.usefixtures("no_figures")
def test_without_a_folder_every_audit_gets_its_own() -> None:
    log = write_log()
    for name in ("log", "log-2", "log-3"):
        assert main(["audit", log, *COLUMNS]) == 0
        assert (Path("audits") / name / "report.html").is_file()


@pytest.mark.usefixtures("no_figures")
def test_a_given_folder_is_replaced_only_if_it_is_an_audit_and_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = write_log()
    assert main(["audit", log, *COLUMNS, "--out", "found"]) == 0
    assert main(["audit", log, *COLUMNS, "--out", "found"]) == 2
    assert (
        "found: holds an audit already. To fix: choose another --out, or give --overwrite (overwrite=True)."
        in (capsys.readouterr().err)
    )
    assert main(["audit", log, *COLUMNS, "--out", "found", "--overwrite"]) == 0
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("dear")
    assert main(["audit", log, *COLUMNS, "--out", "mine", "--overwrite"]) == 2
    assert Path("mine/thesis.txt").read_text() == "dear"


def bad_inputs() -> dict[str, tuple[Any, list[str], str]]:
    """What is put into ``log.parquet`` or ``log.csv``, further arguments, and what must be told."""
    good = {"p": [0.5, 0.25], "clicked": [1, 0]}
    return {
        "missing column": ({"q": [0.5], "clicked": [1]}, [], "log.parquet: column 'p' is missing"),
        "text in Parquet": (
            {"p": ["x"], "clicked": [1]},
            [],
            "log.parquet: column 'p' holds string, not numbers",
        ),
        "text in CSV": (
            "p,clicked\n0.5,1\nx,0\n",
            [],
            "log.csv, column 'p', row 1: value 'x' is not a number",
        ),
        "logits": (
            {"p": [0.5, -2.2], "clicked": [1, 0]},
            [],
            "log.parquet, column 'p', row 1: score -2.2 is outside [0, 1]",
        ),
        "percent": ({"p": [0.5, 50.0], "clicked": [1, 0]}, [], "row 1: score 50 is outside [0, 1]"),
        "outcome 2": (
            {"p": [0.5, 0.5], "clicked": [1, 2]},
            [],
            "log.parquet, column 'clicked', row 1: outcome is 2, not 0 or 1",
        ),
        "NaN": (
            {"p": [0.5, float("nan")], "clicked": [1, 0]},
            [],
            "log.parquet, column 'p', row 1: score is missing",
        ),
        "null": (
            {"p": [0.5, 0.5], "clicked": [1, None]},
            [],
            "log.parquet, column 'clicked', row 1: value is missing",
        ),
        "no rows": (
            {"p": pa.array([], pa.float64()), "clicked": pa.array([], pa.int8())},
            [],
            "log.parquet: there are no rows",
        ),
        "empty file": (b"", [], "log.parquet: the file is empty"),
        "header alone": ("p,clicked\n", [], "log.csv: there are no rows"),
        "ragged CSV": (
            "p,clicked\n0.5,1\n0.5\n",
            [],
            "log.csv: cannot be read as CSV: CSV parse error",
        ),
        "bad tolerance": (good, ["--tolerance", "0"], "tolerance must be above 0"),
        "target is a file": (good, ["--out", "taken"], "taken: is a file"),
        "unknown option": (good, ["--sore", "p"], "--sore"),
    }


@pytest.mark.parametrize("case", bad_inputs())
def test_bad_input_is_one_line_exit_code_2_and_nothing_written(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content, arguments, message = bad_inputs()[case]
    Path("taken").write_text("")
    name = "log.csv" if isinstance(content, str) else "log.parquet"
    if isinstance(content, dict):
        pq.write_table(pa.table(content), name)
    else:
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    before = sorted(Path().rglob("*"))
    assert main(["audit", name, *COLUMNS, *arguments]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("unskew: ")
    assert said.err.count("\n") == 1
    assert message in said.err
    assert said.out == ""
    assert sorted(Path().rglob("*")) == before


def test_a_truncated_file_in_a_folder_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("parts").mkdir()
    write_log("parts/a.parquet")
    whole = Path(write_log("parts/b.parquet")).read_bytes()
    Path("parts/b.parquet").write_bytes(whole[: len(whole) // 2])
    assert main(["audit", "parts", *COLUMNS]) == 2
    assert "parts/b.parquet: cannot be read as Parquet" in capsys.readouterr().err
    assert not Path("audits").exists()


def test_a_file_that_may_not_be_read_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    log = write_log()
    monkeypatch.setattr(pq, "ParquetFile", refuse)
    assert main(["audit", log, *COLUMNS]) == 2
    assert "log.parquet: may not be read. To fix: see to its permissions" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gone.parquet", "no/such/*.parquet"])
def test_a_file_that_is_not_there_is_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", name, *COLUMNS]) == 2
    assert f"{name}: no such file" in capsys.readouterr().err


def test_files_folders_and_globs_can_be_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("parts").mkdir()
    write_log("parts/a.parquet")
    write_log("one.parquet", seed=1)
    write_log("glob-1.parquet", seed=2)
    assert main(["audit", "parts", "one.parquet", "glob-*.parquet", *COLUMNS, "--no-report"]) == 0
    assert "3 files: 60,000 rows" in capsys.readouterr().out


def test_auditing_loads_no_torch() -> None:
    write_log(rows=2000)
    code = (
        "import sys; from unskew.cli import main;"
        f"main(['audit', 'log.parquet', *{COLUMNS!r}]); print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert done.stderr.strip() == "False"
