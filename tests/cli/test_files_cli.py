"""Every verb takes a file, a folder, a glob, packed CSV and Arrow; scoring carries the columns of a log."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.cli import main
from unskew.data.files import PACKINGS

QUICK = ["--method", "ips", "--learner", "mf", "--seeds", "1", "--crossfit", "2", "--propensity-epochs", "1"]


@pytest.fixture(scope="module")
def table():
    data = us.load("synthetic", n_users=40, n_items=30, density=0.2, seed=3).train
    p = np.random.default_rng(0).uniform(0.1, 0.9, len(data))
    columns = {"user": data.user, "item": data.item, "conversion": data.known_conversion().astype(int)}
    return pa.table({**columns, "p": p, "seen": (p > 0.5).astype(int)})


@pytest.fixture(scope="module")
def places(table, tmp_path_factory):
    """The same rows as one file, as a folder of two, in subfolders, packed, and as Arrow."""
    folder = tmp_path_factory.mktemp("places")
    half = len(table) // 2
    for part, rows in (("a", table.slice(0, half)), ("b", table.slice(half))):
        for name in (f"flat/{part}.parquet", f"deep/day={part}/part.parquet"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, folder / name)
    pq.write_table(table, folder / "one.parquet")
    pyarrow.feather.write_feather(table, str(folder / "one.feather"), chunksize=100)
    for suffix, packing in PACKINGS.items():
        with pa.output_stream(str(folder / f"one.csv{suffix}"), compression=packing) as packed:
            pyarrow.csv.write_csv(table, packed)
    return folder


FORMS = ["flat", "flat/*.parquet", "deep/**/*.parquet", "one.csv.gz", "one.csv.zst", "one.feather"]


@pytest.mark.parametrize("form", FORMS)
def test_audit_and_weights_take_any_form(places, table, form, tmp_path, capsys):
    columns = ["--score", "p", "--outcome", "seen"]
    assert main(["audit", str(places / form), *columns, "--no-report", "--json", str(tmp_path / "a")]) == 1
    assert json.loads((tmp_path / "a").read_text())["rows"] == len(table)
    assert main(["weights", str(places / form), *columns, "-o", str(tmp_path / "w.parquet")]) == 0
    assert len(pq.read_table(tmp_path / "w.parquet")) == len(table)


@pytest.fixture(scope="module")
def run(places, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "one"
    assert main(["run", "--data", str(places / "one.parquet"), *QUICK, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def no_report(monkeypatch):
    monkeypatch.setattr("unskew.report.render_run_report", lambda **told: "<html></html>")


@pytest.mark.parametrize("form", ["deep/**/*.parquet", "one.csv.zst"])
def test_run_takes_any_form_and_trains_on_all_rows(places, table, form, tmp_path, monkeypatch, no_report):
    monkeypatch.chdir(places)
    assert main(["run", "--data", form, *QUICK, "--out", str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["data"]["rows"] == len(table)


def test_a_run_of_a_glob_is_called_after_its_folder_and_tests_on_a_folder(
    places, tmp_path, monkeypatch, no_report
):
    monkeypatch.chdir(tmp_path)
    arguments = ["--root", str(places), "--data", "flat/*.parquet", "--test", "deep", "--protocol", "honest"]
    assert main(["run", *arguments, *QUICK, "--space", "impressions", "--click", "seen"]) == 0
    metrics = json.loads((tmp_path / "runs" / "flat-ips" / "metrics.json").read_text())
    assert metrics["data"]["test_rows"] == metrics["data"]["rows"]


@pytest.mark.parametrize("form", FORMS)
def test_score_takes_any_form_and_carries_the_columns_of_a_log(places, run, table, form, tmp_path):
    assert main(["score", str(run), str(places / form), "-o", str(tmp_path / "s.parquet")]) == 0
    scored = pq.read_table(tmp_path / "s.parquet")
    assert [float(x) for x in scored["given_conversion"].to_pylist()] == table["conversion"].to_pylist()
    assert {"seen", "p", "conversion", "conversion_std", "propensity"} <= set(scored.column_names)
    expected = us.load_model(run).predict_frame_each(table).mean(axis=0)
    # Files end in other places, and sums of floats round there.
    np.testing.assert_allclose(scored["conversion"].to_numpy(), expected, rtol=1e-12)


def test_a_damaged_arrow_file_is_one_line(tmp_path, capsys):
    (tmp_path / "x.feather").write_bytes(b"ARROW1 and nothing more")
    assert main(["audit", str(tmp_path / "x.feather"), "--score", "p", "--outcome", "o", "--no-report"]) == 2
    assert "x.feather: cannot be read as Arrow" in capsys.readouterr().err
