"""``unskew monitor``: add, look, exit codes, outputs and bad input."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.cli import main

COLUMNS = ["--score", "p", "--outcome", "clicked", "--segments", "country", "--by", "day", "--time", "t"]


@pytest.fixture
def days(tmp_path, monkeypatch):
    """Ten days; from the seventh on, clicks of fr are half as many again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    generator = np.random.default_rng(0)
    for day in range(10):
        score = 1 / (1 + np.exp(-generator.normal(-2, 1, 6000)))
        country = np.array(["de", "fr"])[generator.integers(0, 2, len(score))]
        rate = score * np.where((country == "fr") & (day >= 6), 1.5, 1.0)
        time = np.datetime64("2026-03-01", "us") + np.timedelta64(day, "D") + np.zeros(6000, "timedelta64[s]")
        table = {"p": score, "clicked": generator.random(6000) < rate, "country": country, "t": time}
        pq.write_table(pa.table(table), tmp_path / "logs" / f"{day}.parquet")
    return tmp_path


def test_a_store_is_made_extended_and_looked_at(days, capsys):
    first = [f"logs/{day}.parquet" for day in range(5)]
    assert main(["monitor", "watch.store", "--add", *first, *COLUMNS, "--as-of", "2026-04-01"]) == 0
    assert "Added 30,000 rows of 5 files" in capsys.readouterr().out
    assert main(["monitor", "watch.store"]) == 0
    assert "Healthy." in capsys.readouterr().out
    assert main(["monitor", "watch.store", "--add", "logs", "--as-of", "2026-04-01"]) == 0
    out = capsys.readouterr().out
    assert "Added 30,000 rows of 5 files; 5 known already" in out
    assert "10 periods, 0 of them open" in out
    assert main(["monitor", "watch.store", "--json", "found.json", "--value", "3"]) == 1
    out = capsys.readouterr().out
    told = " ".join(out.split())
    assert "Miscalibrated." in told
    assert "Scores where country is 'fr' have been off since 2026-03-07" in told
    found = json.loads((days / "found.json").read_text())
    assert found["healthy"] is False
    assert found["segments"][0]["breaks"][0]["money"] > 0
    page = (days / "watch-report.html").read_text()
    assert "have been off since 2026-03-07" in page


def test_cells_of_a_query_are_added(days, capsys):
    import duckdb

    query = ["audit", "--sql", "duckdb", "--table", "logs/*.parquet", *COLUMNS]
    assert main(query) == 0
    pq.write_table(duckdb.sql(capsys.readouterr().out).to_arrow_table(), days / "cells.parquet")
    assert main(["monitor", "s", "--add", "cells.parquet", *COLUMNS, "--as-of", "2026-04-01"]) == 0
    assert "Added 60,000 rows of 1 files" in capsys.readouterr().out
    assert main(["monitor", "s", "--no-report"]) == 1
    assert not list(days.glob("*.html"))


def test_maturity_leaves_young_periods_open(days, capsys):
    arguments = ["--add", "logs", *COLUMNS, "--maturity", "7d", "--as-of", "2026-03-13"]
    assert main(["monitor", "s", *arguments]) == 0
    assert "10 periods, 5 of them open" in capsys.readouterr().out
    assert main(["monitor", "s", "--no-report"]) == 0
    assert "5 periods from 2026-03-06 on are not judged yet" in " ".join(capsys.readouterr().out.split())


ZONED = ["--score", "p", "--outcome", "clicked", "--time", "t"]


def write_times(file, utc):
    """Write rows of honest scores that were shown at these times, which have a zone."""
    generator = np.random.default_rng(len(utc))
    score = generator.uniform(0.1, 0.3, len(utc))
    time = pa.array(utc.astype("datetime64[us]")).cast(pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"p": score, "clicked": generator.random(len(utc)) < score, "t": time}), file)


@pytest.mark.parametrize(
    ("zone", "start", "ends"),
    [
        ("America/Los_Angeles", "2026-01-01T08:00", "2026-01-02T08:00"),
        ("Asia/Tokyo", "2025-12-31T15:00", "2026-01-01T15:00"),
        # The day on which clocks are set back has 25 hours.
        ("America/Los_Angeles", "2026-11-01T07:00", "2026-11-02T08:00"),
        ("+01:00", "2025-12-31T23:00", "2026-01-01T23:00"),
    ],
)
def test_a_day_of_a_zone_closes_when_it_ends_there(tmp_path, monkeypatch, capsys, zone, start, ends):
    monkeypatch.chdir(tmp_path)
    start, ends = np.datetime64(start, "s"), np.datetime64(ends, "s")
    utc = start + (np.arange(6000) * (ends - start) // 6000)
    arguments = [*ZONED, "--by", "day", "--zone", zone]
    early = str(ends - np.timedelta64(1, "m"))
    write_times("day.parquet", utc[utc < ends - np.timedelta64(4, "h")])
    assert main(["monitor", "s", "--add", "day.parquet", *arguments, "--as-of", early]) == 0
    assert "1 periods, 1 of them open" in capsys.readouterr().out
    # The evening's rows came later, into the same file.
    write_times("day.parquet", utc)
    assert main(["monitor", "s", "--add", "day.parquet", "--as-of", str(ends)]) == 0
    assert "1 periods, 0 of them open" in capsys.readouterr().out
    assert main(["monitor", "s", "--no-report", "--json", "found.json"]) == 0
    (day,) = json.loads((tmp_path / "found.json").read_text())["whole"]["periods"]
    assert day["rows"] == 6000


def test_an_hour_that_comes_twice_is_two_periods(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # 01:00 to 04:00 in Paris, where 03:00 becomes 02:00 at 01:00 UTC.
    utc = np.datetime64("2026-10-24T23:00", "s") + np.arange(0, 4 * 3600, 6)
    arguments = [*ZONED, "--by", "hour", "--zone", "Europe/Paris"]
    write_times("a.parquet", utc)
    names = ["2026-10-25T01", "2026-10-25T02", "2026-10-25T02 (again)", "2026-10-25T03"]
    for as_of, closed in (("2026-10-25T00:59", 1), ("2026-10-25T01:00", 2), ("2026-10-25T02:00", 3)):
        assert main(["monitor", "s", "--add", "a.parquet", *arguments, "--as-of", as_of]) == 0
        assert main(["monitor", "s", "--no-report", "--json", "found.json"]) == 0
        found = json.loads((tmp_path / "found.json").read_text())
        assert found["periods"] == names
        assert found["open_periods"] == names[closed:]
        assert [each["rows"] for each in found["whole"]["periods"]] == [600] * 4


def test_numbers_since_1970_are_days_of_the_zone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seconds = np.arange(0, 86_400, 60) + 8 * 3600 + np.datetime64("2026-01-01", "s").astype(int)
    pq.write_table(pa.table({"p": [0.2] * 1440, "clicked": [0, 0, 1, 0, 0] * 288, "t": seconds}), "a.parquet")
    arguments = [*ZONED, "--by", "day", "--zone", "America/Los_Angeles", "--as-of", "2026-02-01"]
    assert main(["monitor", "s", "--add", "a.parquet", *arguments]) == 0
    assert main(["monitor", "s", "--no-report", "--json", "found.json"]) == 0
    assert json.loads((tmp_path / "found.json").read_text())["periods"] == ["2026-01-01"]


def test_no_report_is_taken_with_add(days, capsys):
    arguments = ["--add", "logs/0.parquet", *COLUMNS, "--as-of", "2026-04-01", "--no-report"]
    assert main(["monitor", "s", *arguments]) == 0
    assert "Added 6,000 rows of 1 files" in capsys.readouterr().out


def test_a_report_replaces_reports_alone(days, capsys):
    assert main(["monitor", "s", "--add", "logs", *COLUMNS, "--as-of", "2026-04-01"]) == 0
    (days / "mine.html").write_text("<html>my own page</html>")
    assert main(["monitor", "s", "--report", "mine.html"]) == 2
    assert "is there and is no report" in capsys.readouterr().err
    assert main(["monitor", "s", "--report", "new.html"]) == 1
    assert main(["monitor", "s", "--report", "new.html"]) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--add", "logs"], "--score is missing, which a new store needs"),
        (["--add", *COLUMNS], "there is nothing to add"),
        (["--add", "logs", *COLUMNS, "--json", "x.json"], "--json has no effect with --add"),
        (["--add", "logs", *COLUMNS, "--maturity", "soon"], "'soon' is not a length of time"),
        (["--add", "logs", *COLUMNS, "--as-of", "soon"], "'soon' is not a date"),
        (["--add", "logs", *COLUMNS, "--zone", "Europe/Pariz"], "there is no time zone 'Europe/Pariz'"),
        (["logs"], "FILE has no effect without --add"),
        (["--score", "p"], "--score has no effect without --add"),
        ([], "there is no such store"),
        (["--report", "a.html", "--no-report"], "--report has no effect with --no-report"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(days, capsys, arguments, told):
    before = sorted(days.iterdir())
    assert main(["monitor", "s", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert told in error
    assert "\n" not in error
    assert sorted(days.iterdir()) == before


def test_a_store_tells_the_query_that_counts_for_it(days, capsys):
    duckdb = pytest.importorskip("duckdb")
    assert main(["monitor", "s", "--add", "logs/0.parquet", *COLUMNS, "--as-of", "2026-04-01"]) == 0
    capsys.readouterr()
    assert main(["monitor", "s", "--sql", "duckdb", "--table", "logs/*.parquet"]) == 0
    duckdb.sql(capsys.readouterr().out).write_parquet("cells.parquet")
    assert main(["monitor", "s", "--add", "cells.parquet", "--latest", "--as-of", "2026-04-01"]) == 0
    assert main(["monitor", "all", "--add", "logs", *COLUMNS, "--as-of", "2026-04-01"]) == 0
    told = []
    for store in ("s", "all"):
        main(["monitor", store, "--no-report", "--json", f"{store}.json"])
        told.append(json.loads((days / f"{store}.json").read_text())["whole"])
    assert told[0]["rows"] == told[1]["rows"]
    assert told[0]["judgement"] == told[1]["judgement"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--sql", "duckdb"], "--table is missing"),
        (["--table", "t"], "--table has no effect without --sql"),
        (["--sql", "duckdb", "--table", "t", "--score", "p"], "--score has no effect with --sql"),
    ],
)
def test_wrong_options_of_a_query_are_one_line(days, capsys, options, told):
    assert main(["monitor", "s", *options]) == 2
    assert told in capsys.readouterr().err
