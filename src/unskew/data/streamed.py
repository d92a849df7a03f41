"""A log larger than memory: the same rows as a sequence of logs, in an order for training or as they lie.

Where rows come from is a `RowSource`: files, or a log in memory. Every block is a plain `Log` that shares
vocabularies and encoders with the others, so that all that works on a log works on a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import ParameterError
from unskew.base.estimator import require, require_whole
from unskew.base.progress import SILENT, Progress
from unskew.base.seeds import as_seed, stream
from unskew.data.ahead import ahead
from unskew.data.described import Described
from unskew.data.digest import digest_of
from unskew.data.encoders import Encoders
from unskew.data.log import Log, Space
from unskew.data.remembered import RememberedRows, RowSource, places_of, taken
from unskew.data.row_groups import Piece
from unskew.data.schema import Schema
from unskew.data.vocabulary import Vocabulary

BLOCK_ROWS = 1 << 16
"""Rows of a block at most, unless another number is given."""

BUFFER_BYTES = 1 << 27
"""Bytes that the rows of a buffer have, about, once they are coded. A buffer is at work while the next two
are decoded, so that three times as much is held, and what Arrow needs to read it."""

MOST_BUFFER_ROWS = 1 << 19
"""Rows of a buffer at most: within one, rows are shuffled."""

ROW_BYTES, FIELD_BYTES = 32, 24
"""What a row, and each of its columns of features, takes in a buffer, about: as it was read, and as codes."""


@dataclass(frozen=True, eq=False)
class StreamedLog:
    """The rows of a log of impressions that need not fit in memory; read again in each epoch.

    :func:`unskew.stream_log` makes one of files. It has the numbers and vocabularies of a :class:`Log`, and
    its rows come as logs: :meth:`blocks` in an order for training, :meth:`in_order` as they lie, and
    :meth:`sample` some of them at once.

    Attributes
    ----------
    source
        Where the rows come from.
    n_clicks, n_conversions
        Clicked rows, and those of them that converted (None without conversions).
    block_rows
        Rows of a block at most.

    Examples
    --------
    >>> log = Log.from_arrays(
    ...     user=[1, 1, 2, 2, 3], item=[7, 8, 7, 8, 7], click=[1, 0, 1, 0, 1], space="impressions"
    ... )
    >>> streamed = StreamedLog.of(log, block_rows=2)
    >>> [len(block) for block in streamed.blocks(seed=0, epoch=0)]
    [2, 2, 1]
    """

    source: RowSource
    n_clicks: int
    n_conversions: int | None
    block_rows: int = BLOCK_ROWS

    def __post_init__(self) -> None:
        require_whole(1, block_rows=self.block_rows)

    @classmethod
    def of(cls, log: Log, *, block_rows: int = BLOCK_ROWS) -> StreamedLog:
        """A log in memory as a stream."""
        converted = None if log.conversion is None else int((log.known_conversion() == 1).sum())
        return cls(LogInMemory(log, block_rows), log.n_clicks, converted, block_rows)

    def blocks(
        self,
        *,
        seed: int,
        epoch: int,
        start: int = 0,
        count: int | None = None,
    ) -> Iterator[Log]:
        """All rows in an order for training: logs of at most ``block_rows`` rows.

        Groups of rows are in an order that is drawn from seed and epoch, and rows are shuffled within a
        buffer of :attr:`buffer_rows`. Threads read and decode the next buffers meanwhile. Seed and epoch
        determine the order.

        Parameters
        ----------
        start
            The first block: those before it are skipped, most of them without being read.
        count
            How many blocks, of which alone the buffers are read; None for all that follow.
        """
        shuffled = self.shuffled(seed=seed, epoch=epoch, start=start, count=count)
        return (buffer.take(rows) for buffer, rows in shuffled)

    def shuffled(
        self,
        *,
        seed: int,
        epoch: int,
        start: int = 0,
        count: int | None = None,
    ) -> Iterator[tuple[Log, NDArray[np.int64]]]:
        """The same before it is taken: for each block the buffer that it is of, and its rows in there.

        Whoever needs some of a block's rows takes these alone.
        """
        pieces, skipped, inside = self._from(seed, epoch, start, count)

        def cut() -> Iterator[tuple[Log, NDArray[np.int64]]]:
            for number, buffer in enumerate(ahead(self.source.read(pieces, self.buffer_rows), 1), skipped):
                order = self._order(len(buffer), seed, epoch, number)
                for rows in self._cut(order[inside if number == skipped else 0 :]):
                    yield buffer, rows

        return islice(cut(), count)

    def numbers(
        self,
        *,
        seed: int,
        epoch: int,
        start: int = 0,
        count: int | None = None,
    ) -> Iterator[NDArray[np.int64]]:
        """The same as numbers of rows in the whole stream: nothing is read for them."""
        pieces, skipped, inside = self._from(seed, epoch, start, count)
        starts = np.cumsum([0, *self.source.groups])

        def cut() -> Iterator[NDArray[np.int64]]:
            for number, buffer in enumerate(places_of(starts, pieces, self.buffer_rows), skipped):
                order = buffer[self._order(len(buffer), seed, epoch, number)]
                yield from self._cut(order[inside if number == skipped else 0 :])

        return islice(cut(), count)

    def _from(self, seed: int, epoch: int, start: int, count: int | None) -> tuple[list[Piece], int, int]:
        """Return what is read for some blocks: pieces of whole buffers, the number of the first of them, and
        how many of its rows are before the first block."""
        require(start >= 0, f"block {start}", "count blocks from 0")
        draw = np.random.default_rng(stream(as_seed(seed), "groups of a stream", epoch))
        order = draw.permutation(len(self.source.groups))
        each = self.blocks_of_buffer()
        skipped, inside = divmod(start, each)
        last = len(self)
        if count is not None:
            last = min(-(-(start + count) // each) * self.buffer_rows, last)
        begin = min(skipped * self.buffer_rows, last)
        return self._pieces(order, begin, last), skipped, inside * self.block_rows

    def _order(self, rows: int, seed: int, epoch: int, number: int) -> NDArray[np.int64]:
        """The order of a buffer's rows."""
        # The constants are from when several processes shared an epoch: orders stay what they were.
        return np.random.default_rng(stream(seed, "rows of a buffer", epoch, 0, 1, number)).permutation(rows)

    def blocks_of_buffer(self) -> int:
        """Count the blocks of a buffer."""
        return -(-self.buffer_rows // self.block_rows)

    def blocks_of_epoch(self) -> int:
        """Count the blocks of an epoch."""
        buffers, rest = divmod(len(self), self.buffer_rows)
        return buffers * self.blocks_of_buffer() - (-rest // self.block_rows)

    def in_order(self) -> Iterator[Log]:
        """All rows as they lie, for scores and counts: logs of at most ``block_rows`` rows."""
        for buffer in self._buffers():
            yield from map(buffer.take, self._cut(np.arange(len(buffer))))

    def _buffers(self) -> Iterator[Log]:
        """The same as they are read."""
        pieces = self._pieces(np.arange(len(self.source.groups)), 0, len(self))
        return ahead(self.source.read(pieces, self.buffer_rows), 1)

    def sample(self, rows: int, seed: int = 0) -> Log:
        """So many rows at random, in memory, in the order in which they lie; all where there are no more."""
        total = len(self)
        if rows >= total:
            return self.source.read_some(np.arange(total))
        draw = np.random.default_rng(stream(as_seed(seed), "sample of a stream"))
        return self.source.read_some(np.sort(draw.choice(total, size=rows, replace=False, shuffle=False)))

    def remembered(self, most_bytes: float, progress: Progress = SILENT) -> StreamedLog:
        """The same stream, whose rows are kept as codes from here on where that takes at most so many bytes.

        They come in the same order, and need not be read and decoded in every epoch.
        """
        if isinstance(self.source, LogInMemory | RememberedRows):
            return self
        kept = RememberedRows.of(self.source, self._buffers(), most_bytes, progress)
        return self if kept is None else replace(self, source=kept)

    @cached_property
    def buffer_rows(self) -> int:
        """Rows that are read, and shuffled, at a time: whole blocks of about :data:`BUFFER_BYTES`."""
        columns = sum(each.width for each in self.schema.features)
        fitting = BUFFER_BYTES // (ROW_BYTES + FIELD_BYTES * columns)
        return max(min(fitting, MOST_BUFFER_ROWS) // self.block_rows, 1) * self.block_rows

    def __len__(self) -> int:
        return sum(self.source.groups)

    def __repr__(self) -> str:
        return (
            f"StreamedLog({self.n_users:,} users × {self.n_items:,} items, {len(self):,} rows,"
            f" {self.n_clicks:,} clicks, density {self.density:.4g})"
        )

    @property
    def space(self) -> Space:
        """Always ``"impressions"``."""
        return self.source.empty.space

    @property
    def users(self) -> Vocabulary:
        """Of the users."""
        return self.source.empty.users

    @property
    def items(self) -> Vocabulary:
        """Of the items."""
        return self.source.empty.items

    @property
    def encoders(self) -> Encoders | None:
        """How the features are coded; None without features."""
        return self.source.empty.encoders

    @property
    def features(self) -> Described | None:
        """What the features are, without the values of rows; None without features."""
        return self.source.empty.features

    @property
    def schema(self) -> Schema:
        """What networks read: the two ids, and the features."""
        return self.source.empty.schema

    @property
    def ids_schema(self) -> Schema:
        """The two ids."""
        return self.source.empty.ids_schema

    @property
    def time(self) -> str | None:
        """The column that says when each row was, if there is one."""
        return self.source.empty.time

    @property
    def n_users(self) -> int:
        """Users in the vocabulary."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """Items in the vocabulary."""
        return len(self.items)

    @property
    def population_size(self) -> int:
        """|D|: all rows."""
        return len(self)

    @property
    def density(self) -> float:
        """|O| / |D|, the base rate of clicks."""
        return self.n_clicks / self.population_size

    @cached_property
    def found(self) -> dict[str, Any]:
        """What others found by reading all rows, by a name of theirs, so that it is not read again."""
        return {}

    @cached_property
    def digest(self) -> str:
        """By which the same rows are known again, in files of other names too.

        It covers all ids, clicks and conversions in their order, the groups of rows, and of features and kept
        columns the values of users and items, the first block, and the sizes of the files: of a log in
        memory, all values. Of files, only the first block is read for it.
        """
        first = self.source.read_some(np.arange(min(self.block_rows, len(self)))).digest
        sizes = np.asarray(self.source.groups)
        return digest_of(sizes, self.block_rows, self.source.digest, first)

    def schema_table(self) -> list[dict[str, Any]]:
        """A line for each field that networks read, as :meth:`Log.schema_table` has it."""
        return self.source.empty.schema_table()

    def _pieces(self, order: NDArray[np.int64], begin: int, end: int) -> list[Piece]:
        """Rows ``begin`` to ``end`` of the groups in an order."""
        sizes = np.asarray(self.source.groups, dtype=np.int64)[order]
        ends = np.cumsum(sizes)
        return [
            Piece(int(group), max(begin - int(stop - size), 0), min(end - int(stop - size), int(size)))
            for group, size, stop in zip(order, sizes, ends, strict=True)
            if stop > begin and stop - size < end
        ]

    def _cut(self, order: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """The rows of each block, of a buffer's rows in an order."""
        for first in range(0, len(order), self.block_rows):
            yield order[first : first + self.block_rows]


@dataclass(frozen=True, eq=False)
class LogInMemory:
    """A log as the source of a stream, in groups of so many rows."""

    log: Log
    group_rows: int

    def __post_init__(self) -> None:
        if self.log.space != "impressions" or self.log.known_propensity is not None:
            raise ParameterError(
                "only logs of impressions with clicks are streamed: the population is their rows",
                remedy="fit the log itself",
            )

    @cached_property
    def groups(self) -> Sequence[int]:
        """Rows of each group."""
        starts = range(0, len(self.log), self.group_rows)
        return [min(self.group_rows, len(self.log) - start) for start in starts]

    @cached_property
    def empty(self) -> Log:
        """The log without its rows."""
        return self.shared.take(np.empty(0, dtype=np.int64))

    @property
    def digest(self) -> str:
        """The log's."""
        return self.log.digest

    @cached_property
    def shared(self) -> Log:
        """The log with its encoders, whichever rows are taken."""
        features = self.log.features
        if features is None:
            return self.log
        return replace(self.log, features=replace(features, encoders=self.log.encoders))

    def read(self, pieces: Sequence[Piece], rows: int) -> Iterator[Log]:
        """The rows of pieces, in logs of so many rows."""
        starts = np.arange(len(self.groups)) * self.group_rows
        return map(_coded, taken(self.shared, starts, pieces, rows))

    def read_some(self, places: NDArray[np.int64]) -> Log:
        """Rows by their numbers."""
        return self.shared.take(places)

    def clicks(self, rows: int) -> Iterator[NDArray[np.uint8]]:
        """Clicks of all rows."""
        return (self.log.click[first : first + rows] for first in range(0, len(self.log), rows))


def _coded(log: Log) -> Log:
    """A log whose features of rows are coded once, for all who read some of its rows."""
    if log.features is None:
        return log
    return replace(log, features=replace(log.features, encoded=log.encoded_rows()))
