"""Streams of files: the rows, codes and features of `read_log` on the same files."""

from __future__ import annotations

import os
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew import Bag, Category, Number, read_log, stream_log
from unskew.base.errors import DataError
from unskew.data import Log, StreamedLog
from unskew.data.datasets.files import files as dataset_of_files
from unskew.data.datasets.streams import stream_files
from unskew.data.rows_of_files import RowsOfFiles
from unskew.data.scan import BUCKETS
from unskew.data.splitting import mature_rows

ROLES = ("user", "item", "row")


def columns(n: int, text: bool, seed: int = 0) -> dict[str, Any]:
    """Columns of all kinds, with gaps, of users that are there a few times each."""
    draw = np.random.default_rng(seed)
    user, item = draw.integers(0, n // 6, n), draw.zipf(1.6, n) % 40
    click = draw.random(n) < 0.3
    name = np.array(["tv", "phone", "pc", None], dtype=object)
    return {
        "uid": [f"u{each}" for each in user] if text else user * 3 - 7,
        "iid": [f"item-{each}" for each in item] if text else item,
        "clicked": click.astype(np.int8),
        "bought": pa.array(np.where(click, draw.random(n) < 0.4, 0).astype(float), mask=~click),
        "number": np.arange(n),
        "city": np.array(["ulm", "bonn", "köln"])[user % 3],
        "age": pa.array(20 + user % 50, mask=user % 11 == 0),
        "price": draw.lognormal(1, 2, 40)[item],
        "device": name[draw.integers(0, 4, n)],
        "position": draw.integers(1, 9, n),
        "score": np.where(draw.random(n) < 0.1, np.nan, draw.normal(size=n)),
        "tags": [[f"t{k}" for k in draw.integers(0, 9, draw.integers(0, 4))] for _ in range(n)],
        "shown": np.datetime64("2026-01-01T00:00:00") + draw.integers(0, 10**6, n).astype("timedelta64[s]"),
        "returned": pa.array(np.full(n, np.datetime64("2026-02-01", "s")), mask=~click),
    }


def write(folder: Path, n: int, *, text: bool = False, cuts: tuple[int, ...] = (), group: int = 70) -> Path:
    table = pa.table(columns(n, text))
    for number, (start, stop) in enumerate(zip((0, *cuts), (*cuts, n), strict=True)):
        # Row groups of another size in each file.
        place = folder / f"day={number}"
        place.mkdir()
        pq.write_table(
            table.slice(start, stop - start), place / "part.parquet", row_group_size=group + 13 * number
        )
    return folder


NAMES: dict[str, Any] = {"user": "uid", "item": "iid", "click": "clicked", "conversion": "bought"}


@pytest.fixture(params=[False, True], ids=["numbers", "text"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return write(tmp_path, 900, text=request.param, cuts=(150, 160, 700))


def require_same(stream: StreamedLog, log: Log) -> None:
    """Row by row, in order and in an epoch: the same codes, outcomes, columns and features."""
    assert len(stream) == len(log)
    assert (stream.n_clicks, stream.n_conversions) == (log.n_clicks, int((log.known_conversion() == 1).sum()))
    assert stream.users.same_as(log.users)
    assert stream.items.same_as(log.items)
    assert stream.schema == log.schema
    assert stream.schema_table() == log.schema_table()
    for blocks in (stream.in_order(), stream.blocks(seed=1, epoch=2)):
        met: list[int] = []
        for block in blocks:
            at = block.columns["number"]
            met += at.tolist()
            assert np.array_equal(block.user, log.user[at])
            assert np.array_equal(block.item, log.item[at])
            assert np.array_equal(block.click, log.click[at])
            assert np.array_equal(block.conversion, log.conversion[at], equal_nan=True)  # type: ignore[arg-type,index]
            for name in log.columns:
                assert np.array_equal(block.columns[name], log.columns[name][at])
            if log.encoders is not None:
                require_same_features(block, log, at)
        assert sorted(met) == list(range(len(log)))


def require_same_features(block: Log, log: Log, at: np.ndarray) -> None:
    assert log.encoders is not None
    assert block.encoders is not None
    assert block.features is not None
    assert log.features is not None
    assert block.features.declared == log.features.declared
    whole = log.encoded_rows()
    assert np.array_equal(block.encoded_rows().codes, whole.codes[at])
    assert np.array_equal(block.encoded_rows().numbers, whole.numbers[at])
    # The values that are carried along encode to the same.
    again = block.encoders.block("row", len(block), block.features.values)
    assert np.array_equal(again.codes, whole.codes[at])
    for role in ("user", "item"):
        for kind in ("codes", "numbers"):
            assert np.array_equal(
                getattr(block.encoders.tables[role], kind), getattr(log.encoders.tables[role], kind)
            )
        own = block.encoders.encode(block)[role]
        assert np.array_equal(own.codes, log.encoders.encode(log)[role].codes)
    for name, times in log.features.times.items():
        assert np.array_equal(block.features.times[name], times[at], equal_nan=True)


def test_ids_alone(folder: Path) -> None:
    stream = stream_log(folder, **NAMES, keep=["number"], block_rows=64)
    log = read_log(folder, **NAMES, keep=["number"], space="impressions", time="shown")
    require_same(stream, log)
    assert stream.time == "shown"


def test_features_that_are_found(folder: Path) -> None:
    options: dict[str, Any] = {**NAMES, "keep": ["number"], "features": "auto", "ignore": ["returned"]}
    stream = stream_log(folder / "**" / "*.parquet", **options, block_rows=64)
    log = read_log(folder, space="impressions", **options)
    require_same(stream, log)
    assert {each.feature.name: each.feature.role for each in stream.encoders.encoders} == {  # type: ignore[union-attr]
        "city": "user",
        "age": "user",
        "price": "item",
        "device": "row",
        "position": "row",
        "score": "row",
        "tags": "row",
        "shown.hour": "row",
        "shown.weekday": "row",
    }
    assert stream.source.empty.features.left_out == log.features.left_out  # type: ignore[union-attr]


def test_features_that_are_declared(folder: Path) -> None:
    declared = [
        Category("device", size=1),
        Category("city", hash=16, role="row"),
        Number("price", transform="quantile"),
        Category("position", role="item"),
        Bag("tags", width=2, min_count=40),
        "age",
    ]
    options: dict[str, Any] = {**NAMES, "keep": ["number"], "features": declared}
    log = read_log(folder, space="impressions", time="shown", **options)
    require_same(stream_log(folder, block_rows=100, **options), log)


@pytest.mark.parametrize("text", [pa.string_view(), pa.large_string()], ids=str)
def test_text_is_text_however_arrow_holds_it(tmp_path: Path, text: Any) -> None:
    options: dict[str, Any] = {**NAMES, "keep": ["number", "kept"], "features": "auto"}
    whole = pa.table(columns(300, text=True)).append_column("kept", pa.array(["a", "b", None] * 100))
    for name, kind in (("uid", text), ("city", text), ("kept", text), ("tags", pa.list_(text))):
        whole = whole.set_column(whole.column_names.index(name), name, whole[name].cast(kind))
    place = tmp_path / "log.parquet"
    pq.write_table(whole, place, row_group_size=70)
    stream, log = stream_log(place, **options, block_rows=64), read_log(place, space="impressions", **options)
    require_same(stream, log)
    some, at = stream.sample(40), stream.sample(40).columns["number"]
    assert np.array_equal(some.user, log.user[at])
    require_same_features(some, log, at)
    assert np.array_equal(some.columns["kept"], log.columns["kept"][at])


def test_many_small_chunks_are_counted_as_one_large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.data.scan.SCAN_ROWS", 37)
    monkeypatch.setattr("unskew.data.streamed.MOST_BUFFER_ROWS", 128)
    options: dict[str, Any] = {**NAMES, "keep": ["number"], "features": "auto"}
    log = read_log(folder, space="impressions", **options)
    require_same(stream_log(folder, block_rows=64, **options), log)


class TestDigest:
    """By which a checkpoint knows its data again: all ids and outcomes, wherever the files lie."""

    def of(self, folder: Path, **changed: Any) -> str:
        folder.mkdir()
        stream = stream_log(write_changed(folder, **changed), **NAMES, keep=["number"], block_rows=64)
        assert stream.remembered(1e6).digest == stream.digest
        return stream.digest

    def test_a_copy_has_the_same_however_it_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = self.of(tmp_path / "a")
        monkeypatch.setattr("unskew.data.scan.SCAN_ROWS", 37)
        monkeypatch.setattr("unskew.data.scan.THREADS", 1)
        assert self.of(tmp_path / "b") == first

    @pytest.mark.parametrize("name", ["uid", "iid", "clicked", "bought"])
    def test_two_rows_that_change_places_at_the_end_change_it(self, tmp_path: Path, name: str) -> None:
        """All counts, and the sizes of the files, stay what they were."""
        assert self.of(tmp_path / "a") != self.of(tmp_path / "b", **swapped(name))

    def test_files_of_other_sizes_have_another(self, tmp_path: Path) -> None:
        city = {"city": pa.array(["ulm" if each % 2 else "b" * 99 for each in range(900)])}
        assert self.of(tmp_path / "a") != self.of(tmp_path / "b", **city)

    def test_of_a_log_in_memory_it_covers_all_values(self) -> None:
        options: dict[str, Any] = {**NAMES, "space": "impressions", "features": ["score", "device"]}
        table = pa.table(columns(900, False))
        score = table["score"].to_numpy().copy()
        score[899] = 77.0
        at = table.column_names.index("score")
        logs = [
            Log.from_frame(each, **options)
            for each in (table, pa.table(columns(900, False)), table.set_column(at, "score", pa.array(score)))
        ]
        first, same, other = (StreamedLog.of(each, block_rows=64).digest for each in logs)
        assert first == same != other


def swapped(name: str) -> dict[str, Any]:
    """A column two of whose last rows have each other's values, so that no count tells."""
    whole = alternating()
    values, clicked = pa.array(whole[name]), np.flatnonzero(whole["clicked"])
    rows = clicked[-100:] if name == "bought" else np.arange(800, 900)
    one = rows[0]
    other = next(
        row
        for row in rows
        if values[row] != values[one] and (name == "bought" or whole["bought"][row] == whole["bought"][one])
    )
    order = np.arange(900)
    order[[one, other]] = other, one
    return {name: values.take(pa.array(order))}


def alternating() -> dict[str, Any]:
    """All columns, with a value of ``bought`` whether a row is clicked or not."""
    return {**columns(900, False), "bought": np.arange(900) % 2}


def write_changed(folder: Path, **changed: Any) -> Path:
    """All columns in one file of plain pages, some of them changed."""
    table = pa.table({**alternating(), **changed})
    pq.write_table(table, folder / "a.parquet", row_group_size=90, compression="none", use_dictionary=False)
    return folder


@pytest.mark.parametrize("rows", [128, 1 << 19])
def test_buffers_of_several_chunks_have_the_rows_of_those_of_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr("unskew.data.streamed.MOST_BUFFER_ROWS", rows)
    options: dict[str, Any] = {**NAMES, "keep": ["number", "city"], "features": "auto"}
    log = read_log(folder, space="impressions", **options)
    whole = [block.columns["number"] for block in stream_log(folder, **options).blocks(seed=1, epoch=2)]
    monkeypatch.setattr("unskew.data.rows_of_files.CHUNK_BYTES", 3_000)
    decoded = decoded_rows(monkeypatch)
    require_same(stream_log(folder, **options, block_rows=64), log)
    assert max(decoded) < 128
    parts = [block.columns["number"] for block in stream_log(folder, **options).blocks(seed=1, epoch=2)]
    assert all(map(np.array_equal, parts, whole))


def test_long_text_is_decoded_in_parts_and_held_as_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew.data.rows_of_files.CHUNK_BYTES", 100_000)
    monkeypatch.setattr("unskew.data.row_groups.BATCH_BYTES", 50_000)
    table = pa.table({**columns(900, False), "long": [f"{row % 600} " * 300 for row in range(900)]})
    # One row group, and pages of which nothing tells how long single texts are.
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False)
    features = [Category("long", role="row", hash=64), Category("device")]
    options: dict[str, Any] = {**NAMES, "keep": ["number"], "features": features}
    log = read_log(tmp_path, space="impressions", **options)
    stream = stream_log(tmp_path, **options, block_rows=256)
    decoded = decoded_rows(monkeypatch)
    for block in stream.blocks(seed=0, epoch=0):
        at = block.columns["number"]
        assert np.array_equal(block.encoded_rows().codes, log.encoded_rows().codes[at])
        assert block.features is not None
        assert set(block.features.values) == {"device"}
    assert sum(decoded) == 900
    assert max(decoded) * 1_000 < 200_000


def test_a_place_with_a_scheme_is_read_as_a_path_is(folder: Path) -> None:
    options: dict[str, Any] = {**NAMES, "keep": ["number"]}
    whole = stream_log(folder, **options)
    for place in (f"file://{folder}", f"file://{folder}/**/*.parquet", f"file://{folder}/day=[0-3]/*"):
        found = stream_log(place, **options)
        assert len(found) == len(whole)
        numbers = [block.columns["number"] for block in found.in_order()]
        assert np.array_equal(np.concatenate(numbers), np.arange(len(whole)))
    one = stream_log(f"file://{folder}/day=2/part.parquet", **options)
    assert len(one) == 540
    with pytest.raises(DataError, match="no such file"):
        stream_log(f"file://{folder}/nothing/*.parquet", **options)


def test_a_start_in_the_middle_reads_parts_of_row_groups(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew.data.streamed.MOST_BUFFER_ROWS", 100)
    stream = stream_log(folder, **NAMES, keep=["number"], block_rows=50)
    whole = [block.columns["number"] for block in stream.blocks(seed=0, epoch=0)]
    for start in (1, 2, 7):
        rest = [block.columns["number"] for block in stream.blocks(seed=0, epoch=0, start=start)]
        assert all(map(np.array_equal, rest, whole[start:]))


def decoded_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each buffer that is decoded from now on."""
    plain, decoded = RowsOfFiles.decoded, []

    def noted(self: RowsOfFiles, chunk: Any) -> Log:
        decoded.append(len(chunk.table))
        return plain(self, chunk)

    monkeypatch.setattr(RowsOfFiles, "decoded", noted)
    return decoded


def test_blocks_before_the_first_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.data.streamed.MOST_BUFFER_ROWS", 100)
    stream = stream_log(write(tmp_path, 900), **NAMES, block_rows=50)
    decoded, read = decoded_rows(monkeypatch), []
    batches = pq.ParquetFile.iter_batches

    def read_groups(self: Any, *given: Any, row_groups: list[int], **rest: Any) -> Any:
        read.extend(row_groups)
        return batches(self, *given, row_groups=row_groups, **rest)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", read_groups)
    assert len(list(stream.blocks(seed=0, epoch=0, start=14))) == 4
    assert sum(decoded) == 200
    # Of 13 row groups of 70 rows those that have the last 200 rows.
    assert len(read) <= 4


def test_of_some_blocks_their_buffers_alone_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew.data.streamed.MOST_BUFFER_ROWS", 100)
    stream = stream_log(write(tmp_path, 900), **NAMES, keep=["number"], block_rows=50)
    whole = [block.columns["number"] for block in stream.blocks(seed=0, epoch=0)]
    decoded = decoded_rows(monkeypatch)
    for start, count, buffers in ((0, 2, 1), (2, 4, 2), (3, 1, 1), (3, 2, 2), (16, 5, 1), (18, 1, 0)):
        decoded.clear()
        some = [each.columns["number"] for each in stream.blocks(seed=0, epoch=0, start=start, count=count)]
        assert len(decoded) == buffers
        assert all(map(np.array_equal, some, whole[start : start + count]))
        assert len(some) == len(whole[start : start + count])
        numbers = list(stream.numbers(seed=0, epoch=0, start=start, count=count))
        assert all(map(np.array_equal, numbers, some))


def test_clicks_alone_are_those_of_all_rows(tmp_path: Path) -> None:
    stream = stream_log(write(tmp_path, 900, cuts=(150, 700)), **NAMES, block_rows=50)
    wanted = np.concatenate([block.click for block in stream.in_order()])
    for source in (stream, stream.remembered(1e6), StreamedLog.of(stream.sample(900), block_rows=50)):
        parts = list(source.source.clicks(64))
        assert max(map(len, parts)) == 64
        assert np.array_equal(np.concatenate(parts), wanted)


def test_a_sample_has_the_rows_of_the_same_sample_in_memory(folder: Path) -> None:
    options: dict[str, Any] = {**NAMES, "keep": ["number"]}
    stream = stream_log(folder, **options)
    memory = StreamedLog.of(read_log(folder, space="impressions", time="shown", **options))
    some, same = stream.sample(77, seed=2), memory.sample(77, seed=2)
    for name in ("user", "item", "click"):
        assert np.array_equal(getattr(some, name), getattr(same, name))


class TestMaturity:
    """Rows too young to have converted are left out, as of a log in memory."""

    def test_the_rows_are_those_of_a_log_in_memory(self, folder: Path) -> None:
        options: dict[str, Any] = {**NAMES, "keep": ["number"], "features": ["device", "score"]}
        stream = stream_log(folder, **options, maturity="5d", block_rows=64)
        log = mature_rows(read_log(folder, space="impressions", time="shown", **options), "5d").log
        assert 0 < len(log) < 900
        assert len(stream) == len(log)
        for blocks in (stream.in_order(), stream.blocks(seed=0, epoch=0)):
            met = np.concatenate([block.columns["number"] for block in blocks])
            assert sorted(met) == sorted(log.columns["number"])
        assert stream.n_clicks == log.n_clicks
        some = stream.sample(50, seed=1)
        assert np.isin(some.columns["number"], log.columns["number"]).all()

    def require_same_rows(
        self, folder: Path, maturity: str, time: str | None = None, **options: Any
    ) -> StreamedLog:
        """The rows that stay, and the column of times, are those of a log in memory."""
        stream = stream_log(folder, keep=["number"], time=time, maturity=maturity, **options)
        log = mature_rows(
            read_log(folder, keep=["number"], space="impressions", time=time, **options), maturity
        ).log
        numbers = np.concatenate([block.columns["number"] for block in stream.in_order()])
        assert np.array_equal(numbers, log.columns["number"])
        assert 0 < len(log) < 3_000
        assert stream.time == log.time
        return stream

    def written(self, folder: Path, **columns: Any) -> Path:
        row = np.arange(3_000)
        ids = {"user": row % 7, "item": row % 3, "click": row % 2, "number": row}
        pq.write_table(pa.table({**ids, **columns}), folder / "a.parquet", row_group_size=1_000)
        return folder

    def test_a_column_of_times_that_is_ignored_tells_nothing(self, tmp_path: Path) -> None:
        hours = np.datetime64("2026-01-01", "s") + np.arange(3_000) * np.timedelta64(1, "h")
        minutes = np.datetime64("2026-03-01", "s") + np.arange(3_000) * np.timedelta64(1, "m")
        folder = self.written(tmp_path, bought_at=minutes, shown=hours)
        for ignore, time in ((["bought_at"], "shown"), ([], "bought_at"), (["shown"], "bought_at")):
            options: dict[str, Any] = {"features": "auto", "ignore": ignore}
            assert self.require_same_rows(folder, "24h", **options).time == time
            for load in (dataset_of_files, stream_files):
                dataset = load(folder, space="impressions", **options)
                assert dataset.train.time == time
        # What is named counts, ignored or not.
        both = self.require_same_rows(folder, "24h", features=["shown"], ignore=["shown", "bought_at"])
        assert both.time == "shown"

    def test_the_time_has_no_missing_values_in_young_rows_either(self, tmp_path: Path) -> None:
        hours = np.datetime64("2026-01-01", "s") + np.arange(3_000) * np.timedelta64(1, "h")
        folder = self.written(tmp_path, first=pa.array(hours, mask=np.arange(3_000) == 2_999), second=hours)
        assert self.require_same_rows(folder, "24h", features="auto").time == "second"
        assert dataset_of_files(folder, space="impressions").train.time == "second"

    @pytest.mark.parametrize(
        "when",
        [
            np.linspace(0, 6 * 365 * 86_400_000, 3_000).astype(np.int64),
            np.random.default_rng(0).permutation(np.linspace(1e9, 1.7e12, 3_000).astype(np.int64)),
            [str(int(each)) for each in np.linspace(0, 6 * 365 * 86_400_000, 3_000)],
            [str(1990 + row % 30) if row < 1_500 else f"{1990 + row % 30}-02" for row in range(3_000)],
        ],
        ids=["milliseconds", "unsorted", "digits", "years and months"],
    )
    def test_a_unit_and_a_form_are_those_of_all_rows(self, tmp_path: Path, when: Any) -> None:
        folder = self.written(tmp_path, when=pa.array(when))
        self.require_same_rows(folder, "7d", time="when")

    def test_a_wrong_row_is_named_by_its_number_in_the_file(self, tmp_path: Path) -> None:
        when = np.datetime64("2026-01-01", "s") + np.arange(100, 0, -1) * np.timedelta64(1, "D")
        click = np.tile([0, 1], 50)
        click[70] = 3
        pq.write_table(
            pa.table({"user": np.arange(100) % 7, "item": np.arange(100) % 3, "click": click, "when": when}),
            tmp_path / "a.parquet",
            row_group_size=30,
        )
        with pytest.raises(DataError, match=r"a\.parquet, column 'click', row 70: click is value 3"):
            stream_log(tmp_path, maturity="40d")

    def test_a_time_that_is_named_may_not_be_missing(self, tmp_path: Path) -> None:
        when = pa.array(np.datetime64("2026-01-01", "s") + np.arange(3_000), mask=np.arange(3_000) == 2_500)
        with pytest.raises(DataError, match=r"a\.parquet, column 'when': holds no times.*None"):
            stream_log(self.written(tmp_path, when=when), time="when", maturity="1h")

    def test_without_times_or_old_rows_it_is_refused(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="no click is older than 2000d"):
            stream_log(folder, **NAMES, maturity="2000d")
        other = tmp_path / "other"
        other.mkdir()
        pq.write_table(pa.table({"user": [1, 2], "item": [1, 2], "click": [1, 0]}), other / "a.parquet")
        with pytest.raises(DataError, match="no column of times"):
            stream_log(other, maturity="1d")


class TestTooManyIds:
    """More ids than have a code of their own: the frequent ones keep theirs, others share some."""

    def test_the_frequent_keep_a_code(self, folder: Path) -> None:
        log = read_log(folder, **NAMES, keep=["number"], space="impressions")
        stream = stream_log(folder, **NAMES, keep=["number"], most_ids=20)
        counts = np.bincount(log.item)
        frequent = log.items.ids[counts > np.sort(counts)[-20]]
        assert np.isin(frequent.astype(object), stream.items.ids.astype(object)).all()
        assert len(stream.items.ids) == 20
        block = next(stream.in_order())
        assert block.item.max() < stream.n_items
        known = block.item < 20
        assert np.array_equal(
            stream.items.decode(block.item[known]), log.items.decode(log.item[: len(block)][known])
        )
        # The same id has the same code wherever it is.
        code_of: dict[Any, int] = {}
        for identity, code in zip(log.items.decode(log.item[: len(block)]).tolist(), block.item, strict=True):
            assert code_of.setdefault(identity, code) == code

    def test_ids_that_share_a_code_are_folded_together_and_never_unseen(self, folder: Path) -> None:
        stream = stream_log(folder, **NAMES, most_ids=20)
        assert len(stream.users.hashes) == stream.n_users
        assert (stream.users.encode(["never there"]) >= 20).all()

    def test_features_of_others_are_missing(self, folder: Path) -> None:
        stream = stream_log(folder, **NAMES, features=["price", "city", "device"], most_ids=20)
        assert stream.encoders is not None
        assert len(stream.encoders.tables["user"].codes) == stream.n_users + 1
        for block in stream.blocks(seed=0, epoch=0):
            assert block.schema == stream.schema

    def test_counts_that_are_cut_on_the_way_keep_what_is_frequent(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("unskew.data.scan.SCAN_ROWS", 50)
        stream = stream_log(folder, **NAMES, features="auto", most_ids=10)
        log = read_log(folder, **NAMES, space="impressions")
        top = log.items.ids[np.argsort(-np.bincount(log.item), kind="stable")[:3]]
        assert np.isin(top.astype(object), stream.items.ids.astype(object)).all()


class TestFilesOfSeveralDays:
    """A column comes or goes between days, and a writer may choose another encoding for each file."""

    @staticmethod
    def written(folder: Path, *days: dict[str, Any]) -> list[Path]:
        random = np.random.default_rng(5)
        for number, columns in enumerate(days):
            click = random.random(200) < 0.3
            table = pa.table(
                {
                    "uid": random.integers(0, 30, 200),
                    "iid": random.integers(0, 9, 200),
                    "clicked": click.astype(int),
                    "bought": (click & (random.random(200) < 0.5)).astype(int),
                    "number": np.arange(200 * number, 200 * (number + 1)),
                    "place": random.integers(0, 4, 200),
                    **{name: pa.array(values[:200]) for name, values in columns.items()},
                }
            )
            pq.write_table(table, folder / f"day{number}.parquet", row_group_size=70)
        return sorted(folder.iterdir())

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
    def test_auto_leaves_out_what_a_file_lacks_and_says_which(
        self, tmp_path: Path, order: tuple[int, ...]
    ) -> None:
        """It was dropped without a word where the first file lacked it, an error where a later one did."""
        bid, campaign = np.linspace(0, 1, 200), ["a", "b"] * 100
        when = pa.array(np.arange(200), pa.timestamp("s"))
        days = ({"campaign": campaign}, {"campaign": campaign, "bid": bid, "when": when}, {"bid": bid})
        files = self.written(tmp_path, *days)
        given = [files[number] for number in order]
        options: dict[str, Any] = {**NAMES, "features": "auto"}
        lacked = {
            name: next(
                str(file) for number, file in zip(order, given, strict=True) if name not in days[number]
            )
            for name in ("campaign", "bid", "when")
        }
        options["ignore"] = ["number"]
        stream = stream_log(given, **options)
        logs = (
            read_log(given, space="impressions", **options),
            dataset_of_files(train=given, space="impressions", **options).train,
            stream.source.empty,  # type: ignore[union-attr]
            stream_files(train=given, **options).train.source.empty,  # type: ignore[union-attr]
        )
        for log in logs:
            assert log.features is not None
            assert [each.name for each in log.features.declared] == ["place"]
            assert log.features.left_out == {name: f"{file} lacks it" for name, file in lacked.items()}
            assert log.time is None
        asked = {**options, "features": ["auto", "bid"]}
        for read in (stream_log, partial(read_log, space="impressions")):
            with pytest.raises(DataError, match=r"day0\.parquet: column 'bid' is missing"):
                read(given, **asked)
            ignored = read(given, **{**options, "ignore": ["number", "bid", "when"]})
            kept = ignored.source.empty if read is stream_log else ignored
            assert set(kept.features.left_out) == {"campaign"}

    def test_a_dictionary_in_one_file_and_text_in_another_are_one_column(self, tmp_path: Path) -> None:
        device = pa.array(["tv", None, "pc", "web"] * 50)
        for name, days in (
            ("one", (device.dictionary_encode(), device)),
            ("other", (device, device.dictionary_encode())),
        ):
            (tmp_path / name).mkdir()
            self.written(tmp_path / name, *({"device": each} for each in days))
            options: dict[str, Any] = {**NAMES, "keep": ["number"], "features": "auto"}
            stream = stream_log(tmp_path / name, **options)
            log = read_log(tmp_path / name, space="impressions", **options)
            require_same(stream, log)
            line = next(each for each in log.schema_table() if each["name"] == "device")
            assert (line["kind"], line["cardinality"], line["missing"]) == ("category", 3, 0.25)


_BYTES = pa.array([b"a"] * 217 + [b"\xff\xfe"] + [b"b"] * 82)
_TEXT = pa.Array.from_buffers(pa.string(), 300, _BYTES.buffers())
UNREADABLE: dict[str, Any] = {
    "text": _TEXT,
    "texts": pa.ListArray.from_arrays(pa.array(range(301), pa.int32()), _TEXT),
    "zone": pa.array(np.datetime64("2026-01-01", "us") + np.arange(300), pa.timestamp("us", "Mars/City")),
    "uuid": pa.array([b"0123456789abcdef"] * 300, pa.uuid()),
    "ids": pa.array(2**60 + np.arange(300), mask=np.arange(300) == 217),
}
"""Columns of which a value is wrong, or whose type is."""


class TestErrors:
    """One line that names the file, the column and the row."""

    def written(self, tmp_path: Path, **changed: Any) -> Path:
        whole = {name: pa.array(values) for name, values in columns(300, text=False).items()}
        pq.write_table(pa.table(whole), tmp_path / "a.parquet", row_group_size=100)
        pq.write_table(pa.table({**whole, **changed}), tmp_path / "b.parquet", row_group_size=100)
        return tmp_path

    @pytest.mark.parametrize(
        ("name", "values", "problem"),
        [
            ("uid", pa.array([1] * 217 + [None] + [2] * 82), "id is missing"),
            ("clicked", pa.array([1] * 217 + [2] + [0] * 82, pa.int8()), "clicked is value 2, not 0 or 1"),
            ("clicked", pa.array([1] * 217 + [None] + [0] * 82, pa.int8()), "clicked is missing"),
            ("iid", pa.array([1.0] * 217 + [1.5] + [2.0] * 82), "id 1.5 is not a whole number"),
        ],
    )
    def test_a_wrong_value_is_named(self, tmp_path: Path, name: str, values: Any, problem: str) -> None:
        folder = self.written(tmp_path, **{name: values})
        with pytest.raises(DataError, match=rf"b.parquet, column '{name}', row 217: {problem}"):
            stream_log(folder, **NAMES)
        with pytest.raises(DataError, match=rf"b.parquet, column '{name}', row 217: {problem}"):
            read_log(folder, **NAMES, space="impressions")

    def test_a_missing_column_is_named(self, tmp_path: Path) -> None:
        folder = self.written(tmp_path)
        with pytest.raises(DataError, match="column 'shop' is missing"):
            stream_log(folder, **NAMES, features=["shop"])

    def test_a_missing_column_that_folders_are_named_by_is_told(self, folder: Path) -> None:
        told = r"column 'day' is missing\. To fix: 'day=0' is the name of a folder: write the column"
        for options in ({"features": ["day"]}, {"keep": ["day"]}, {"time": "day"}):
            for read in (stream_log, partial(read_log, space="impressions")):
                with pytest.raises(DataError, match=told):
                    read(folder, **NAMES, **options)  # type: ignore[arg-type]

    def test_types_that_differ_are_named(self, tmp_path: Path) -> None:
        folder = self.written(tmp_path, uid=pa.array(["x"] * 300))
        with pytest.raises(DataError, match="another type than in"):
            stream_log(folder, **NAMES)

    @pytest.mark.parametrize(
        ("name", "first", "second", "problem"),
        [
            ("age", pa.array([1.5] * 300), pa.array([2] * 217 + [2**53 + 5] * 83), "double"),
            ("uid", pa.array([1] * 300), pa.array([2] * 217 + [2**63 + 5] * 83, pa.uint64()), "int64"),
        ],
    )
    def test_values_whose_types_go_together_and_they_do_not_are_named(
        self, tmp_path: Path, name: str, first: Any, second: Any, problem: str
    ) -> None:
        whole = {each: pa.array(values) for each, values in columns(300, text=False).items()}
        pq.write_table(pa.table({**whole, name: first}), tmp_path / "a.parquet", row_group_size=100)
        pq.write_table(pa.table({**whole, name: second}), tmp_path / "b.parquet", row_group_size=100)
        place = rf"b\.parquet, column '{name}', row 217: value \d+ of type u?int64 does not fit .*{problem}"
        with pytest.raises(DataError, match=place):
            stream_log(tmp_path, **NAMES, features=["age"])
        with pytest.raises(DataError, match=place):
            read_log(tmp_path, **NAMES, features=["age"], space="impressions")

    def test_types_that_go_together_and_cannot_be_made_one_are_named(self, tmp_path: Path) -> None:
        folder = self.written(tmp_path, age=pa.array([Decimal("1.25")] * 300, pa.decimal128(7, 2)))
        place = r"a\.parquet, column 'age', row 0: value 62 of type int64 does not fit decimal"
        with pytest.raises(DataError, match=place):
            stream_log(folder, **NAMES, features=["age"])
        with pytest.raises(DataError, match=place):
            read_log(folder, **NAMES, features=["age"], space="impressions")

    @pytest.mark.parametrize(
        ("column", "options", "problem"),
        [
            (
                UNREADABLE["text"],
                {"features": [Category("x", role="row")]},
                r"row 217: value b'\\xff.*not UTF-8",
            ),
            (UNREADABLE["text"], {"keep": ["x"]}, r"row 217: value b'\\xff.*not UTF-8"),
            (UNREADABLE["text"], {"user": "x"}, r"row 217: value b'\\xff.*not UTF-8"),
            (UNREADABLE["texts"], {"features": ["x"]}, r"row 217: value b'\\xff.*not UTF-8"),
            (
                UNREADABLE["zone"],
                {"features": ["x"]},
                "its times are of the zone 'Mars/City'",
            ),
            (UNREADABLE["uuid"], {"features": [Category("x")]}, r"holds extension<arrow.uuid>, not text"),
            (UNREADABLE["ids"], {"user": "x"}, "row 217: id is missing"),
        ],
    )
    def test_values_that_nothing_can_be_made_of_are_named(
        self, tmp_path: Path, column: Any, options: dict[str, Any], problem: str
    ) -> None:
        whole = {name: pa.array(values) for name, values in columns(300, text=False).items()}
        pq.write_table(pa.table({**whole, "x": column}), tmp_path / "a.parquet", row_group_size=100)
        place = rf"a\.parquet, column 'x'(:|,) {problem}"
        with pytest.raises(DataError, match=place):
            stream_log(tmp_path, **{**NAMES, **options})
        with pytest.raises(DataError, match=place):
            read_log(tmp_path, **{**NAMES, **options}, space="impressions")

    @pytest.mark.parametrize(
        ("column", "problem"),
        [
            (UNREADABLE["ids"], "whole numbers beyond"),
            (
                pa.array(range(300), mask=np.arange(300) == 9).cast(pa.timestamp("s", "Mars/City")),
                "Mars/City",
            ),
        ],
    )
    def test_kept_values_with_gaps_that_no_type_has_are_named(
        self, tmp_path: Path, column: Any, problem: str
    ) -> None:
        whole = {name: pa.array(values) for name, values in columns(300, text=False).items()}
        pq.write_table(pa.table({**whole, "x": column}), tmp_path / "a.parquet", row_group_size=100)
        for read in (stream_log, partial(read_log, space="impressions")):
            with pytest.raises(DataError, match=rf"column 'x'.*: .*{problem}"):
                read(tmp_path, **NAMES, keep=["x"])

    def test_whole_numbers_beyond_those_of_doubles_are_numbers(self, tmp_path: Path) -> None:
        whole = {name: pa.array(values) for name, values in columns(300, text=False).items()}
        large = pa.array(2**60 + np.arange(300) * 2**50)
        pq.write_table(pa.table({**whole, "large": large}), tmp_path / "a.parquet", row_group_size=100)
        options: dict[str, Any] = {**NAMES, "keep": ["number"], "features": ["large", "city"]}
        require_same(stream_log(tmp_path, **options), read_log(tmp_path, **options, space="impressions"))

    def test_one_class_is_refused(self, tmp_path: Path) -> None:
        table = pa.table({"user": [1, 2], "item": [1, 2], "click": [1, 1], "bought": [1, 1]})
        for name in ("a", "b", "c"):
            pq.write_table(table, tmp_path / f"{name}.parquet")
        place = r"a\.parquet and 2 more files, column"
        with pytest.raises(DataError, match=rf"{place} 'click': every row of the population is clicked"):
            stream_log(tmp_path)
        pq.write_table(table.set_column(2, "click", pa.array([1, 0])), tmp_path / "a.parquet")
        with pytest.raises(DataError, match=rf"{place} 'bought': conversion is 1 on every clicked row"):
            stream_log(tmp_path, conversion="bought")

    def test_rows_of_one_chunk_are_not_said_to_be_all(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("unskew.data.scan.SCAN_ROWS", 100)
        wrong = np.isin(np.arange(300), (217, 230, 290))
        whole = columns(300, text=False)
        for name, values in (
            ("uid", pa.array(whole["uid"], mask=wrong)),
            ("clicked", pa.array(np.where(wrong, 3, whole["clicked"]))),
        ):
            folder = self.written(tmp_path, **{name: values})
            with pytest.raises(DataError, match=rf"column '{name}', row 217: ") as found:
                stream_log(folder, **NAMES)
            assert "such rows" not in str(found.value)
            assert found.value.problem.count("(") == found.value.problem.count(")")

    def test_csv_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("user,item,click\n1,1,1\n")
        with pytest.raises(DataError, match="only Parquet files are streamed"):
            stream_log(tmp_path / "a.csv")

    def test_a_file_that_breaks_while_it_is_read_is_named(self, tmp_path: Path) -> None:
        folder = self.written(tmp_path)
        stream = stream_log(folder, **NAMES)
        file = folder / "b.parquet"
        when, size = file.stat().st_mtime_ns, file.stat().st_size
        file.write_bytes(b"PAR1" + bytes(size - 4))
        os.utime(file, ns=(when, when))
        with pytest.raises(DataError, match=r"b\.parquet: cannot be read as Parquet"):
            list(stream.in_order())

    @pytest.mark.parametrize("scheme", ["", "file://"])
    def test_a_file_that_is_not_what_was_counted_is_refused(self, tmp_path: Path, scheme: str) -> None:
        folder = self.written(tmp_path)
        place, file = f"{scheme}{folder}", folder / "b.parquet"
        stream = stream_log(place, **NAMES)
        # Clicks alone differ: nothing that is decoded would tell.
        whole = pq.read_table(file)
        clicks = pa.array(1 - whole["clicked"].to_numpy(), pa.int8())
        pq.write_table(whole.set_column(2, "clicked", clicks), file, row_group_size=100)
        with pytest.raises(
            DataError, match=r"b\.parquet: has changed since it was counted.*stream the files"
        ):
            list(stream.in_order())
        with pytest.raises(DataError, match=r"b\.parquet: has changed since it was counted"):
            list(stream.source.clicks(100))
        pq.write_table(whole, file, row_group_size=100)
        stream = stream_log(place, **NAMES)
        # The pages are whole, and the end that was read before tells where they are.
        file.write_bytes(file.read_bytes()[:-400])
        with pytest.raises(DataError, match=r"b\.parquet: has changed since it was counted"):
            stream.sample(500)
        file.unlink()
        with pytest.raises(DataError, match=r"b\.parquet: is gone since it was counted"):
            list(stream.in_order())

    def test_an_id_that_was_not_counted_is_refused(self, tmp_path: Path) -> None:
        """Of a file that was replaced by one of the same size and time, as some tools that copy do."""
        options: dict[str, Any] = {"compression": "none", "use_dictionary": False}
        table = pa.table({"user": np.arange(90) % 9, "item": np.arange(90) % 7, "click": np.arange(90) % 2})
        file = tmp_path / "a.parquet"
        pq.write_table(table, file, **options)
        when, size = file.stat().st_mtime_ns, file.stat().st_size
        stream = stream_log(file)
        user = np.where(np.arange(90) == 40, 100, np.arange(90) % 9)
        pq.write_table(table.set_column(0, "user", pa.array(user)), file, **options)
        os.utime(file, ns=(when, when))
        assert file.stat().st_size == size
        with pytest.raises(DataError, match=r"a\.parquet, column 'user', row 40: id 100 was not there"):
            list(stream.in_order())


def blocks_of(stream: StreamedLog) -> list[tuple[Any, ...]]:
    return [
        (
            block.user,
            block.item,
            block.click,
            block.conversion,
            block.columns["number"],
            *block.encoded_rows(),
        )
        for blocks in (
            stream.in_order(),
            stream.blocks(seed=1, epoch=2),
            stream.blocks(seed=1, epoch=2, start=3),
        )
        for block in blocks
    ]


def test_rows_that_are_remembered_come_as_from_the_files_and_no_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write(tmp_path, 900, cuts=(150, 700))
    wanted = [Category("device"), Number("score"), Bag("tags"), Category("city", role="user")]
    stream = stream_log(place, **NAMES, keep=["number"], features=wanted, block_rows=100)
    kept = stream.remembered(1e6)
    assert kept.digest == stream.digest
    expected = blocks_of(stream)
    with monkeypatch.context() as closed:
        closed.delattr(RowsOfFiles, "read")
        found = blocks_of(kept)
    for mine, theirs in zip(found, expected, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
    # One byte for each code of a row, and the types of all blocks are the usual ones.
    assert kept.source.log.encoded_rows().codes.dtype == np.int8  # type: ignore[attr-defined]
    assert {block.encoded_rows().codes.dtype for block in kept.in_order()} == {np.dtype(np.int32)}
    # Values as they are in the files are still to be had.
    assert kept.sample(50).features.values.keys() == {"device", "score", "tags", "city"}  # type: ignore[union-attr]


def test_rows_that_take_more_than_was_allowed_are_read_again(tmp_path: Path) -> None:
    stream = stream_log(write(tmp_path, 900), **NAMES, keep=["number"])
    assert stream.remembered(900 * 15) is stream
    assert stream.remembered(900 * 30) is not stream


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(2), pa.binary_view()])
def test_bytes_are_left_out_in_lists_too(tmp_path: Path, kind: Any) -> None:
    """One column of a type that is no feature's does not refuse the log."""
    row = np.arange(60)
    columns = {"user": row % 9, "item": row % 7, "click": row % 2, "device": row % 3}
    odd = {"plain": pa.array([b"ab"] * 60, kind), "lists": pa.array([[b"ab"]] * 60, pa.list_(kind))}
    pq.write_table(pa.table({**columns, **odd}), tmp_path / "a.parquet")
    for read in (stream_log, partial(read_log, space="impressions")):
        features = read(tmp_path, features="auto").features
        assert [each.name for each in features.declared] == ["device"]
        assert features.left_out.keys() == {"plain", "lists"}
        with pytest.raises(DataError, match="column 'lists': its type is no feature's"):
            read(tmp_path, features=["lists"])


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
@pytest.mark.parametrize("small", [0, 150])
def test_codes_of_64_bits_are_a_category_and_many_are_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, small: int
) -> None:
    monkeypatch.setattr("unskew.data.scan.SCAN_ROWS", 100)
    row = np.arange(400)
    ids = {"user": row % 9, "item": row % 7, "click": row % 2, "conversion": (row % 4 == 1).astype(int)}
    first = 2**63 if kind == pa.uint64() else 2**60
    options: dict[str, Any] = {"conversion": "conversion", "features": "auto"}

    def write_values(distinct: int) -> None:
        """Of 64 bits after some small rows, which may be numbers."""
        code = [(0 if each < small else first) + int(each) % distinct for each in row]
        table = pa.table({**ids, "code": pa.array(code, kind)})
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=90)

    for distinct, wanted in ((3, "category"), (400, "number")):
        write_values(distinct)
        log = read_log(tmp_path, space="impressions", **options)
        stream = stream_log(tmp_path, **options)
        assert [each.kind for each in stream.schema.features] == [wanted]
        assert stream.schema == log.schema
        blocks = [block.encoded_rows() for block in stream.in_order()]
        assert np.array_equal(np.concatenate([each.codes for each in blocks]), log.encoded_rows().codes)
        assert np.array_equal(np.concatenate([each.numbers for each in blocks]), log.encoded_rows().numbers)


def test_columns_of_text_are_not_remembered(tmp_path: Path) -> None:
    stream = stream_log(write(tmp_path, 900), **NAMES, keep=["city"])
    assert stream.remembered(1e9) is stream


def test_whole_numbers_are_remembered_also_where_some_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a gap they are fractions in all buffers, and must not become the least whole number."""
    monkeypatch.setattr("unskew.data.streamed.MOST_BUFFER_ROWS", 100)
    for gap in (None, 350):
        numbers = [None if row == gap else row for row in range(400)]
        table = pa.table(
            {"user": np.arange(400) % 20, "item": np.arange(400) % 7, "click": np.arange(400) % 3 == 0}
        ).append_column("number", pa.array(numbers, pa.int64()))
        pq.write_table(table, tmp_path / "log.parquet", row_group_size=100)
        stream = stream_log(tmp_path / "log.parquet", click="click", keep=["number"], block_rows=100)
        kept = stream.remembered(1e9)
        assert kept is not stream
        found = np.concatenate([block.columns["number"] for block in kept.in_order()])
        assert np.isnan(found).sum() == (gap is not None)


def test_kept_columns_have_one_type_wherever_values_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew.data.streamed.MOST_BUFFER_ROWS", 100)
    gap = np.arange(400) == 350
    kept = {
        "whole": pa.array(np.arange(400), mask=gap),
        "flag": pa.array(np.arange(400) % 2 == 0, mask=gap),
        "when": pa.array(np.datetime64("2026-01-01", "us") + np.arange(400), mask=gap),
        "day": pa.array(np.datetime64("2026-01-01", "D") + np.arange(400), mask=gap),
        "text": pa.array([f"t{each}" for each in range(400)], mask=gap),
        "full": pa.array(np.arange(400)),
    }
    table = pa.table({"user": np.arange(400) % 20, "item": np.arange(400) % 7, "click": gap})
    for name, values in kept.items():
        table = table.append_column(name, values)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=100)
    options: dict[str, Any] = {"click": "click", "keep": list(kept)}
    log = read_log(tmp_path, **options, space="impressions")
    blocks = list(stream_log(tmp_path, **options, block_rows=100).in_order())
    for start, block in zip(range(0, 400, 100), blocks, strict=True):
        for name in kept:
            wanted = log.columns[name][start : start + 100]
            assert block.columns[name].dtype == wanted.dtype
            np.testing.assert_array_equal(block.columns[name], wanted)


@pytest.mark.parametrize("most_ids", [1_000, 2_000, 10_000])
def test_whole_numbers_of_users_are_numbers_also_where_rare_users_share_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_ids: int
) -> None:
    """What tells after a part of the rows that they are no codes ends their count as such, not the pass."""
    monkeypatch.setattr("unskew.data.scan.SCAN_ROWS", 1_000)
    user = np.arange(6_000) // 2
    table = pa.table({"user": user, "item": user % 50, "click": user % 3 == 0, "income": user * 7 + 3})
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=500)
    stream = stream_log(tmp_path / "log.parquet", click="click", features="auto", most_ids=most_ids)
    (field,) = stream.schema.features
    assert (field.name, field.kind, field.role) == ("income", "number", "user")
    shared = most_ids < 3_000
    assert stream.n_users == (most_ids + BUCKETS if shared else 3_000)


@pytest.mark.parametrize("text", [False, True])
def test_a_digest_tells_ids_apart_that_are_first_met_later_on(tmp_path: Path, text: bool) -> None:
    head = [1, 2] * 4
    found = set()
    for last in ([10, 11, 10, 10, 11, 11, 10, 10], [11, 10, 11, 11, 10, 10, 11, 11]):
        user = [f"u{each}" if text else each for each in head + last]
        row = np.arange(16)
        table = pa.table({"user": user, "item": row % 3, "click": row % 2, "conversion": (row % 4) // 3})
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)
        found.add(stream_log(tmp_path / "a.parquet", conversion="conversion", block_rows=8).digest)
    assert len(found) == 2


@pytest.mark.parametrize("chunk", [7, 1000])
def test_whose_a_feature_is_does_not_depend_on_counts_that_were_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr("unskew.data.scan.SCAN_ROWS", chunk)
    row = np.arange(400)
    table = pa.table({"user": row % 100, "item": row % 7, "click": row % 2, "age": (row % 100) / 3})
    pq.write_table(table, tmp_path / "a.parquet")
    stream = stream_log(tmp_path, features=["age"], most_ids=10)
    assert stream.features is not None
    assert [each.role for each in stream.features.declared] == ["user"]
