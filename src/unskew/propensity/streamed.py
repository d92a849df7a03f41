"""Batches of clicks and of all rows of a stream, as they come, with their propensities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.base.seeds import stream
from unskew.data import Encoders, Log, StreamedLog
from unskew.data.remembered import RememberedRows
from unskew.propensity.given import PropensitiesOfRows
from unskew.training.held_out import SHARED_SEED, Split
from unskew.training.readings import Columns, ReadBlocks, ReadNumbers, Rounds, RowColumns
from unskew.training.row_table import PropensityTable, RowTable
from unskew.training.streams import StreamedClicks

ROUND_CLICKS = 1 << 18
"""Training clicks of a stream after which is done what is done after an epoch."""

PROPENSITY_BYTES = 1 << 28
"""Propensities of rows that are kept in memory at most, where the rows are."""

AT_ONCE = 1 << 17
"""Rows in memory that are split, or of which propensities are predicted, at a time."""


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
        self.rounds = Rounds.of(source, clicks, ROUND_CLICKS)
        self._columns = RowColumns.of(source.encoders, read)
        self._reading = self._of_table(source, read) or ReadBlocks(
            split.trains, self._of_clicks, self._of_cells
        )

    def sampler(self, batch_size: int, purpose: str) -> StreamedClicks:
        """Return batches in an order for a purpose."""
        seed = stream(SHARED_SEED, purpose)
        return StreamedClicks(self.rounds, self._reading, self._clicks, batch_size, seed, self._device)

    def _of_clicks(self, block: Log, at: NDArray[np.int64]) -> Columns:
        own: Columns = {} if block.conversion is None else {"conversion": block.conversion[at]}
        return self._columns(block, at) | own | self._weights(block, at)

    def _of_cells(self, block: Log, at: NDArray[np.int64]) -> Columns:
        return self._columns(block, at) | (self._weights(block, at) if self._everywhere else {})

    def _weights(self, block: Log, at: NDArray[np.int64]) -> Columns:
        return {} if self._propensity is None else {"propensity": self._propensity(block.take(at)).T}

    def _of_table(self, source: StreamedLog, read: Encoders | None) -> ReadNumbers | None:
        """Where rows are kept in memory: a table of them, with their propensities, predicted once."""
        table, rows = RowTable.of(source, read, self._device), source.source
        if table is None or not isinstance(rows, RememberedRows):
            return None
        if self._propensity is not None:
            known = self._known(source, rows, table.columns["click"])
            if known is None:
                return None
            table = replace(table, observed=known, everywhere=known if self._everywhere else None)
        # Of a split that all seeds share no more is read, however many they are.
        name = f"clicks that train: {self._split.held_out} {self._split.ends[:1]} {self._split.by}"
        if name not in source.found:
            source.found[name] = self._trains(replace(rows.log, features=None))
        return ReadNumbers(source.found[name], table)

    def _trains(self, log: Log) -> NDArray[np.bool_]:
        """Which of all rows are clicks that train, found out in parts."""
        starts = range(0, len(log), AT_ONCE)
        parts = (np.arange(first, min(first + AT_ONCE, len(log))) for first in starts)
        return np.concatenate([self._split.trains(log.take(part)) for part in parts])

    def _known(self, source: StreamedLog, rows: RememberedRows, click: Tensor) -> PropensityTable | None:
        """Those of the last training on the stream where they are the same, predicted otherwise."""
        assert self._propensity is not None
        digest = self._propensity.digest()
        name = f"propensities of {'all rows' if self._everywhere else 'clicks'} on {click.device}"
        table: PropensityTable | None = None
        if name in source.found:
            # Others are let go of before more are predicted.
            of, table = source.found.pop(name)
            table = table if of == digest else None
        if table is None:
            table = self._predicted(rows, click)
        if table is None:
            return None
        if digest is not None:
            source.found[name] = digest, table
        read = self._propensity.read_of(table.values.shape[1])
        return table if read is None else replace(table, lines=torch.tensor(read, device=click.device))

    def _predicted(self, rows: RememberedRows, click: Tensor) -> PropensityTable | None:
        """Of all rows, or of the clicks where no other batch reads them; None where they take too much."""
        assert self._propensity is not None
        numbers = np.arange(len(rows.log)) if self._everywhere else rows.log.clicked
        found: NDArray[np.float32] | None = None
        for first in range(0, len(numbers), AT_ONCE):
            some = self._propensity.every(rows.coded(numbers[first : first + AT_ONCE])).T
            if found is None:
                if 4 * len(numbers) * some.shape[1] > PROPENSITY_BYTES:
                    return None
                found = np.empty((len(numbers), some.shape[1]), dtype=np.float32)
            found[first : first + len(some)] = some
        assert found is not None
        return PropensityTable(
            torch.from_numpy(found).to(click.device),
            position=None if self._everywhere else torch.cumsum(click, 0, dtype=torch.int32) - 1,
        )
