"""Batches of a stream: every training click once, rows of D in proportion, what is kept of it in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import unskew as us
from contracts import feature_world
from unskew.data import Log, StreamedLog
from unskew.data.splitting import SplitBy
from unskew.propensity.given import PropensitiesOfRows, PropensitySource
from unskew.propensity.streamed import StreamedRows
from unskew.training.held_out import SHARED_SEED, Split, split_clicks
from unskew.training.kept import KEPT, Kept
from unskew.training.readings import ReadBlocks, ReadNumbers, Rounds, RowColumns, moved, reading_of_all
from unskew.training.row_table import RowTable
from unskew.training.streams import StreamedCells, StreamedClicks, Waiting

ROWS = 3_000
CPU = torch.device("cpu")


def log_of(density: float, rows: int = ROWS) -> Log:
    """Rows whose user is their number; clicks are denser in the first half."""
    random = np.random.default_rng(1)
    place = np.arange(rows)
    click = (random.random(rows) < density * np.where(place < rows / 2, 1.5, 0.5)).astype(int)
    return Log.from_arrays(
        user=place,
        item=random.integers(9, size=rows),
        click=click,
        conversion=np.where(click == 1, place % 2, np.nan),
        space="impressions",
    )


@pytest.fixture(scope="module")
def log() -> Log:
    return log_of(0.3)


def sampler(log: Log, *, block_rows: int, batch_size: int = 64, rounds: int = 1, **more) -> StreamedClicks:
    source = StreamedLog.of(log, block_rows=block_rows)
    columns = RowColumns.of(None, None)
    reading = ReadBlocks(lambda block: block.click == 1, columns, columns)
    return StreamedClicks(
        Rounds.of(source, log.n_clicks, -(-log.n_clicks // rounds)),
        reading,
        log.n_clicks,
        batch_size,
        3,
        CPU,
        **more,
    )


def drawn(samples, part: str) -> np.ndarray:
    users = [getattr(sample, part).rows.user.flatten() for sample in samples]
    return torch.cat(users).numpy()


@pytest.mark.parametrize("block_rows", [100, 1_000, ROWS])
def test_an_epoch_has_every_training_click_once_whatever_the_blocks(log, block_rows):
    batches = sampler(log, block_rows=block_rows)
    samples = list(batches.epoch(0))
    found, times = np.unique(drawn(samples, "observed"), return_counts=True)
    np.testing.assert_array_equal(found, log.clicked)
    assert sum(sample.shape[1] for sample in samples) == batches.steps
    # Those that fill the last batch come twice.
    assert (times - 1).sum() == batches.steps * batches.batch_rows - log.n_clicks


def test_all_samples_but_the_last_of_a_round_have_one_shape(log, monkeypatch):
    monkeypatch.setattr("unskew.training.streams.AT_ONCE", 200)
    shapes = [sample.shape for sample in sampler(log, block_rows=100, ratio=2.0).epoch(0)]
    assert len(shapes) > 3
    assert set(shapes[:-1]) == {shapes[0]}
    assert shapes[-1][1] <= shapes[0][1]


def test_orders_follow_from_the_round_and_differ_between_epochs(log):
    batches = sampler(log, block_rows=500, ratio=1.0)
    first, again, second = (drawn(batches.epoch(number), "cells") for number in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)


def test_every_row_of_d_is_drawn_with_one_probability_also_where_clicks_are_dense(log):
    batches = sampler(log, block_rows=100, ratio=1.0)
    early = [drawn(batches.epoch(number), "cells") < ROWS / 2 for number in range(20)]
    # Half of all rows, three quarters of the clicks; 20 epochs draw some 18,000 rows.
    assert abs(np.concatenate(early).mean() - 0.5) < 0.02


def test_rounds_of_an_epoch_have_every_block_once_and_begin_where_the_last_ended(log):
    batches = sampler(log, block_rows=100, rounds=4)
    assert batches.rounds.per_epoch == 4
    rounds = [drawn(batches.epoch(number), "observed") for number in range(4)]
    left_out = log.n_clicks - len(np.unique(np.concatenate(rounds)))
    assert left_out < 4 * batches.batch_rows / 2
    assert max(len(each) for each in rounds) < 0.4 * log.n_clicks
    apart = [set(each.tolist()) for each in rounds]
    assert not apart[0] & apart[1]


def test_epochs_are_fewer_the_more_rows_there_are_unless_all_are_asked_for(log):
    rounds = Rounds(StreamedLog.of(log, block_rows=100), per_epoch=3, blocks=10)
    visits = [1e3, 1e6, 1e7, 1e8, 1e9]
    assert [rounds.count(200, each, stops=True) for each in visits] == [600, 51, 6, 3, 3]
    assert rounds.count(200, 1e9, stops=False) == 600
    assert rounds.count(1, 1e3, stops=True) == 3


def test_patience_is_an_epoch_and_two_rounds_where_an_epoch_has_several(log):
    stream = StreamedLog.of(log, block_rows=100)
    for per_epoch, expected in ((1, [3, 10, 20, None]), (2, [3, 4, 4, None]), (8, [3, 10, 10, None])):
        rounds = Rounds(stream, per_epoch, blocks=10)
        assert [rounds.patience(asked) for asked in (3, 10, 20, None)] == expected


def test_all_rows_of_a_small_stream_are_kept_and_stand_for_themselves(log):
    kept = Kept.of(StreamedLog.of(log, block_rows=128))
    assert len(log) < KEPT
    np.testing.assert_array_equal(kept.log.user, log.user)
    assert (kept.weight == 1).all()
    assert kept.clicks_each == 1.0


def test_what_is_kept_is_read_once_for_all_trainings(log, monkeypatch):
    source = StreamedLog.of(log, block_rows=64)
    kept = Kept.of(source)
    monkeypatch.delattr(StreamedLog, "in_order")
    assert Kept.of(source) is kept


@pytest.mark.parametrize("density", [0.3, 0.01])
def test_a_large_stream_is_kept_in_part_whose_weights_add_up_to_the_whole(density):
    whole = log_of(density, rows=20_000)
    source = StreamedLog.of(whole, block_rows=999)
    kept = Kept.of(source, most=1_000)
    clicked = kept.log.click == 1
    for chosen, total in ((clicked, whole.n_clicks), (~clicked, len(whole) - whole.n_clicks)):
        assert abs(chosen.sum() - min(1_000, total)) < 100
        assert kept.weight[chosen].sum() == pytest.approx(total)
    # Another cut into blocks keeps the same rows.
    other = Kept.of(StreamedLog.of(whole, block_rows=5_000), most=1_000)
    np.testing.assert_array_equal(kept.log.user, other.log.user)


def test_what_a_block_holds_out_is_what_the_whole_log_would(log):
    by = SplitBy()
    split = Split.of(log, (4, 5), 90, by, shared=True)
    training, held = split_clicks(log, SHARED_SEED, 90, by)
    stream = StreamedLog.of(log, block_rows=77)
    found = np.concatenate([block.user[split.trains(block)] for block in stream.in_order()])
    np.testing.assert_array_equal(np.sort(found), np.sort(log.user[log.clicked[np.unique(training)]]))
    rows = split.rows(log, (4, 5))
    np.testing.assert_array_equal(rows[0], rows[1])
    np.testing.assert_array_equal(np.sort(rows[0]), np.sort(log.clicked[held]))


def test_rows_wait_in_their_order():
    waiting = Waiting()
    for start in (0, 3):
        waiting.add({"user": np.arange(start, start + 3)})
    assert waiting.take(2)["user"].tolist() == [0, 1]
    assert waiting.size == 4
    assert waiting.rest(6)["user"].tolist() == [2, 3, 4, 5, 2, 3]
    assert waiting.size == 0


@pytest.mark.gpu
def test_samples_come_to_a_gpu_in_their_order(log):
    gpu = torch.device("cuda")
    here = list(sampler(log, block_rows=100, ratio=1.0).epoch(0))
    there = list(moved(iter(here), gpu))
    assert len(there) == len(here)
    for one, other in zip(here, there, strict=True):
        for expected, found in zip(one.tensors(), other.tensors(), strict=True):
            assert found.is_cuda
            torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0)


@pytest.fixture(scope="module")
def of_files(tmp_path_factory) -> StreamedLog:
    """Impressions with features of users, items and rows, times, and a column of propensities."""
    folder = tmp_path_factory.mktemp("rows")
    table = feature_world.table()
    table = table.append_column("p", pa.array(0.1 + 0.8 * (np.arange(len(table)) % 7) / 7))
    pq.write_table(table, folder / "log.parquet", row_group_size=700)
    named = {"click": "click", "conversion": "bought", "features": feature_world.FEATURES, "keep": ["p"]}
    return us.stream_log(folder / "log.parquet", block_rows=512, **named)


def tensors_of(samples) -> list[torch.Tensor]:
    return [each for sample in samples for each in sample.tensors()]


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("ratio", [None, 1.5])
def test_rows_in_memory_give_the_batches_of_files_bit_by_bit(of_files, everywhere, ratio):
    """Features, outcomes and propensities of two lines, of which the third replica reads the first again."""
    source = PropensitySource("p", (0, 1), calibrated=True)
    propensity = PropensitiesOfRows((source,), (0.2, 0.5), (0, 1, 0))
    split = Split.of(Kept.of(of_files).log, (0, 1), 40, shared=True)
    made = []
    for stream in (of_files, of_files.remembered(1e9)):
        given = (stream, split, stream.n_clicks - 40.0, stream.encoders, CPU, propensity, everywhere)
        batches = StreamedRows(*given).sampler(64, "order")
        if ratio is not None:
            batches = batches.with_cells(None, ratio)
        made.append([tensors_of(batches.epoch(number)) for number in range(2)])
    read, looked_up = made
    for of_read, of_table in zip(read, looked_up, strict=True):
        assert len(of_read) > 5
        for first, second in zip(of_read, of_table, strict=True):
            assert first.dtype == second.dtype
            assert torch.equal(first, second)
    assert {len(each) for each in read[0]} == {1, 3}


def test_which_clicks_train_is_kept_once_however_many_seeds_share_it(of_files):
    stream = of_files.remembered(1e9)
    splits = [Split.of(Kept.of(stream).log, range(n), 40, shared=True) for n in (1, 3)]
    splits.append(Split.of(Kept.of(stream).log, range(3), 60, shared=True))
    masks = []
    for split in splits:
        rows = StreamedRows(stream, split, 1e3, stream.encoders, CPU, None, False)
        masks.append(rows.sampler(64, "order").reading.clicked)
    assert masks[0] is masks[1]
    assert masks[2].sum() < masks[0].sum()


def test_fields_of_rows_in_memory_are_picked_where_not_all_are_read(tmp_path):
    draw, rows = np.random.default_rng(0), 1_000
    columns = {name: draw.integers(0, 9, rows) for name in ("user", "item", "a", "b", "c")}
    columns |= {"x": draw.random(rows), "y": draw.random(rows), "click": draw.integers(0, 2, rows)}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    features = [*map(us.Category, "abc"), *map(us.Number, "xy")]
    stream = us.stream_log(tmp_path / "log.parquet", click="click", features=features).remembered(1e9)
    number = torch.tensor([[5, 900, 5, 17]])
    every = RowTable.of(stream, stream.encoders, CPU)
    assert every.places == {"codes": None, "numbers": None}
    whole = every.known(number).rows
    for fields in (("a",), ("c", "b"), ("y",), ("b", "x")):
        read = stream.encoders.select(fields)
        own = RowTable.of(stream, read, CPU).known(number).rows
        for kind, at in read.places_in(stream.encoders, "row").items():
            assert (kind in own) == (len(at) > 0)
            if len(at):
                assert torch.equal(own[kind], whole[kind][..., at])
                assert own[kind].dtype == whole[kind].dtype


@pytest.mark.parametrize("unclicked", [1.0, 0.4])
def test_cells_of_rows_in_memory_are_those_of_files(of_files, unclicked):
    made = []
    for stream in (of_files, of_files.remembered(1e9)):
        reading = reading_of_all(stream, stream.encoders, CPU)
        cells = StreamedCells(Rounds.of(stream, 1e3, 1 << 20), reading, 1e3, 64, 5, CPU, unclicked)
        made.append(tensors_of(cells.epoch(1)))
    assert isinstance(reading, ReadNumbers)
    for first, second in zip(*made, strict=True):
        assert torch.equal(first, second)


@pytest.mark.gpu
def test_a_table_that_takes_too_much_of_a_gpu_stays_in_memory(of_files, monkeypatch):
    kept, device = of_files.remembered(1e9), torch.device("cuda")
    reading = reading_of_all(kept, None, device)
    there = tensors_of(StreamedCells(Rounds.of(kept, 1e3, 1 << 20), reading, 1e3, 64, 5, device).epoch(0))
    monkeypatch.setattr("unskew.training.row_table.DEVICE_SHARE", 0.0)
    again = of_files.remembered(1e9)
    reading = reading_of_all(again, None, device)
    assert reading.table.device.type == "cpu"
    cells = StreamedCells(Rounds.of(again, 1e3, 1 << 20), reading, 1e3, 64, 5, device)
    moved_there = tensors_of(cells.epoch(0))
    for first, second in zip(there, moved_there, strict=True):
        assert first.is_cuda
        assert torch.equal(first, second)


@pytest.mark.parametrize("rows", [100, 401, 800, 1201, 1999])
@pytest.mark.parametrize("most", [100, 250, 390, 10_000])
def test_rounds_of_an_epoch_have_all_rows_once_and_none_is_a_few_rows(rows, most, monkeypatch):
    monkeypatch.setattr("unskew.data.streamed.MOST_BUFFER_ROWS", 200)
    log = us.Log.from_arrays(
        user=np.arange(rows) % 7, item=np.arange(rows) % 5, click=np.arange(rows) % 2, space="impressions",
        columns={"number": np.arange(rows)},
    )  # fmt: skip
    rounds = Rounds.of(StreamedLog.of(log, block_rows=50), rows, most)
    each = [np.concatenate(list(rounds.numbers(number, seed=1))) for number in range(rounds.per_epoch)]
    assert sorted(np.concatenate(each)) == list(range(rows))
    read = [
        [buffer.columns["number"][at] for buffer, at in rounds.read(number, seed=1)]
        for number in range(rounds.per_epoch)
    ]
    assert all(
        np.array_equal(np.concatenate(found), wanted) for found, wanted in zip(read, each, strict=True)
    )
    assert min(map(len, each)) >= 0.4 * np.mean([*map(len, each)])


def test_a_round_of_rows_without_a_click_is_passed_by(monkeypatch):
    """Files may be sorted by the outcome, and row groups be larger than a round."""
    monkeypatch.setattr("unskew.data.streamed.MOST_BUFFER_ROWS", 100)
    monkeypatch.setattr("unskew.propensity.streamed.ROUND_CLICKS", 50)
    rows = np.arange(800)
    log = us.Log.from_arrays(
        user=rows % 7, item=rows % 5, click=rows < 400, conversion=rows % 3 == 0, space="impressions"
    )
    model = us.Naive(backbone=us.MF(dim=2), epochs=2, batch_size=32)
    model.fit(StreamedLog.of(log, block_rows=100), seeds=1, device="cpu")
    assert 0 < len(model.history_.train["naive"]) < len(model.history_.validation)
