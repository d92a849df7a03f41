"""Row groups of many files: what is read of each, and how often."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.base.errors import DataError
from unskew.data.row_groups import Counted, Piece, RowGroups


def write(folder: Path, files: int, rows: int = 12, group: int = 4) -> Path:
    """Numbers that ascend through all files."""
    for number in range(files):
        table = pa.table({"number": np.arange(rows) + rows * number, "name": [f"n{k}" for k in range(rows)]})
        pq.write_table(table, folder / f"part-{number:03d}.parquet", row_group_size=group)
    return folder


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files that are opened from now on."""
    plain, found = RowGroups.opened, []

    def noted(self: RowGroups, index: int, schema: Any) -> Any:
        found.append(self.files[index])
        return plain(self, index, schema)

    monkeypatch.setattr(RowGroups, "opened", noted)
    return found


def test_rows_that_count_are_counted_file_by_file(tmp_path: Path, opened: list[Path]) -> None:
    whole = RowGroups.of(write(tmp_path, 5))
    even = Counted("number", lambda values: np.asarray(values) % 3 == 0)
    files = RowGroups(whole.files, whole.metadata, even)
    assert sum(files.sizes) == 20
    assert len(opened) == 5
    places = np.array([1, 2, 9, 19])
    assert files.rows_at(places, files.typed(["number"])).table.column("number").to_pylist() == [3, 6, 27, 57]


@pytest.mark.parametrize("odd", [1, 7, 30])
def test_of_many_files_the_first_that_disagrees_is_named(tmp_path: Path, odd: int) -> None:
    write(tmp_path, 31)
    for number in (odd, 30):
        pq.write_table(pa.table({"number": ["x"], "name": ["y"]}), tmp_path / f"part-{number:03d}.parquet")
    files = RowGroups.of(tmp_path)
    with pytest.raises(DataError, match=rf"part-{odd:03d}\.parquet: a column has another type than in .*000"):
        files.typed(["number"])
    assert files.typed(["name"]).names == ["name"]


def test_types_of_all_files_hold_the_values_of_each(tmp_path: Path) -> None:
    for number, kind in enumerate((pa.int32(), pa.int64(), pa.int32())):
        table = pa.table({"number": pa.array([number], kind)})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    files = RowGroups.of(tmp_path)
    schema = files.typed(["number"])
    assert schema.field("number").type == pa.int64()
    assert files.rows_at(np.arange(3), schema).table.column("number").to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("how", ["cut", "over"])
def test_a_file_that_is_cut_or_written_over_while_it_is_open_is_an_error(tmp_path: Path, how: str) -> None:
    """Arrow gives fewer rows of it, or others, without a word."""
    table = pa.table({"number": np.arange(40_000)})
    place = tmp_path / "a.parquet"
    write = partial(pq.write_table, row_group_size=1_000, compression="none", use_dictionary=False)
    write(table, place)
    groups = RowGroups.of(tmp_path)
    pieces = [Piece(number, 0, rows) for number, rows in enumerate(groups.sizes)]
    chunks = groups.chunks(pieces, groups.typed(["number"]), 1_000)
    assert next(chunks).table.num_rows == 1_000
    if how == "cut":
        with place.open("r+b") as file:
            file.truncate(1_000)
    else:
        with place.open("r+b") as file:
            write(pa.table({"number": np.arange(40_000)[::-1]}), file)
        os.utime(place, (1, 1))
    with pytest.raises(DataError, match=r"a\.parquet: has changed since it was counted"):
        list(chunks)
