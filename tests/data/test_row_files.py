"""Rows written as they come: one file or part files, in their order, whole or not there."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.base.errors import ParameterError, RunFolderError
from unskew.data import row_files
from unskew.data.row_files import check_rows_target, rows_writer

SCHEMA = pa.schema([("x", pa.int64())])


def write(out, batches, **options):
    """Batches of (number of a file, values)."""
    target = check_rows_target(out, overwrite=options.pop("overwrite", False))
    with rows_writer(target, SCHEMA, **options) as writer:
        for file, values in batches:
            writer.write([pa.array(values)], file)
    return writer


def test_one_file_holds_all_batches_in_their_order(tmp_path):
    writer = write(tmp_path / "out.parquet", [(0, [1, 2]), (0, [3]), (1, [4])], plain=("x",))
    assert pq.read_table(tmp_path / "out.parquet")["x"].to_pylist() == [1, 2, 3, 4]
    assert writer.rows == 4


def test_without_rows_there_is_a_file_with_the_columns(tmp_path):
    write(tmp_path / "out.parquet", [])
    assert pq.read_table(tmp_path / "out.parquet").schema.names == ["x"]


def test_a_folder_has_parts_for_each_file_and_of_limited_length(tmp_path, monkeypatch):
    monkeypatch.setattr(row_files, "PART_ROWS", 2)
    out = f"{tmp_path}/out.v1/"
    write(out, [(0, [1, 2]), (0, [3]), (2, [4])])
    marker = json.loads((tmp_path / "out.v1" / "_unskew.json").read_text())
    assert marker["rows"] == 4
    assert marker["parts"] == [
        f"part-{name}.parquet" for name in ("00000-00000", "00000-00001", "00002-00000")
    ]
    assert pq.read_table(out)["x"].to_pylist() == [1, 2, 3, 4]


def test_a_folder_of_ours_is_replaced_with_leave_and_only_if_nothing_else_is_in_it(tmp_path):
    out = tmp_path / "out"
    write(out, [(0, [1]), (1, [2])])
    with pytest.raises(RunFolderError, match="holds rows of unskew already"):
        check_rows_target(out, overwrite=False)
    write(out, [(0, [3])], overwrite=True)
    assert pq.read_table(out)["x"].to_pylist() == [3]
    (out / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match=r"'notes.txt' which does not belong"):
        check_rows_target(out, overwrite=True)


def batches_until_one_fails():
    yield 0, [1]
    raise ZeroDivisionError


@pytest.mark.parametrize("name", ["out.parquet", "out"])
def test_nothing_is_left_of_a_failure(tmp_path, name):
    with pytest.raises(ZeroDivisionError):
        write(tmp_path / name, batches_until_one_fails())
    assert list(tmp_path.iterdir()) == []


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(ParameterError, match=r"out\.csv must end in \.parquet.*FOLDER/ for part files"):
        check_rows_target(tmp_path / "out.csv", overwrite=False)
