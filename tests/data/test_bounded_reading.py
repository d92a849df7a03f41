"""What is read takes memory and time that hang on a batch, not on the file, its row groups or its columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.audit import Roles, audit, write_weights
from unskew.base.errors import DataError
from unskew.data import files
from unskew.data import stream as stream_module
from unskew.data.stream import stream

NUMBERS = ("p", "o")


@pytest.fixture
def pool() -> Iterator[Any]:
    """A pool that counts what Arrow takes while a test runs."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


def records(path: Path, columns: tuple[str, ...] | None, **options: Any) -> Iterator[Any]:
    return (batch.record for batch in stream([path], columns=columns, numbers=NUMBERS, **options))


@pytest.mark.parametrize("columns", [NUMBERS, None])
def test_a_row_group_as_large_as_the_file_is_not_read_whole(
    columns: tuple[str, ...] | None, tmp_path: Path, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "BATCH_BYTES", 1 << 18)
    path, rows = tmp_path / "log.parquet", 1_500_000
    table = pa.table(
        {"p": np.random.default_rng(0).random(rows), "o": np.tile([0, 1, 1], rows // 3).astype(np.int8)}
    )
    pq.write_table(table, path, row_group_size=rows)
    del table
    before = pool.max_memory()
    seen = sum(record.num_rows for record in records(path, columns))
    assert seen == rows
    assert path.stat().st_size > 10 << 20
    assert pool.max_memory() - before < 6 << 20


def test_dictionaries_that_differ_by_row_group_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    table = pa.table(
        {
            "p": np.linspace(0, 1, 600),
            "o": np.arange(600) % 2,
            "city": pa.array([f"city {row // 100}" for row in range(600)]).dictionary_encode(),
        }
    )
    pq.write_table(table, path, row_group_size=100)
    (record,) = records(path, (*NUMBERS, "city"), text=("city",))
    assert record.column("city").to_pylist() == table["city"].to_pylist()


def test_text_that_is_not_utf8_far_down_a_csv_is_named_by_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CSV_BLOCK_BYTES", 1 << 12)
    path = tmp_path / "log.csv"
    path.write_bytes(b"p,o,city\n" + b"0.5,1,Berlin\n0.25,0,Bonn\n" * 400 + b"0.5,1,K\xf6ln\n")
    with pytest.raises(DataError, match=r"column 'city', row 800: value b'K\\xf6ln' is not UTF-8.*iconv"):
        write_weights(path, tmp_path / "out.parquet", Roles("p", "o"))
    assert [each.name for each in tmp_path.iterdir()] == ["log.csv"]


def test_a_row_that_does_not_fit_a_block_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CSV_BLOCK_BYTES", 1 << 12)
    path = tmp_path / "log.csv"
    rows = "0.5,1,Bonn\n0.25,0,Bonn\n" * 400
    path.write_text(f"p,o,city\n{rows}0.5,1,{'x' * 20_000}\n{rows}", encoding="utf-8")
    with pytest.raises(DataError, match=r"log\.csv: a row has more than .*quote is not closed\. To fix: "):
        audit(path, score="p", outcome="o")
