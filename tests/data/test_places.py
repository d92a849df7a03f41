"""Places of files: a URI means what the path does, and no row counts twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from unskew.base.errors import DataError
from unskew.data import files
from unskew.data.files import files_of
from unskew.data.read import read_log


def write(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"user": [1, 2], "item": [1, 2]}), file)


def names(folder: Path, place: Any) -> list[str]:
    return [str(file).partition(f"{folder}/")[2] for file in files_of(place)]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files are at cloud://bucket/."""

    def system_of(uri: str) -> tuple[Any, str]:
        system = pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem())
        return system, unquote(uri.removeprefix("cloud://bucket").lstrip("/"))

    monkeypatch.setattr(files, "system_of", system_of)
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of data, and what tools leave beside them."""
    write(
        *(
            tmp_path / name
            for name in ("a.parquet", "b.pq", ".tmp.parquet", "_part.parquet", "day=1/c.parquet")
        )
    )
    write(tmp_path / ".staging" / "d.parquet", tmp_path / "day=1" / ".e.parquet")
    return tmp_path


GLOBS = [
    ("", ["a.parquet", "b.pq", "day=1/c.parquet"]),
    ("*.parquet", ["_part.parquet", "a.parquet"]),
    ("**/*.parquet", ["_part.parquet", "a.parquet", "day=1/c.parquet"]),
    ("*/*.parquet", ["day=1/c.parquet"]),
    ("[ab].p*", ["a.parquet", "b.pq"]),
    ("?.parquet", ["a.parquet"]),
    ("[!a].pq", ["b.pq"]),
    (".*.parquet", [".tmp.parquet"]),
    ("day=[0-9]/**/c.parquet", ["day=1/c.parquet"]),
]


@pytest.mark.parametrize(("glob", "found"), GLOBS)
def test_a_uri_here_or_elsewhere_means_what_the_path_means(
    elsewhere: Path, folder: Path, glob: str, found: list[str]
) -> None:
    assert names(folder, f"{folder}/{glob}") == found
    assert names(folder, f"file://{folder}/{glob}") == found
    assert [str(file) for file in files_of(f"cloud://bucket/{glob}")] == [f"cloud://{each}" for each in found]


@pytest.mark.parametrize(
    "name", ["100%.parquet", "a%20b.parquet", "a[1].parquet", "x[1]/a.parquet", "ä b.parquet"]
)
def test_names_are_found_as_they_are_written(elsewhere: Path, name: str) -> None:
    write(elsewhere / name)
    place = elsewhere / name
    for uri in (f"file://{place}", f"file://localhost{place}", f"file://{quote(str(place))}"):
        assert files_of(uri) == [place]
    assert files_of(f"file://{quote(str(place.parent))}") == [place]
    (file,) = files_of(f"cloud://bucket/{quote(name)}")
    assert len(read_log(f"cloud://bucket/{quote(name)}")) == 2
    assert str(file) == f"cloud://{name}"


def test_a_percent_sign_that_escapes_nothing_is_one_of_the_name() -> None:
    assert files.system_of("mock:///logs/100%.parquet")[1] == "logs/100%.parquet"
    assert files.system_of("mock:///logs/a%20b c.parquet")[1] == "logs/a b c.parquet"


def test_a_file_under_two_names_is_refused(elsewhere: Path, folder: Path) -> None:
    for given in (
        [folder / "a.parquet", f"file://{folder}/a.parquet"],
        [f"file://{folder}/a.parquet", f"file://{folder}/*.parquet"],
        [f"file://{folder}", str(folder)],
        ["cloud://bucket/a.parquet", "cloud://bucket/a.parquet"],
        ["cloud://bucket/*.parquet", "cloud://bucket"],
    ):
        with pytest.raises(DataError, match=r"\.parquet: is (given twice|the same file as)"):
            files_of(given)


def test_files_come_in_the_order_of_their_places(elsewhere: Path, folder: Path) -> None:
    given = [folder / "b.pq", "cloud://bucket/a.parquet", f"file://{folder}/day=1"]
    assert [str(each).rpartition("/")[2] for each in files_of(given)] == [
        "b.pq",
        "a.parquet",
        "c.parquet",
    ]


def test_what_is_no_place_is_told(folder: Path) -> None:
    with pytest.raises(DataError, match=r"file://logs/a\.parquet: is no path of this machine"):
        files_of("file://logs/a.parquet")
    with pytest.raises(DataError, match="no such file"):
        files_of(f"file://{folder}/nothing")
    with pytest.raises(DataError, match="nothing://a: cannot be read"):
        files_of("nothing://a")
