"""Runs stop before training where a feature gives the outcome away, unless it is allowed, which is kept."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from contracts.feature_world import table
from unskew.base.errors import DataError
from unskew.cli import main
from unskew.run import propensities

COLUMNS = {"conversion": "bought", "click": "click", "space": "impressions"}
SMALL = {"learner": "mf", "propensity": "popularity", "method": "naive", "seeds": 1, "crossfit": 2}


@pytest.fixture
def file(tmp_path):
    """A log with the seconds that a visit took, which only a click has."""
    frame = table()
    click = frame["click"].to_numpy() == 1
    seconds = np.where(click, np.arange(len(click)) % 60, np.nan)
    path = tmp_path / "log.parquet"
    pq.write_table(frame.append_column("seconds", pa.array(seconds, from_pandas=True)), path)
    return path


def config(file, **changes):
    options = {**COLUMNS, "train": file.name, "features": ("country", "seconds")}
    given = {"data": "files", "root": str(file.parent), "options": options, **SMALL}
    return us.Config(**{**given, **changes})


def test_a_run_with_a_leak_trains_nothing(file, monkeypatch):
    def trained(*args, **kwargs):
        raise AssertionError("trained")

    monkeypatch.setattr(propensities, "fitted_propensity", trained)
    with pytest.raises(DataError, match=r"column 'seconds': it is filled in .*--allow-leak seconds"):
        us.run(config(file))


def test_an_allowed_leak_is_kept_in_the_folder_and_the_report(file, tmp_path):
    result = us.run(config(file, allow_leak=("seconds",)))
    result.save(tmp_path / "run")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    (leak,) = metrics["leaks_allowed"]
    assert (leak["column"], leak["kind"], leak["outcome"]) == ("seconds", "filled", "click")
    saved = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert saved["run"]["features"]["allow_leak"] == ["seconds"]
    assert (
        "leak allowed: &#39;seconds&#39;, it is filled in" in (tmp_path / "run" / "report.html").read_text()
    )


def test_the_command_stops_with_one_line(file, tmp_path, capsys):
    given = ["--data", str(file), "--space", "impressions", "--conversion", "bought"]
    out = ["--out", str(tmp_path / "run")]
    assert main(["run", *given, "--allow-leak", "seconds", *out]) == 2
    assert "is allowed, which is no feature" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_column_that_is_0_until_the_click_stops_every_command(tmp_path, capsys):
    """A flag and the seconds of a visit, filled with 0 where there was none, on half of the clicks."""
    frame = table()
    some = (frame["click"].to_numpy() == 1) & (np.arange(frame.num_rows) % 2 == 0)
    file, out = tmp_path / "log.parquet", tmp_path / "out"
    pq.write_table(frame.append_column("seconds", pa.array(np.where(some, 2.5 + some.cumsum(), 0.0))), file)
    shared = ["--features", "auto", "--ignore", "match,bought"]
    for command in (
        ["run", "--data", str(file), "--space", "impressions", "--conversion", "bought", "--out", str(out)],
        ["weights", str(file), "--user", "user", "--item", "item", "--outcome", "click", "-o", str(out)],
    ):
        assert main([*command, *shared]) == 2
        message = capsys.readouterr().err.splitlines()[-1]
        assert "column 'seconds': where it is " in message
        assert "(100.0%; " in message
        assert "--allow-leak seconds" in message
        assert not out.exists()
