"""Tables from files: CSV columns keep their digits, and what is no readable path is told in one line."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew import tables
from unskew.datasets import load, read_log
from unskew.errors import DataError, ParameterError
from unskew.tables import expand_paths, read_table, text_columns

BEYOND = 2**64
"""A whole number that 64 bits cannot hold."""


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["00007", "12"], pa.string()),
        (["12", " 007"], pa.string()),
        (["-01", "2"], pa.string()),
        (["0x1f", "31"], pa.string()),
        ([str(BEYOND), "1"], pa.string()),
        (["12345678901234567", "1.5"], pa.string()),
        (["7", "0", "-3"], pa.int64()),
        ([str(2**63 - 1), "1"], pa.int64()),
        (["0.25", "0", "1e-3"], pa.float64()),
        (["08:30:00", "12:00:00"], pa.time32("s")),
        (["0.12345678901234567", "1.5"], pa.float64()),
    ],
)
def test_csv_columns_that_numbers_would_change_stay_text(values, kind, tmp_path):
    (tmp_path / "a.csv").write_text("id,x\n" + "".join(f"{value},1\n" for value in values))
    column = read_table(tmp_path / "a.csv")["id"]
    assert column.type == kind
    if kind == pa.string():
        assert column.to_pylist() == values


def test_columns_that_are_no_text_stay_bytes(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"id,name\n007,\xe9\n8,01\n")
    table = read_table(tmp_path / "a.csv")
    assert table.to_pydict() == {"id": ["007", "8"], "name": [b"\xe9", b"01"]}


def test_a_leading_zero_in_a_later_block_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "CSV_BLOCK_BYTES", 64)
    (tmp_path / "a.csv").write_text("id,x\n" + "7,1\n" * 100 + "007,1\n")
    assert text_columns(tmp_path / "a.csv") == {"id"}
    assert text_columns(tmp_path / "a.csv", numbers=["id"]) == set()


def test_a_column_that_is_text_in_one_csv_file_is_text_in_all(tmp_path):
    (tmp_path / "a.csv").write_text("id\n12\n")
    (tmp_path / "b.csv").write_text("id\n012\n")
    assert read_table(tmp_path)["id"].to_pylist() == ["12", "012"]


def test_parquet_keeps_its_own_types(tmp_path):
    pq.write_table(pa.table({"id": ["007"], "n": [7]}), tmp_path / "a.parquet")
    assert text_columns(tmp_path / "a.parquet") == set()
    assert read_table(tmp_path / "a.parquet").to_pylist() == [{"id": "007", "n": 7}]


def test_users_that_differ_in_their_zeros_are_not_merged(tmp_path):
    (tmp_path / "log.csv").write_text("user,item,bought\n1,5,01\n01,5,0\n1,6,0\n")
    log = read_log(tmp_path / "log.csv", conversion="bought")
    assert log.users.ids.tolist() == ["01", "1"]
    assert log.items.ids.tolist() == [5, 6]
    assert log.conversion.tolist() == [1, 0, 0], "a column of numbers is one, whatever its digits"


@pytest.mark.parametrize("unseen", ["error", "drop"])
def test_ids_of_a_test_file_are_text_where_those_of_training_are(tmp_path, unseen):
    (tmp_path / "train.csv").write_text("user,item,bought\n007,5,1\n123,5,0\n007,6,0\n124,6,1\n")
    (tmp_path / "test.csv").write_text("user,item,bought\n123,6,1\n124,5,0\n")
    files = {"train": tmp_path / "train.csv", "test": tmp_path / "test.csv"}
    data = load("files", conversion="bought", unseen=unseen, **files)
    assert data.test.users.ids[data.test.user].tolist() == ["123", "124"]


@pytest.mark.parametrize("columns", [None, ["x"]])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_column_that_is_there_twice_is_named(tmp_path, columns, suffix):
    file = tmp_path / f"a.{suffix}"
    if suffix == "csv":
        file.write_text("user,x,x\n1,2,3\n")
    else:
        pq.write_table(pa.table([pa.array([1])] * 3, names=["user", "x", "x"]), file)
    with pytest.raises(DataError, match=rf"a.{suffix}: column 'x' is there 2 times. To fix: rename"):
        read_table(file, columns)


@pytest.mark.parametrize(
    ("paths", "error", "message"),
    [
        ([], ParameterError, "the list of paths is empty"),
        (None, ParameterError, "None is not a path"),
        (3, ParameterError, "3 is not a path"),
        (b"x", ParameterError, "b'x' is not a path"),
        ([None], ParameterError, "None is not a path"),
        ("", DataError, "'' is not a path"),
        ("a\0b", DataError, "is not a path"),
        ("a" * 300 + ".csv", DataError, "cannot be read: File name too long"),
        ("~nobody-of-this-name/a.csv", DataError, "cannot be read: Could not determine home"),
    ],
)
def test_what_is_no_path_is_told(paths, error, message):
    with pytest.raises(error, match=message):
        expand_paths(paths)
    with pytest.raises(error, match=message):
        read_log(paths)


def test_a_folder_that_may_not_be_read_is_not_called_empty(tmp_path, monkeypatch):
    closed = tmp_path / "closed"
    closed.mkdir()
    (tmp_path / "a.csv").write_text("x\n1\n")
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed)
    for path in (closed, tmp_path):
        with pytest.raises(DataError, match=r"closed: the folder may not be read. To fix: check its"):
            expand_paths(path)
