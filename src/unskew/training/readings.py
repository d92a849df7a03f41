"""How the rows of a stream come to a training: round by round, as they are read or as numbers to look up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.data import Encoders, Log, StreamedLog
from unskew.data.ahead import ahead
from unskew.data.remembered import RememberedRows
from unskew.training.row_table import RowTable
from unskew.training.samplers import Sample, batches

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


@dataclass(frozen=True)
class Rounds:
    """Epochs over a stream in parts of whole blocks: after each, all that happens between epochs happens.

    Parameters
    ----------
    per_epoch
        Rounds of an epoch.
    blocks
        Of a round; the last has those that are left, up to a half more or less.
    """

    source: StreamedLog
    per_epoch: int
    blocks: int

    @classmethod
    def of(cls, source: StreamedLog, visited: float, most: int) -> Self:
        """Rounds in which about ``most`` of the rows are visited, of which there are ``visited`` an epoch."""
        whole = source.blocks_of_epoch()
        blocks = -(-whole // max(1, round(visited / most)))
        # Of whole buffers, where it has some: what two rounds share is read by both.
        buffer = source.blocks_of_buffer()
        blocks = max(round(blocks / buffer) * buffer, min(blocks, buffer))
        # What is left at the end is of the last round: alone it could be a few rows.
        return cls(source, max(1, round(whole / blocks)), blocks)

    def read(self, number: int, seed: int) -> Iterator[tuple[Log, NDArray[np.int64]]]:
        """Return the blocks of a round, as rows of a buffer."""
        return self.source.shuffled(**self._from(number, seed))

    def numbers(self, number: int, seed: int) -> Iterator[NDArray[np.int64]]:
        """The same as numbers of rows, which a thread draws ahead."""
        return ahead(self.source.numbers(**self._from(number, seed)), 1)

    def _from(self, number: int, seed: int) -> dict[str, Any]:
        epoch, place = divmod(number, self.per_epoch)
        return {
            "seed": seed,
            "epoch": epoch,
            "start": place * self.blocks,
            "count": None if place == self.per_epoch - 1 else self.blocks,
        }

    def sizes(self, visited: float, batch_size: int) -> tuple[int, int]:
        """Return about how many steps a round has, and the rows of a step."""
        return batches(max(1, round(visited / self.per_epoch)), batch_size)

    def count(self, epochs: int, visited: float, stops: bool) -> int:
        """Rounds to train for: of so many epochs, and with early stopping of at most
        :func:`most_epochs`."""
        return self.per_epoch * (min(epochs, most_epochs(visited)) if stops else epochs)

    def patience(self, asked: int | None) -> int | None:
        """Rounds without progress after which a training stops: of epochs with several rounds at most as many
        as an epoch has, and two."""
        return asked if asked is None or self.per_epoch == 1 else min(asked, self.per_epoch + 2)


class RowsOfBlock(NamedTuple):
    """Some rows of a stream in an order for training.

    Attributes
    ----------
    numbers
        Of the rows.
    clicked
        Which of them are clicks: without those that are held out, or all.
    clicks, cells
        What batches of O, and of D, hold of rows by their numbers.
    """

    numbers: NDArray[np.int64]
    clicked: NDArray[np.bool_]
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
    clicked
        Which rows of a buffer are clicks: without those that are held out, or all.
    clicks, cells
        What batches of O, and of D, hold of a buffer's rows by their numbers.
    """

    clicked: Callable[[Log], NDArray[np.bool_]]
    clicks: Callable[[Log, NDArray[np.int64]], Columns]
    cells: Callable[[Log, NDArray[np.int64]], Columns]

    def blocks(self, rounds: Rounds, number: int, seed: int) -> Iterator[RowsOfBlock]:
        """Those of a round."""
        last, clicked = None, np.empty(0, dtype=bool)
        for buffer, rows in rounds.read(number, seed):
            if buffer is not last:
                last, clicked = buffer, self.clicked(buffer)
            yield RowsOfBlock(rows, clicked[rows], partial(self.clicks, buffer), partial(self.cells, buffer))

    def arrived(self, samples: Iterator[Sample], device: torch.device) -> Iterator[Sample]:
        """The rows themselves."""
        return moved(samples, device)


@dataclass(frozen=True)
class ReadNumbers:
    """Rows that are kept in memory: their numbers are drawn, and looked up in a table.

    Parameters
    ----------
    clicked
        Which of all rows are clicks: without those that are held out, or all.
    """

    clicked: NDArray[np.bool_]
    table: RowTable

    def blocks(self, rounds: Rounds, number: int, seed: int) -> Iterator[RowsOfBlock]:
        """Those of a round."""
        for rows in rounds.numbers(number, seed):
            yield RowsOfBlock(rows, self.clicked[rows], _numbered, _numbered)

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
