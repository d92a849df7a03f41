"""Streams of logs: every row once an epoch, the same order for the same seed, shards and starts that fit."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.base.errors import ParameterError
from unskew.data import Log, StreamedLog


@pytest.fixture(scope="module")
def log() -> Log:
    draw = np.random.default_rng(0)
    n = 1_003
    user, item = draw.integers(0, 60, n), draw.integers(0, 25, n)
    click = draw.random(n) < 0.3
    import pyarrow as pa

    table = pa.table(
        {
            "user": user,
            "item": item,
            "click": click.astype(int),
            "buy": (click & (draw.random(n) < 0.4)).astype(int),
            "number": np.arange(n),
            "city": np.array(["a", "b", "c"])[user % 3],
            "price": draw.lognormal(size=25)[item],
            "device": np.array(["tv", "pc", None], dtype=object)[draw.integers(0, 3, n)],
            "tags": [[str(k) for k in range(draw.integers(0, 4))] for _ in range(n)],
        }
    )
    return Log.from_frame(
        table,
        click="click",
        conversion="buy",
        keep=["number"],
        space="impressions",
        features=["city", "price", "device", "tags"],
    )


def numbers(blocks: object) -> np.ndarray:
    return np.concatenate([block.columns["number"] for block in blocks])  # type: ignore[attr-defined]


def test_an_epoch_has_every_row_once_and_its_order_follows_from_seed_and_epoch(log: Log) -> None:
    stream = StreamedLog.of(log, block_rows=64)
    first = numbers(stream.blocks(seed=1, epoch=0))
    assert sorted(first) == list(range(len(log)))
    assert np.array_equal(first, numbers(stream.blocks(seed=1, epoch=0)))
    for seed, epoch in ((1, 1), (2, 0)):
        assert not np.array_equal(first, numbers(stream.blocks(seed=seed, epoch=epoch)))
    # Nor are neighbours still neighbours.
    assert (np.diff(first) == 1).mean() < 0.05


def test_in_order_gives_the_rows_as_they_lie(log: Log) -> None:
    stream = StreamedLog.of(log, block_rows=100)
    assert np.array_equal(numbers(stream.in_order()), np.arange(len(log)))


@pytest.mark.parametrize("start", [0, 1, 5, 15, 16, 40])
def test_start_skips_blocks(log: Log, start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.data.streamed.MOST_BUFFER_ROWS", 200)
    stream = StreamedLog.of(log, block_rows=64)
    assert stream.buffer_rows == 192
    whole = list(stream.blocks(seed=3, epoch=2))
    rest = list(stream.blocks(seed=3, epoch=2, start=start))
    assert len(rest) == max(len(whole) - start, 0)
    for left, right in zip(whole[start:], rest, strict=True):
        assert np.array_equal(left.columns["number"], right.columns["number"])


def test_a_block_is_a_log_that_is_coded_as_the_whole_is(log: Log) -> None:
    stream = StreamedLog.of(log, block_rows=64)
    assert log.encoders is not None
    whole = log.encoders.block("row", len(log), log.features.values)  # type: ignore[union-attr]
    for block in stream.blocks(seed=0, epoch=0):
        at = block.columns["number"]
        assert block.users is log.users
        assert block.items is log.items
        assert block.schema == log.schema == stream.schema
        assert np.array_equal(block.user, log.user[at])
        assert np.array_equal(block.click, log.click[at])
        assert np.array_equal(block.conversion, log.conversion[at], equal_nan=True)  # type: ignore[index]
        assert np.array_equal(block.encoded_rows().codes, whole.codes[at])
        # Some rows of a block are coded as the block is, not anew.
        assert block.take(block.clicked).encoders is block.encoders


def test_a_sample_is_some_of_the_rows_by_seed(log: Log) -> None:
    stream = StreamedLog.of(log, block_rows=64)
    some = stream.sample(100, seed=4)
    assert len(some) == 100
    assert (np.diff(some.columns["number"]) > 0).all()
    assert np.array_equal(some.columns["number"], stream.sample(100, seed=4).columns["number"])
    assert not np.array_equal(some.columns["number"], stream.sample(100, seed=5).columns["number"])
    assert len(stream.sample(10_000)) == len(log)
    assert some.encoders is stream.encoders


def test_counts_are_those_of_the_log(log: Log) -> None:
    stream = StreamedLog.of(log)
    assert (len(stream), stream.n_clicks, stream.density) == (len(log), log.n_clicks, log.density)
    assert (stream.n_users, stream.n_items) == (log.n_users, log.n_items)
    assert stream.n_conversions == (log.known_conversion() == 1).sum()
    assert stream.schema_table() == log.schema_table()


def test_a_matrix_is_not_streamed() -> None:
    matrix = Log.from_arrays(user=[1, 1, 2], item=[1, 2, 1], conversion=[1, 0, 0])
    with pytest.raises(ParameterError, match="impressions"):
        StreamedLog.of(matrix)
