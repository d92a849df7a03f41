"""Rows written as they come: one file or part files, in their order, whole or not there."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.base.errors import RunFolderError
from unskew.data.row_files import check_rows_target, rows_writer

SCHEMA = pa.schema([("x", pa.int64())])


def write(out, batches, **options):
    """Batches of (number of a file, values)."""
    target = check_rows_target(out, overwrite=options.pop("overwrite", False))
    with rows_writer(target, SCHEMA, **options) as writer:
        for file, values in batches:
            writer.write([pa.array(values)], file)
    return writer


def test_without_rows_there_is_a_file_with_the_columns(tmp_path):
    write(tmp_path / "out.parquet", [])
    assert pq.read_table(tmp_path / "out.parquet").schema.names == ["x"]


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
