"""What is kept of a stream in memory: clicked rows and others, all that is held out, judged or averaged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from unskew.base.seeds import splitmix64, stream
from unskew.data import Log, StreamedLog
from unskew.data.remembered import RememberedRows
from unskew.training.held_out import SHARED_SEED

KEPT = 1 << 18
"""Clicked rows of a stream that are kept in memory, about, and as many unclicked ones: all that is held out,
judged by, or averaged over all clicks. Where a stream has fewer, all are kept."""

CLICKS_AT_ONCE = 1 << 18
"""Clicks of rows that are looked at in one go."""


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
        """The rows of a stream that are kept: every training on it has the same, which are read once."""
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
        for click in source.source.clicks(CLICKS_AT_ONCE):
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
        for click in self.stream.source.clicks(at_once):
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


def _thinned(click: NDArray[np.uint8], first: int, share: float) -> NDArray[np.int64]:
    """Of some neighbouring rows all clicks, and a share of the others; ``first`` is the first's number."""
    at = np.arange(len(click))
    return at if share == 1.0 else np.flatnonzero((click == 1) | (_uniform(first + at) < share))


def _uniform(place: NDArray[np.int64], purpose: str = "kept rows") -> NDArray[np.float64]:
    """A number in [0, 1) for each place in a stream."""
    hashed = splitmix64(place.astype(np.uint64) + np.uint64(stream(SHARED_SEED, purpose)))
    return (hashed >> np.uint64(11)).astype(np.float64) * 2.0**-53
