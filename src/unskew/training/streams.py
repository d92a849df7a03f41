"""Training on a streamed log: what is kept of it in memory, and batches of its rows as they come.

All replicas read the same rows in one order (``[1, B]``). What differs between them (folds, cells that a
click tower holds out) is a function of ids and the replica's seed. Rows come as they are read, or, where a
stream keeps them in memory, as numbers that are looked up (:mod:`unskew.training.row_table`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew import processes
from unskew.io.stream import ahead
from unskew.log import Encoders, Log, Rows, StreamedLog
from unskew.log.remembered import RememberedRows
from unskew.seeds import splitmix64, stream
from unskew.training.held_out import SHARED_SEED
from unskew.training.population import Population
from unskew.training.row_table import RowTable
from unskew.training.samplers import Known, Sample, batches

KEPT = 1 << 18
"""Clicked rows of a stream that are kept in memory, about, and as many unclicked ones: all that is held out,
judged by, or averaged over all clicks. Where a stream has fewer, all are kept."""

AT_ONCE = 1 << 17
"""Rows of O that a sample has, about: several steps, so that a GPU copies, and replays, many at a time."""

CLICKS_AT_ONCE = 1 << 18
"""Clicks of rows in memory that are looked at in one go."""

MOST_VISITS = 1 << 24
"""Rows that a training with early stopping visits at most; one epoch where a stream has more."""


def most_epochs(visited: float) -> int:
    """Of a training with early stopping that visits so many rows an epoch:
    max(1, ⌈:data:`MOST_VISITS` / rows⌉)."""
    return max(1, -(-MOST_VISITS // max(1, round(visited))))


Columns = dict[str, NDArray[Any]]
"""What is known of some rows, by name: ``[n]``, or ``[n, columns]`` each."""

NUMBER = "number"
"""The column of rows that are looked up in a table, and have no other."""


@dataclass(frozen=True, eq=False)
class Kept:
    """Rows of a stream in memory, chosen by a hash of their place: clicked ones and unclicked ones apart.

    Attributes
    ----------
    log
        The rows, in the order in which they lie; of a stream whose rows are in memory without the values of
        their features, which are coded.
    weight
        How many rows of the stream each stands for ``[n]``.
    """

    stream: StreamedLog
    log: Log
    weight: NDArray[np.float32]

    @classmethod
    def of(cls, source: StreamedLog, most: int = KEPT) -> Self:
        """The rows of a stream that are kept, for which it is read at most once: every training on it has
        the same."""
        name = f"{most} kept rows"
        if name not in source.found:
            source.found[name] = cls._read(source, most)
        kept: Self = source.found[name]
        return kept

    @classmethod
    def _read(cls, source: StreamedLog, most: int) -> Self:
        unclicked = len(source) - source.n_clicks
        shares = np.array([min(1.0, most / max(unclicked, 1)), min(1.0, most / max(source.n_clicks, 1))])
        first, places = 0, [np.empty(0, dtype=np.int64)]
        for click in _clicks(source):
            draw = _uniform(np.arange(first, first + len(click)))
            places.append(first + np.flatnonzero(draw < shares[click]))
            first += len(click)
        rows, at = source.source, np.concatenate(places)
        log = rows.coded(at) if isinstance(rows, RememberedRows) else rows.read_some(at)
        kept = np.array([len(log) - log.n_clicks, log.n_clicks])
        each = np.array([unclicked, source.n_clicks]) / np.maximum(kept, 1)
        return cls(source, log, each[log.click].astype(np.float32))

    def thinned(self, most: int) -> Iterator[tuple[Log, NDArray[np.float64]]]:
        """The stream in order, and how many rows each stands for: of more than ``most`` rows all clicks, and
        a part of the others."""
        first, share = 0, self._unclicked_share(most)
        for block in self.stream.in_order():
            if share < 1.0:
                at = _thinned(block.click, first, share)
                first += len(block)
                block = block.take(at)
            yield block, np.array([1.0 / share, 1.0])[block.click]

    def thinned_numbers(
        self, most: int, at_once: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """The same as numbers of rows, of so many of them at a time."""
        first, share = 0, self._unclicked_share(most)
        for click in _clicks(self.stream, at_once):
            at = _thinned(click, first, share)
            yield first + at, np.array([1.0 / share, 1.0])[click[at]]
            first += len(click)

    def _unclicked_share(self, most: int) -> float:
        unclicked = max(len(self.stream) - self.stream.n_clicks, 1)
        return min(1.0, max(most - self.stream.n_clicks, most // 2) / unclicked)

    def evenly(self) -> Log:
        """Those of the kept rows for which all rows of the stream had the same chance: a log of its density.

        All rows, where all are kept.
        """
        draw = _uniform(np.arange(len(self.log)), "evenly kept rows")
        return self.log.take(draw < self.weight / self.weight.max(initial=1.0))

    @property
    def clicks_each(self) -> float:
        """Clicks of the stream that a kept one stands for; 1 where all are kept."""
        return self.stream.n_clicks / max(self.log.n_clicks, 1)


def _clicks(source: StreamedLog, at_once: int = CLICKS_AT_ONCE) -> Iterator[NDArray[np.uint8]]:
    """Clicks of all rows in order, in parts: of so many rows where they are in memory."""
    if isinstance(source.source, RememberedRows):
        click = source.source.log.click
        return (click[first : first + at_once] for first in range(0, len(click), at_once))
    return (block.click for block in source.in_order())


def _thinned(click: NDArray[np.uint8], first: int, share: float) -> NDArray[np.int64]:
    """Of some neighbouring rows all clicks, and a share of the others; ``first`` is the first's number."""
    at = np.arange(len(click))
    return at if share == 1.0 else np.flatnonzero((click == 1) | (_uniform(first + at) < share))


def _uniform(place: NDArray[np.int64], purpose: str = "kept rows") -> NDArray[np.float64]:
    """A number in [0, 1) for each place in a stream."""
    hashed = splitmix64(place.astype(np.uint64) + np.uint64(stream(SHARED_SEED, purpose)))
    return (hashed >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class Rounds:
    """Epochs over a stream in parts of whole blocks: after each, all that happens between epochs happens.

    Parameters
    ----------
    per_epoch
        Rounds of an epoch.
    blocks
        Of a round.
    """

    source: StreamedLog
    per_epoch: int
    blocks: int

    @classmethod
    def of(cls, source: StreamedLog, visited: float, most: int) -> Self:
        """Rounds in which about ``most`` of the rows are visited, of which there are ``visited`` an epoch."""
        # Of the process that has most rows: all have as many rounds.
        rows = -(-len(source) // processes.parts())
        whole = -(-rows // source.block_rows)
        blocks = -(-whole // max(1, round(visited / most)))
        return cls(source, -(-whole // blocks), blocks)

    def read(self, number: int, seed: int) -> Iterator[tuple[Log, NDArray[np.int64]]]:
        """The blocks of a round, as rows of a buffer; of several processes that share batches each has its
        own."""
        return islice(self.source.shuffled(**self._from(number, seed)), self.blocks)

    def numbers(self, number: int, seed: int) -> Iterator[NDArray[np.int64]]:
        """The same as numbers of rows, which a thread draws ahead."""
        return islice(ahead(self.source.numbers(**self._from(number, seed)), 1), self.blocks)

    def _from(self, number: int, seed: int) -> dict[str, int]:
        epoch, place = divmod(number, self.per_epoch)
        return {
            "seed": seed,
            "epoch": epoch,
            "start": place * self.blocks,
            "rank": processes.part(),
            "world": processes.parts(),
        }

    def sizes(self, visited: float, batch_size: int) -> tuple[int, int]:
        """Steps of a round, about, and rows of a step: of a batch that processes share, this one's part."""
        steps, rows = batches(max(1, round(visited / self.per_epoch)), batch_size)
        return steps, -(-rows // processes.parts())

    def count(self, epochs: int, visited: float, stops: bool) -> int:
        """Rounds to train for: of so many epochs, and with early stopping of at most
        :func:`most_epochs`."""
        return self.per_epoch * (min(epochs, most_epochs(visited)) if stops else epochs)

    def patience(self, asked: int | None) -> int | None:
        """Rounds without progress after which a training stops: of epochs with several rounds at most as many
        as an epoch has, and two."""
        return asked if asked is None or self.per_epoch == 1 else min(asked, self.per_epoch + 2)


class Waiting:
    """Rows that wait for a batch, in the order in which they came."""

    def __init__(self) -> None:
        self._parts: list[Columns] = []
        self.size = 0

    def add(self, columns: Columns) -> None:
        """More rows."""
        if columns:
            self._parts.append(columns)
            self.size += len(next(iter(columns.values())))

    def take(self, count: int) -> Columns:
        """The first so many."""
        if not count:
            return {}
        joined = {name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]}
        self._parts = [{name: values[count:] for name, values in joined.items()}]
        self.size -= count
        return {name: values[:count] for name, values in joined.items()}

    def rest(self, count: int) -> Columns:
        """So many from the front; where there are fewer, some come twice."""
        wanted = np.arange(count) % self.size
        taken = self.take(min(count, self.size))
        return {name: values[wanted] for name, values in taken.items()}


class RowsOfBlock(NamedTuple):
    """Some rows of a stream in an order for training.

    Attributes
    ----------
    numbers
        Of the rows.
    trains
        Which of them are training clicks.
    clicks, cells
        What batches of O, and of D, hold of rows by their numbers.
    """

    numbers: NDArray[np.int64]
    trains: NDArray[np.bool_]
    clicks: Callable[[NDArray[np.int64]], Columns]
    cells: Callable[[NDArray[np.int64]], Columns]


class Reading(Protocol):
    """How the rows of a stream become batches."""

    def blocks(self, rounds: Rounds, number: int, seed: int) -> Iterator[RowsOfBlock]:
        """Those of a round."""
        ...

    def arrived(self, samples: Iterator[Sample], device: torch.device) -> Iterator[Sample]:
        """What steps work on, on a device."""
        ...


@dataclass(frozen=True)
class ReadBlocks:
    """Rows that are read again in every epoch, a buffer at a time.

    Parameters
    ----------
    trains
        Which rows of a buffer are training clicks.
    clicks, cells
        What batches of O, and of D, hold of a buffer's rows by their numbers.
    """

    trains: Callable[[Log], NDArray[np.bool_]]
    clicks: Callable[[Log, NDArray[np.int64]], Columns]
    cells: Callable[[Log, NDArray[np.int64]], Columns]

    def blocks(self, rounds: Rounds, number: int, seed: int) -> Iterator[RowsOfBlock]:
        """Those of a round."""
        last, trains = None, np.empty(0, dtype=bool)
        for buffer, rows in rounds.read(number, seed):
            if buffer is not last:
                last, trains = buffer, self.trains(buffer)
            yield RowsOfBlock(rows, trains[rows], partial(self.clicks, buffer), partial(self.cells, buffer))

    def arrived(self, samples: Iterator[Sample], device: torch.device) -> Iterator[Sample]:
        """The rows themselves."""
        return moved(samples, device)


@dataclass(frozen=True)
class ReadNumbers:
    """Rows that are kept in memory: their numbers are drawn, and looked up in a table.

    Parameters
    ----------
    trains
        Which of all rows are training clicks.
    """

    trains: NDArray[np.bool_]
    table: RowTable

    def blocks(self, rounds: Rounds, number: int, seed: int) -> Iterator[RowsOfBlock]:
        """Those of a round."""
        for rows in rounds.numbers(number, seed):
            yield RowsOfBlock(rows, self.trains[rows], _numbered, _numbered)

    def arrived(self, samples: Iterator[Sample], device: torch.device) -> Iterator[Sample]:
        """The rows of numbers; on a GPU they are looked up there, if the table is there too."""
        if self.table.device.type == device.type:
            return map(self.table.looked_up, moved(samples, device))
        return moved(map(self.table.looked_up, samples), device)


def _numbered(numbers: NDArray[np.int64]) -> Columns:
    return {NUMBER: numbers}


def reading_of_all(source: StreamedLog, read: Encoders | None, device: torch.device) -> Reading:
    """All rows and clicks of a stream, with the features of rows that are read."""
    table = RowTable.of(source, read, device)
    if table is not None:
        assert isinstance(source.source, RememberedRows)
        return ReadNumbers(source.source.log.click == 1, table)
    columns = RowColumns.of(source.encoders, read)
    return ReadBlocks(lambda log: log.click == 1, columns, columns)


@dataclass(frozen=True)
class StreamedClicks:
    """Training clicks of a stream in batches, each once per epoch, with or without rows of D beside them.

    Rows of D are drawn uniformly from the blocks that clicks come from, as many of each block as its share of
    all rows: every row of D is drawn with the same probability, whatever the density of its block. Rows that
    do not fill a batch wait for the next block; at the end of a round some come twice to fill the last batch,
    or, where they are less than half of one, are left out.

    Parameters
    ----------
    visited
        Training clicks of an epoch, as far as they are known.
    seed
        Of the order, and of the draws from D.
    ratio
        Rows of D per click; None for clicks alone.
    """

    rounds: Rounds
    reading: Reading
    visited: float
    batch_size: int
    seed: int
    device: torch.device
    ratio: float | None = None

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        return self.rounds.sizes(self.visited, self.batch_size)

    @property
    def steps(self) -> int:
        """Steps per round, as far as the number of clicks is known."""
        return self._sizes[0]

    @property
    def batch_rows(self) -> int:
        """Rows that a step reads for each replica."""
        return self._sizes[1] + self._cells_each

    @property
    def _cells_each(self) -> int:
        return 0 if self.ratio is None else max(1, round(self.ratio * self._sizes[1]))

    def with_cells(self, population: Population, ratio: float) -> StreamedClicks:
        """The same with ``ratio`` times as many rows of D."""
        return replace(self, ratio=ratio)

    def epoch(self, number: int) -> Iterator[Sample]:
        """Samples of a round, on the device."""
        return self.reading.arrived(self._samples(number), self.device)

    def _samples(self, number: int) -> Iterator[Sample]:
        last: list[RowsOfBlock] = []

        def read() -> Iterator[tuple[Columns, Columns]]:
            rate = self._cells_each / self._sizes[1] * self.visited / len(self.rounds.source)
            passed = 0
            for place, block in enumerate(self.reading.blocks(self.rounds, number, self.seed)):
                last[:] = [block]
                clicks = block.clicks(block.numbers[block.trains])
                before, passed = passed, passed + len(block.numbers)
                drawn = round(rate * passed) - round(rate * before)
                yield clicks, self._drawn(block, drawn, number, place) if drawn else {}

        def more(count: int) -> Columns:
            return self._drawn(last[0], count, number, -1)

        for clicks, cells, steps in in_steps(read(), (self._sizes[1], self._cells_each), more):
            yield Sample(known(clicks, steps), known(cells, steps) if cells else None)

    def _drawn(self, block: RowsOfBlock, count: int, number: int, place: int) -> Columns:
        draw = np.random.default_rng(stream(self.seed, "cells of a block", number, place + 1))
        return block.cells(block.numbers[draw.integers(len(block.numbers), size=count)])


@dataclass(frozen=True)
class StreamedCells:
    """Rows of D of a stream in batches, each once per epoch; or all clicks, and some of the other rows.

    Parameters
    ----------
    visited
        Rows of an epoch.
    unclicked
        Share of the rows without a click that is drawn, anew in each epoch.
    """

    rounds: Rounds
    reading: Reading
    visited: float
    batch_size: int
    seed: int
    device: torch.device
    unclicked: float = 1.0

    @property
    def steps(self) -> int:
        """Steps per round, about."""
        return self._sizes[0]

    @property
    def batch_rows(self) -> int:
        """Rows that a step reads for each replica."""
        return self._sizes[1]

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        return self.rounds.sizes(self.visited, self.batch_size)

    def epoch(self, number: int) -> Iterator[Sample]:
        """Samples of a round, on the device."""
        nothing: Columns = {}
        read = ((rows, nothing) for rows in self._read(number))
        steps = in_steps(read, (self.batch_rows, 0), lambda _: {})
        samples = (Sample(cells=known(rows, count)) for rows, _, count in steps)
        return self.reading.arrived(samples, self.device)

    def _read(self, number: int) -> Iterator[Columns]:
        passed = 0
        for place, block in enumerate(self.reading.blocks(self.rounds, number, self.seed)):
            rows, clicked = block.numbers, block.trains
            if self.unclicked < 1.0:
                others = np.flatnonzero(~clicked)
                count = round(self.unclicked * (passed + len(others))) - round(self.unclicked * passed)
                passed += len(others)
                draw = np.random.default_rng(stream(self.seed, "unclicked rows", number, place))
                drawn = draw.choice(others, count, replace=False)
                rows = rows[np.sort(np.append(np.flatnonzero(clicked), drawn))]
            yield block.cells(rows)


def in_steps(
    parts: Iterator[tuple[Columns, Columns]], sizes: tuple[int, int], more: Callable[[int], Columns]
) -> Iterator[tuple[Columns, Columns, int]]:
    """Rows of two kinds for several steps at a time, so many of each for a step, and the number of steps.

    As many steps each time, but for the last. What does not fill a step waits for the next part. Of the first
    kind some rows come twice to fill the last step, or, where they are less than half of one, are left out;
    of the second there are ``more``.
    """
    batch, beside = sizes
    at_once = max(1, AT_ONCE // batch)
    first, second = Waiting(), Waiting()
    for of_first, of_second in parts:
        first.add(of_first)
        second.add(of_second)
        while first.size >= at_once * batch and second.size >= at_once * beside:
            yield first.take(at_once * batch), second.take(at_once * beside), at_once
    steps, left = divmod(first.size, batch)
    steps += 2 * left >= batch or (steps == 0 and left > 0)
    for start in range(0, steps, at_once):
        count = min(at_once, steps - start)
        if second.size < count * beside:
            second.add(more(count * beside - second.size))
        yield first.rest(count * batch), second.take(count * beside), count


def known(columns: Columns, steps: int) -> Known | Tensor:
    """Columns of ``steps · B`` rows as tensors ``[1, steps, B]``; those of propensities ``[R, steps, B]``.

    Where rows are in a table, their numbers.
    """

    def tensor(name: str) -> Tensor:
        values = torch.from_numpy(np.ascontiguousarray(columns[name]))
        return values.view(1, steps, len(values) // steps, *values.shape[1:])

    if NUMBER in columns:
        return tensor(NUMBER)
    fields = [name for name in ("user", "item", "codes", "numbers") if name in columns]
    return Known(
        rows=Rows(**{name: tensor(name) for name in fields}),
        click=tensor("click"),
        conversion=tensor("conversion") if "conversion" in columns else None,
        # One line for all replicas, or one for each: columns of a row here.
        propensity=tensor("propensity")[0].movedim(-1, 0) if "propensity" in columns else None,
    )


@dataclass(frozen=True)
class RowColumns:
    """Ids, clicks and the rows' own features, as a model reads them, of some rows of a block.

    Parameters
    ----------
    places
        Of the features that are read, among those of a block's rows: columns of codes, and of numbers.
    """

    places: dict[str, NDArray[np.int64]]

    @classmethod
    def of(cls, whole: Encoders | None, read: Encoders | None) -> Self:
        """Those that ``read`` has of all encoders of a stream; None has none."""
        if whole is None or read is None:
            return cls({})
        return cls({kind: at for kind, at in read.places_in(whole, "row").items() if len(at)})

    def __call__(self, block: Log, at: NDArray[np.int64]) -> Columns:
        """Of rows by their numbers."""
        columns: Columns = {
            "user": block.user[at].astype(np.int64),
            "item": block.item[at].astype(np.int64),
            "click": block.click[at].astype(np.float32),
        }
        if self.places:
            own = block.encoded_rows()
            columns |= {
                kind: getattr(own, kind).take(at, axis=0).take(there, axis=1)
                for kind, there in self.places.items()
            }
        return columns


def moved(samples: Iterator[Sample], device: torch.device) -> Iterator[Sample]:
    """Samples on a device; each is on its way while the one before is worked on.

    From pinned memory and by a stream of its own. On a CPU they stay where they are.
    """
    if device.type != "cuda":
        yield from samples
        return
    copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    waiting: tuple[Sample, Any] | None = None
    for sample in samples:
        with torch.cuda.stream(copying):
            there = sample.map(lambda part: part.contiguous().pin_memory().to(device, non_blocking=True))
            arrived = copying.record_event()
        if waiting is not None:
            yield _arrived(*waiting)
        waiting = there, arrived
    if waiting is not None:
        yield _arrived(*waiting)


def _arrived(sample: Sample, event: Any) -> Sample:
    """A sample for the current stream, which waits for the copy and keeps the memory until it is done."""
    current = torch.cuda.current_stream(sample.device)
    current.wait_event(event)
    for part in sample.tensors():
        part.record_stream(current)
    return sample
