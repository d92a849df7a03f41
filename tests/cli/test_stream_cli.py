"""``unskew run --stream``: from a glob, or a place with a scheme, to a run folder that other verbs read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.cli import main

QUICK = ["--propensity", "popularity", "--seeds", "1", "--crossfit", "2", "--backbone", "mf"]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    draw = np.random.default_rng(0)
    for day in range(3):
        click = draw.random(300) < 0.4
        table = {
            "user": [f"u{each}" for each in draw.integers(0, 30, 300)],
            "item": draw.integers(0, 9, 300),
            "click": click.astype(int),
            "conversion": (click & (draw.random(300) < 0.5)).astype(int),
        }
        (folder / f"day={day}").mkdir()
        pq.write_table(pa.table(table), folder / f"day={day}" / "part.parquet", row_group_size=100)
    return folder


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_glob_is_streamed_into_a_run_folder(
    logs: Path, scheme: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    data = f"{scheme}{logs}/**/*.parquet"
    asked = ["run", "--data", data, "--stream", *QUICK, "--set", "method.epochs=1", "--out", str(out)]
    assert main(asked) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The log is streamed, as was asked for: StreamedLog(30 users × 9 items, 900 rows" in said
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["data"]["rows"] == 900
    assert metrics["data"]["space"] == "impressions"
    assert main(["score", str(out), str(logs / "day=0"), "-o", str(tmp_path / "s.parquet")]) == 0
    assert pq.read_metadata(tmp_path / "s.parquet").num_rows == 300


def test_a_named_dataset_is_not_streamed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--data", "synthetic", "--stream"]) == 2
    assert "--stream" in capsys.readouterr().err
