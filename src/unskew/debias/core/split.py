"""Which clicks of a log a model did not train on: told by its seeds, so that a saved model knows it too."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.errors import DataError
from unskew.log import Log
from unskew.seeds import stream


def shuffled_clicks(clicks: int, seed: int) -> NDArray[np.int64]:
    """Positions in O in a seed's own order: the first ones are held out, the others train."""
    return np.random.default_rng(stream(seed, "validation")).permutation(clicks)


@dataclass(frozen=True)
class Split:
    """How many clicks of which log were held out.

    Attributes
    ----------
    digest
        A checksum of the log's clicked pairs, in their order: another log has other rows.
    held_out
        Clicks held out for each seed; 0 if every click trained.
    """

    digest: int
    held_out: int

    @classmethod
    def of(cls, log: Log, held_out: int) -> Split:
        """The split of a log."""
        return cls(digest=_digest(log), held_out=held_out)

    def rows(self, log: Log, seeds: Sequence[int]) -> NDArray[np.int64]:
        """Numbers of the held-out rows of the log ``[seeds, n]``; an error if it is another log."""
        if _digest(log) != self.digest:
            raise DataError(
                "this is not the log that the model was trained on: its clicks differ",
                remedy="give the training log as it was, or say which of these rows trained no model"
                " (held_out='all' for a new log)",
            )
        clicked = log.clicked
        return np.stack([clicked[shuffled_clicks(len(clicked), seed)[: self.held_out]] for seed in seeds])


def _digest(log: Log) -> int:
    return zlib.crc32(np.ascontiguousarray(log.cell[log.clicked]).tobytes())
