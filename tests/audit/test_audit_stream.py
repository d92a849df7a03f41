"""Rows come out of files once, in order, whatever the format and the batches; folds hang on the row alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from unskew.audit import audit
from unskew.audit.crossfit import merged
from unskew.audit.reading import read
from unskew.base.errors import DataError, ParameterError
from unskew.data import files as places
from unskew.data import stream as stream_module
from unskew.data.files import expand_paths
from unskew.data.stream import Roles, number_columns, stream
from unskew.metrics import CalibrationSketch

ROLES = Roles("p", "clicked")


def sketches_of(path: Any, folds: int = 5, roles: Roles = ROLES) -> list[CalibrationSketch]:
    return read(expand_paths(path), roles, folds=folds).folds


def rows_of(path: Any) -> np.ndarray:
    files = expand_paths(path)
    return np.concatenate(
        [number_columns(b, ["p"])[0].astype(np.float64) for b in stream(files, columns=["p"], numbers=["p"])]
    )


@pytest.fixture
def table() -> pa.Table:
    generator = np.random.default_rng(3)
    return pa.table(
        {
            "p": generator.random(1000).round(6),
            "clicked": generator.integers(0, 2, 1000),
            "other": np.arange(1000).astype(str),
        }
    )


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz"])
def test_every_format_gives_the_same_rows_in_the_same_order(
    table: pa.Table, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "BATCH_ROWS", 64)
    monkeypatch.setattr(places, "CSV_BLOCK_BYTES", 4096)
    path = tmp_path / f"log.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=70)
    else:
        with pa.output_stream(path, compression="gzip" if kind == "csv.gz" else None) as target:
            pa.csv.write_csv(table, target)
    np.testing.assert_array_equal(rows_of(path), table["p"].to_numpy())
    whole = CalibrationSketch.of(score=table["p"], outcome=table["clicked"])
    np.testing.assert_array_equal(merged(sketches_of(path)).sums.rows, whole.sums.rows)


def test_sketches_of_folds_do_not_depend_on_the_batches(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(table, path)
    once = sketches_of(path)
    monkeypatch.setattr(stream_module, "BATCH_ROWS", 37)
    often = sketches_of(path)
    for one, other in zip(once, often, strict=True):
        np.testing.assert_array_equal(one.sums.rows, other.sums.rows)
        np.testing.assert_allclose(one.sums.score, other.sums.score, rtol=1e-12)


def test_a_later_text_in_a_csv_is_named_with_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "CSV_BLOCK_BYTES", 1024)
    (tmp_path / "log.csv").write_text("p,clicked\n" + "0.5,1\n" * 900 + "0.5,oops\n" + "0.5,0\n" * 300)
    with pytest.raises(DataError, match=r"log.csv, column 'clicked', row 900: value 'oops' is not a number"):
        sketches_of(tmp_path / "log.csv")


def test_a_bad_score_is_named_by_file_and_row_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "BATCH_ROWS", 100)
    pq.write_table(pa.table({"p": [0.5] * 300, "clicked": [1, 0] * 150}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"p": [0.5] * 701 + [1.5], "clicked": [1, 0] * 351}), tmp_path / "b.parquet")
    message = r"b.parquet, column 'p', row 701: score 1.5 is outside \[0, 1\].*1 / \(1 \+ exp"
    with pytest.raises(DataError, match=message):
        sketches_of(tmp_path)


def test_too_few_or_too_many_folds_are_refused() -> None:
    with pytest.raises(ParameterError, match="folds must be a whole number from 2 to 100, not 1"):
        read([], ROLES, folds=1)


@pytest.mark.parametrize("values", [[[1], [2]], [{"a": 1}, {"a": 2}]])
def test_a_segment_of_lists_or_records_is_refused_by_name(values: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"p": [0.5, 0.5], "clicked": [1, 0], "x": values}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet: column 'x' holds (list|struct)<.*, not one value a row"):
        sketches_of(tmp_path, roles=Roles("p", "clicked", None, ("x",)))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_segment_that_is_there_twice_is_refused_by_name(suffix: str, tmp_path: Path) -> None:
    rows = pa.table(
        [pa.array([0.5]), pa.array([1]), *[pa.array(["a"])] * 2], names=["p", "clicked", "x", "x"]
    )
    file = tmp_path / f"a.{suffix}"
    pa.csv.write_csv(rows, file) if suffix == "csv" else pq.write_table(rows, file)
    with pytest.raises(DataError, match=rf"a.{suffix}: column 'x' is there 2 times"):
        audit(file, score="p", outcome="clicked", segments=["x"])


@pytest.mark.parametrize("smallest", [1e-320, 1e-200, 1e-100])
@pytest.mark.parametrize("outcome", [0, 1])
def test_the_smallest_scores_are_audited_without_a_warning(
    smallest: float, outcome: int, tmp_path: Path
) -> None:
    score = np.append(np.linspace(0.01, 0.99, 5000), np.full(20, smallest))
    honest = np.random.default_rng(0).random(5000) < score[:5000]
    clicked = np.append(honest.astype(int), np.full(20, outcome))
    pq.write_table(pa.table({"p": score, "o": clicked, "s": ["a", "b"] * 2510}), tmp_path / "a.parquet")
    result = audit(tmp_path, score="p", outcome="o", segments=["s"])
    assert np.isfinite(result.wce.value)
    assert result.healthy is (outcome == 0)
