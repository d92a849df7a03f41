"""Large logs: arrays that are mapped from files are those in memory, and are found again by the next run."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.base.errors import DataError
from unskew.base.files import Lock
from unskew.data import arrays, cache, source, stream, two_passes
from unskew.data.cache import clear_cache
from unskew.data.log import Log

ROWS = 5000
OPTIONS: dict[str, Any] = {"space": "impressions", "features": "auto", "keep": ["session"]}


def table(rows: int = ROWS, seed: int = 0) -> Any:
    random = np.random.default_rng(seed)
    user = random.integers(400, size=rows)
    click = random.random(rows) < 0.3
    gaps = random.random(rows) < 0.1
    tags = [[f"t{n}" for n in random.integers(9, size=size)] for size in random.integers(4, size=rows)]
    return pa.table(
        {
            "user": [f"u{code:04d}" for code in user],
            "item": random.integers(60, size=rows),
            "click": click,
            "conversion": click & (random.random(rows) < 0.4),
            "session": [f"s{code}" for code in random.integers(900, size=rows)],
            "device": pa.array(random.choice(["tv", "phone", "pc"], rows), mask=gaps),
            "age": user % 50,
            "price": pa.array(random.lognormal(size=rows), mask=gaps),
            "tags": tags,
            "time": np.datetime64("2026-01-01", "s") + random.integers(10**6, size=rows),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    for number in range(3):
        pq.write_table(table(seed=number), tmp_path / "log" / f"{number}.parquet", row_group_size=700)
    return tmp_path / "log"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Take every log for a large one, read some rows at a time; return its cache."""
    monkeypatch.setattr(two_passes, "MAPPED_BYTES", 0)
    monkeypatch.setattr(arrays, "TAKEN_BYTES", 0)
    monkeypatch.setattr(arrays, "PIECE_ROWS", 999)
    monkeypatch.setattr(cache, "HELD_BYTES", 0)
    monkeypatch.setattr(stream, "BATCH_ROWS", 999)
    monkeypatch.setattr(stream, "PIECE_ROWS", 999)
    return tmp_path / "cache"


def contents(log: Log) -> dict[str, list[Any]]:
    """All that networks read of a log."""
    block, encoders = log.encoded_rows(), log.encoders
    assert encoders is not None
    tables = [array for role in ("user", "item") for array in encoders.tables[role]]
    found = [log.user, log.item, log.click, log.conversion, *block, *tables, *log.columns.values()]
    return {
        "arrays": [np.asarray(array).tolist() for array in found if array is not None],
        "schema": log.schema_table(),
        "ids": [log.users.ids.tolist(), log.items.ids.tolist(), log.time],
    }


def test_a_mapped_log_is_the_log_in_memory(
    folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    expected = us.read_log(folder, **OPTIONS)
    place = request.getfixturevalue("large")
    mapped = us.read_log(folder, **OPTIONS, cache=place)
    assert isinstance(mapped.user, np.memmap)
    assert not isinstance(expected.user, np.memmap)
    np.testing.assert_equal(contents(mapped), contents(expected))
    rows = np.random.default_rng(0).permutation(len(mapped))[:2500]
    np.testing.assert_equal(contents(mapped.take(rows)), contents(expected.take(rows)))
    assert isinstance(mapped.take(rows).user, np.memmap)
    for block, other in zip(mapped.blocks(1200), expected.blocks(1200), strict=True):
        np.testing.assert_equal(block.encoded_rows(), other.encoded_rows())
    leaks = [[leak.to_dict() for leak in us.check_leaks(log)] for log in (mapped, expected)]
    assert leaks[0] == leaks[1]


@pytest.mark.parametrize("kind", ["csv", "arrow", "frame"])
def test_a_large_log_of_any_source_is_the_log_in_memory(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rows = table().drop_columns(["tags"])
    given: Any = rows
    if kind == "csv":
        given = tmp_path / "log.csv"
        pyarrow.csv.write_csv(rows, given)
    if kind == "arrow":
        given = tmp_path / "log.arrow"
        with pa.ipc.new_stream(given, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=777)
    expected = us.read_log(given, **OPTIONS)
    mapped = us.read_log(given, **OPTIONS, cache=request.getfixturevalue("large"))
    assert isinstance(mapped.user, np.memmap)
    np.testing.assert_equal(contents(mapped), contents(expected))


def test_the_next_run_finds_the_log_by_the_bytes_of_its_files(
    folder: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = us.read_log(folder, **OPTIONS, cache=large)
    assert stat.S_IMODE(large.stat().st_mode) == 0o700
    read = source.Source.read
    passes: list[int] = []
    monkeypatch.setattr(
        source.Source, "read", lambda *given, **named: passes.append(1) or read(*given, **named)
    )
    again = us.read_log(folder, **OPTIONS, cache=large)
    assert again.digest == first.digest
    moved = folder.parent / "copy"
    shutil.copytree(folder, moved)
    assert us.read_log(moved, **OPTIONS, cache=large).digest == first.digest
    assert not passes
    other = us.read_log(folder, **{**OPTIONS, "keep": []}, cache=large)
    assert other.digest != first.digest
    pq.write_table(table(seed=9), folder / "1.parquet", row_group_size=700)
    changed = us.read_log(folder, **OPTIONS, cache=large)
    assert changed.digest != first.digest
    assert len(passes) == 2
    (large / "mine").mkdir()
    (large / "mine" / "log.json").touch()
    removed = clear_cache(large)
    assert len(removed) == 3
    assert min(removed.values()) > 0
    assert [path.name for path in large.iterdir() if path.is_dir()] == ["mine"]
    # What is mapped stays readable.
    assert len(again.users.encode(again.users.ids[again.user[:5]])) == 5


def test_what_a_killed_process_left_is_no_log_and_is_removed(folder: Path, large: Path) -> None:
    expected = us.read_log(folder, **OPTIONS, cache=large)
    (place,) = [path for path in large.iterdir() if path.is_dir()]
    partial = place.with_name(f"{place.name}.partial")
    place.rename(partial)
    (partial / "log.json").unlink()
    np.testing.assert_equal(contents(us.read_log(folder, **OPTIONS, cache=large)), contents(expected))
    assert not partial.exists()


def test_old_logs_make_room(folder: Path, large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    us.read_log(folder / "0.parquet", **OPTIONS, cache=large)
    (old,) = [path for path in large.iterdir() if path.is_dir()]
    os.utime(old / "log.json", (1, 1))
    monkeypatch.setattr(cache, "CACHE_BYTES", 1000)
    us.read_log(folder / "1.parquet", **OPTIONS, cache=large)
    (new,) = [path for path in large.iterdir() if path.is_dir()]
    assert new != old


def test_a_full_disk_is_one_line_and_leaves_nothing(
    folder: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrays.os, "posix_fallocate", full)
    with pytest.raises(DataError, match=r"the disk is full. To fix: make room there, or name another folder"):
        us.read_log(folder, **OPTIONS, cache=large)
    assert not [path for path in large.iterdir() if path.is_dir()]
    monkeypatch.setattr(arrays.shutil, "disk_usage", lambda path: SimpleNamespace(free=1))
    with pytest.raises(DataError, match=r"the log needs \S+ GB, and 0.0 GB are free"):
        us.read_log(folder, **OPTIONS, cache=large)


@pytest.mark.parametrize("name", ["none", "frame"])
def test_without_a_cache_nothing_stays(
    name: str, folder: Path, large: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    given = folder if name == "none" else pq.read_table(folder)
    before = {*tmp_path.iterdir()}
    log = us.read_log(given, **OPTIONS, cache="none")
    assert isinstance(log.user, np.memmap)
    assert {*tmp_path.iterdir()} == before
    assert log.take(np.arange(10, 0, -1)).encoded_rows().codes.shape[0] == 10


def test_temporary_folders_of_processes_that_were_killed_are_removed(folder: Path, large: Path) -> None:
    large.mkdir()
    names = ("unskew-dead", "unskew-alive", "unskew-new", "unskew-mine")
    for name in names:
        (large / name).mkdir()
        (large / name / ("3.npy" if name != "unskew-mine" else "notes.txt")).touch()
        os.utime(large / name, (1, 1) if name != "unskew-new" else None)
    lock = Lock(large / "unskew-alive")
    assert lock.take()
    us.read_log(folder, **OPTIONS, cache=large)
    assert {name for name in names if (large / name).is_dir()} == {*names} - {"unskew-dead"}
    lock.close()


def test_rare_ids_share_codes_by_a_hash_and_frequent_ones_have_their_own(folder: Path, large: Path) -> None:
    log = us.read_log(folder, space="impressions", most_ids=50, cache=large)
    whole = us.read_log(folder, space="impressions", cache=large)
    assert (len(log.users.ids), log.users.buckets) == (50, two_passes.BUCKETS)
    assert whole.users.buckets == 0
    own = log.user < 50
    assert (log.users.ids[log.user[own]] == whole.users.ids[whole.user[own]]).all()
    assert (log.user[~own] == log.users.encode(whole.users.ids[whole.user[~own]])).all()
    counts = np.bincount(whole.user)
    assert counts[whole.user[own]].mean() > counts[whole.user[~own]].mean()


def test_folders_named_as_columns_are_columns(tmp_path: Path) -> None:
    for number, (day, shard) in enumerate([("2026-01-01", "01"), ("2026-01-02", "7")]):
        place = tmp_path / f"day={day}" / f"shard={shard}" / f"n={number}"
        place.mkdir(parents=True)
        pq.write_table(table(60, number).select(["user", "item", "click"]), place / "a.parquet")
    log = us.read_log(tmp_path, space="impressions", keep=["shard", "n"], features="auto")
    assert {*log.columns["shard"]} == {"01", "7"}
    assert {*log.columns["n"]} == {0, 1}
    assert log.time == "day"
    assert [field.name for field in log.schema.features] == ["day.weekday"]
    assert log.features is not None
    assert log.features.left_out["day"] == "it has one value in all rows"


def test_relations_and_lazy_frames_are_read(tmp_path: Path) -> None:
    rows = table().drop_columns(["tags"])
    expected = us.read_log(rows, **OPTIONS)
    polars = pytest.importorskip("polars")
    np.testing.assert_equal(
        contents(us.read_log(polars.from_arrow(rows).lazy(), **OPTIONS)), contents(expected)
    )
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.from_arrow(rows)
    found = us.read_log(relation, **OPTIONS)
    assert (len(found), found.users.ids.tolist()) == (len(expected), expected.users.ids.tolist())
    assert found.click.sum() == expected.click.sum()


def test_the_cache_is_described_in_plain_text(folder: Path, large: Path) -> None:
    log = us.read_log(folder, **OPTIONS, cache=large)
    (place,) = [path for path in large.iterdir() if path.is_dir()]
    about = json.loads((place / "log.json").read_text())
    assert about["time"] == "time"
    assert np.array_equal(np.load(place / about["files"]["user"]), log.user)
