"""Rows of a stream that fit in memory as codes: read and decoded once, and not again in every epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.base.progress import Progress
from unskew.data.encoders import Block
from unskew.data.log import Log
from unskew.data.row_groups import Piece

PLAIN = "biufM"
"""Kinds of columns that are kept: numbers and times, which take as many bytes in every row."""


class RowSource(Protocol):
    """Where the rows of a stream come from: groups of neighbouring rows, each read from its start."""

    @property
    def groups(self) -> Sequence[int]:
        """Rows of each group, in the order in which they lie."""

    @property
    def empty(self) -> Log:
        """A log without rows, with the vocabularies, features and encoders of every block."""

    @property
    def digest(self) -> str:
        """By which the same rows, wherever they lie, are known again."""

    def read(self, pieces: Sequence[Piece], rows: int) -> Iterator[Log]:
        """The rows of pieces, one after the other, in logs of so many rows (the last may have fewer)."""

    def read_some(self, places: NDArray[np.int64]) -> Log:
        """Rows by their numbers, which ascend."""

    def clicks(self, rows: int) -> Iterator[NDArray[np.uint8]]:
        """Clicks of all rows in order, of so many at a time."""


@dataclass(frozen=True, eq=False)
class RememberedRows:
    """A source whose rows were read once: ids, outcomes, kept columns, and the features of rows as codes.

    Values and times as they are in the data are read again from the source (:meth:`read_some`). Codes and
    conversions take as few bytes as they need; those of a block are of the usual types.

    Attributes
    ----------
    log
        All rows, without the values of their features.
    """

    source: RowSource
    log: Log

    @classmethod
    def of(
        cls, source: RowSource, blocks: Iterator[Log], most_bytes: float, progress: Progress
    ) -> RememberedRows | None:
        """The rows of blocks, which have all rows of a source in order; None where they take more bytes, or
        are not of one type."""
        total, stop = sum(source.groups), 0
        tracker = progress.task("reading rows", total)
        kept: dict[str, NDArray[Any]] = {}
        for block in blocks:
            arrays = _arrays(block)
            if not kept:
                row_bytes = sum(each.nbytes for each in arrays.values()) / max(len(block), 1)
                if row_bytes * total > most_bytes or any(
                    each.dtype.kind not in PLAIN for each in arrays.values()
                ):
                    tracker.finish()
                    return None
                kept = {name: np.empty((total, *each.shape[1:]), each.dtype) for name, each in arrays.items()}
            if any(values.dtype != kept[name].dtype for name, values in arrays.items()):
                # Whole numbers of which some are missing are fractions from there on.
                tracker.finish()
                return None
            start, stop = stop, stop + len(block)
            for name, values in arrays.items():
                kept[name][start:stop] = values
            tracker.observe(1.0, len(block), {})
            tracker.advance(len(block))
        tracker.finish()
        return cls(source, _with_arrays(source.empty, kept)) if kept else None

    @property
    def groups(self) -> Sequence[int]:
        """Rows of each group."""
        return self.source.groups

    @property
    def empty(self) -> Log:
        """The source's."""
        return self.source.empty

    @property
    def digest(self) -> str:
        """The source's."""
        return self.source.digest

    def read(self, pieces: Sequence[Piece], rows: int) -> Iterator[Log]:
        """The rows of pieces, in logs of so many rows."""
        return map(_usual, taken(self.log, self._starts, pieces, rows))

    def read_some(self, places: NDArray[np.int64]) -> Log:
        """Rows by their numbers, as the source has them."""
        return self.source.read_some(places)

    def clicks(self, rows: int) -> Iterator[NDArray[np.uint8]]:
        """Clicks of all rows."""
        return (self.log.click[first : first + rows] for first in range(0, len(self.log), rows))

    def coded(self, places: NDArray[np.int64]) -> Log:
        """Rows by their numbers, without the values of their features."""
        return _usual(self.log.take(places))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is kept of all rows, by name."""
        return _arrays(self.log)

    @property
    def nbytes(self) -> int:
        """What the rows take in memory."""
        return sum(each.nbytes for each in self.arrays().values())

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *self.groups])


def taken(log: Log, starts: NDArray[np.int64], pieces: Sequence[Piece], rows: int) -> Iterator[Log]:
    """The rows of pieces of a log, in logs of so many rows; ``starts`` has the first row of each group."""
    return map(log.take, places_of(starts, pieces, rows))


def places_of(starts: NDArray[np.int64], pieces: Sequence[Piece], rows: int) -> Iterator[NDArray[np.int64]]:
    """Numbers of the rows of pieces among those of all groups, so many at a time."""
    held: list[NDArray[np.int64]] = []
    count = 0
    for piece in pieces:
        at, stop = int(starts[piece.group]) + piece.start, int(starts[piece.group]) + piece.stop
        while at < stop:
            taken = min(stop - at, rows - count)
            held.append(np.arange(at, at + taken))
            at, count = at + taken, count + taken
            if count == rows:
                yield np.concatenate(held)
                held, count = [], 0
    if held:
        yield np.concatenate(held)


def _arrays(log: Log) -> dict[str, NDArray[Any]]:
    """What is kept of rows, by name."""
    arrays: dict[str, NDArray[Any]] = {"user": log.user, "item": log.item, "click": log.click}
    # 0, 1 and NaN are what they are in two bytes too.
    arrays |= {} if log.conversion is None else {"conversion": log.conversion.astype(np.float16, copy=False)}
    arrays |= {f"column {name}": values for name, values in log.columns.items()}
    if log.features is not None:
        assert log.encoders is not None
        own = log.encoded_rows()
        # The smallest type of their codes; a place of a bag without a value has the code −1.
        most = max((encoder.field.size for encoder in log.encoders.of_role("row")), default=1)
        codes = own.codes.astype(np.min_scalar_type(-most - 1), copy=False)
        arrays |= {"codes": codes, "numbers": own.numbers}
    return arrays


def _usual(log: Log) -> Log:
    """The rows of :func:`_arrays` with the types that every block has."""
    features = log.features
    if features is not None:
        assert features.encoded is not None
        codes = features.encoded.codes.astype(np.int32)
        features = replace(features, encoded=features.encoded._replace(codes=codes))
    conversion = None if log.conversion is None else log.conversion.astype(np.float32)
    return replace(log, conversion=conversion, features=features)


def _with_arrays(empty: Log, arrays: Mapping[str, NDArray[Any]]) -> Log:
    """A log of the rows that :func:`_arrays` has."""

    def under(prefix: str) -> dict[str, NDArray[Any]]:
        return {name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)}

    features = empty.features
    if features is not None:
        of_rows = {each.name for each in features.declared if each.role == "row"}
        features = replace(
            features,
            values={name: each for name, each in features.values.items() if name not in of_rows},
            times={},
            encoded=Block(arrays["codes"], arrays["numbers"]),
        )
    return replace(
        empty,
        user=arrays["user"],
        item=arrays["item"],
        click=arrays["click"],
        conversion=arrays.get("conversion"),
        columns=under("column "),
        features=features,
    )
