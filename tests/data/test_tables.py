"""Tables from files: CSV columns stay as they are written, and what cannot be read is told in one line."""

from __future__ import annotations

import gzip
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.base.errors import DataError, ParameterError
from unskew.data import files
from unskew.data.datasets import load, read_log
from unskew.data.files import expand_paths
from unskew.data.source import read_table

AS_WRITTEN = [
    "007",
    "7",
    "1e3",
    "1000",
    "1.10",
    "1.1",
    "TRUE",
    "true",
    "NA",
    "null",
    "nan",
    "0x1f",
    "08:30:00",
]


def test_csv_columns_are_text_as_it_stands_there(tmp_path):
    (tmp_path / "a.csv").write_text("id,x\n" + "".join(f"{value},1\n" for value in [*AS_WRITTEN, '""', ""]))
    column = read_table(tmp_path / "a.csv")["id"]
    assert column.type == pa.string()
    assert column.to_pylist() == [*AS_WRITTEN, None, None], "an empty cell alone is missing"


def test_csv_columns_that_are_called_numbers_are_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("id,n,b\n1,007,true\n2,NA,false\n3,,true\n")
    table = read_table(tmp_path / "a.csv", numbers=["n", "b"])
    assert table.to_pydict() == {"id": ["1", "2", "3"], "n": [7, None, None], "b": [True, False, True]}


def test_beside_parquet_csv_columns_have_its_types(tmp_path):
    (tmp_path / "a.csv").write_text("id,n\n007,7\n")
    pq.write_table(pa.table({"id": ["8"], "n": [8]}), tmp_path / "b.parquet")
    assert read_table(tmp_path).to_pydict() == {"id": ["007", "8"], "n": [7, 8]}


@pytest.mark.parametrize("block", [64, 1 << 20])
def test_text_that_is_not_utf_8_is_told_with_its_place(tmp_path, monkeypatch, block):
    monkeypatch.setattr(files, "CSV_BLOCK_BYTES", block)
    (tmp_path / "a.csv").write_bytes(b"id,name\n" + b"007,x\n" * 30 + b"8,\xe9\n")
    with pytest.raises(DataError, match=r"a.csv, column 'name', row 30: value b'\\xe9' is not UTF-8"):
        read_table(tmp_path / "a.csv")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_called_by_its_name(tmp_path, encoding):
    mark = "" if encoding == "utf-16" else "\ufeff"
    (tmp_path / "a.csv").write_bytes(f"{mark}user,item\n1,2\n".encode(encoding))
    with pytest.raises(DataError, match=r"is text in UTF-16, not in UTF-8\. To fix: save it as CSV UTF-8"):
        read_table(tmp_path / "a.csv")


def test_a_byte_order_mark_of_utf_8_is_no_part_of_a_name(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\n1,2\n", encoding="utf-8-sig")
    assert read_table(tmp_path / "a.csv").column_names == ["user", "item"]


def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    pq.write_table(pa.table({"id": ["8"]}), tmp_path / "a.parquet")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pq, "read_schema", refuse)
    with pytest.raises(DataError, match=r"a.parquet: may not be read\. To fix: see to its permissions"):
        read_table(tmp_path / "a.parquet")


def test_users_that_differ_in_their_zeros_are_not_merged(tmp_path):
    (tmp_path / "log.csv").write_text("user,item,bought\n1,5,01\n01,5,0\n1e0,6,0\nNA,6,0\n")
    log = read_log(tmp_path / "log.csv", conversion="bought", numbers=["item"])
    assert log.users.ids.tolist() == ["01", "1", "1e0", "NA"]
    assert log.items.ids.tolist() == [5, 6]
    assert log.conversion.tolist() == [1, 0, 0, 0], "a column of numbers is one, whatever its digits"


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


class TestFilesOfFolders:
    """Each file counts, once, whatever its name and wherever links lead."""

    @pytest.fixture
    def folder(self, tmp_path):
        inside = tmp_path / "logs"
        inside.mkdir()
        (inside / "a.csv").write_text("x\n1\n")
        return inside

    def test_suffixes_count_in_any_letters(self, folder):
        pq.write_table(pa.table({"x": ["2"]}), folder / "B.PARQUET")
        with gzip.open(folder / "C.CSV.GZ", "wt") as packed:
            packed.write("x\n3\n")
        assert read_table(folder)["x"].to_pylist() == ["2", "3", "1"]

    def test_links_to_folders_are_followed_and_may_lead_back(self, folder, tmp_path):
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "b.csv").write_text("x\n2\n")
        (folder / "linked").symlink_to(elsewhere)
        (elsewhere / "back").symlink_to(folder)
        assert expand_paths(folder) == [folder / "a.csv", folder / "linked" / "b.csv"]

    def test_a_file_with_several_names_in_a_folder_counts_once(self, folder):
        (folder / "latest.csv").symlink_to(folder / "a.csv")
        (folder / "0.csv").hardlink_to(folder / "a.csv")
        (folder / "b.csv").write_text("x\n2\n")
        assert expand_paths(folder) == [folder / "0.csv", folder / "b.csv"]
        assert expand_paths(str(folder / "*.csv")) == [folder / "0.csv", folder / "b.csv"]

    @pytest.mark.parametrize("again", ["a.csv", "./a.csv", "../logs/a.csv", ".", "*.csv", "link.csv"])
    def test_a_file_that_is_given_twice_is_refused(self, folder, monkeypatch, again):
        monkeypatch.chdir(folder)
        (folder / "link.csv").symlink_to(folder / "a.csv")
        with pytest.raises(DataError, match=r"given twice|same file as a\.csv.*give each file once"):
            expand_paths(["a.csv", again])


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_an_arrow_stream_is_read_as_an_arrow_file_is(tmp_path, compression):
    rows = pa.table(
        {"p": np.linspace(0.1, 0.9, 50), "o": np.arange(50) % 2, "name": [f"n{i}" for i in range(50)]}
    )
    file = tmp_path / "rows.arrow"
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(file, rows.schema, options=options) as writer:
        writer.write_table(rows, max_chunksize=20)
    assert read_table(file).equals(rows)
    assert read_table(file, ["name", "p"]).equals(rows.select(["name", "p"]))
    assert us.audit(file, score="p", outcome="o").sketch.rows == 50
    file.write_bytes(file.read_bytes()[:700])
    with pytest.raises(DataError, match=r"rows\.arrow: cannot be read as Arrow"):
        read_table(file)


@pytest.mark.parametrize("name", ["http:x.parquet", "s3:x.parquet", "a.b:c.parquet"])
def test_a_colon_in_the_name_of_a_file_is_no_place_on_the_network(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with open(name, "wb") as file:
        pq.write_table(pa.table({"user": [1, 2]}), file)
    assert read_table(name)["user"].to_pylist() == [1, 2]
    assert read_table("*:*.parquet")["user"].to_pylist() == [1, 2]
