"""Batches of clicks and of all rows of a stream, as they come, with their propensities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.log import Encoders, Log, StreamedLog
from unskew.log.remembered import RememberedRows
from unskew.propensity.given import PropensitiesOfRows
from unskew.seeds import stream
from unskew.training.held_out import SHARED_SEED, Split
from unskew.training.streams import Columns, Reading, Rounds, RowColumns, StreamedClicks

ROUND_CLICKS = 1 << 18
"""Training clicks of a stream after which is done what is done after an epoch."""

PROPENSITY_BYTES = 1 << 28
"""Propensities of all rows that are kept in memory at most, where the rows are."""

KEPT_PROPENSITY = "propensity of this training"
"""The column of blocks that has them."""


class StreamedRows:
    """Batches of O and D of a stream, which all replicas share.

    Parameters
    ----------
    split
        Which clicks train.
    clicks
        How many train, as far as that is known.
    read
        What the networks read of the rows' own features.
    propensity
        Of rows; None without.
    everywhere
        Whether losses read propensities on batches of D too.
    """

    def __init__(
        self,
        source: StreamedLog,
        split: Split,
        clicks: float,
        read: Encoders | None,
        device: torch.device,
        propensity: PropensitiesOfRows | None,
        everywhere: bool,
    ) -> None:
        self._split, self._clicks, self._device = split, clicks, device
        self._propensity, self._everywhere = propensity, everywhere
        self.rounds = Rounds.of(self._with_propensities(source), clicks, ROUND_CLICKS)
        self._columns = RowColumns.of(source.encoders, read)

    def sampler(self, batch_size: int, purpose: str, of: str) -> StreamedClicks:
        """Batches in an order for a purpose of a part of the training."""
        reading = Reading(self._split.trains, self._of_clicks, self._of_cells)
        seed = stream(SHARED_SEED, purpose + of)
        return StreamedClicks(self.rounds, reading, self._clicks, batch_size, seed, self._device)

    def _of_clicks(self, block: Log, at: NDArray[np.int64]) -> Columns:
        own: Columns = {} if block.conversion is None else {"conversion": block.conversion[at]}
        return self._columns(block, at) | own | self._weights(block, at)

    def _of_cells(self, block: Log, at: NDArray[np.int64]) -> Columns:
        return self._columns(block, at) | (self._weights(block, at) if self._everywhere else {})

    def _weights(self, block: Log, at: NDArray[np.int64]) -> Columns:
        if self._propensity is None:
            return {}
        if KEPT_PROPENSITY in block.columns:
            return {"propensity": block.columns[KEPT_PROPENSITY][at]}
        return {"propensity": self._propensity(block.take(at)).T}

    def _with_propensities(self, source: StreamedLog) -> StreamedLog:
        """The stream; where its rows are in memory, with their propensities, predicted once."""
        rows = source.source
        if self._propensity is None or not isinstance(rows, RememberedRows):
            return source
        kept: NDArray[np.float32] | None = None
        first = 0
        for block in source.in_order():
            at = np.arange(len(block)) if self._everywhere else block.clicked
            found = self._propensity(block.take(at)).T
            if kept is None:
                if 4 * len(source) * found.shape[1] > PROPENSITY_BYTES:
                    return source
                kept = np.full((len(source), found.shape[1]), np.nan, dtype=np.float32)
            kept[first + at] = found
            first += len(block)
        assert kept is not None
        return replace(source, source=rows.with_column(KEPT_PROPENSITY, kept))
