"""How a method is trained on a stream: batches of its rows as they come, with their propensities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.debias.setting import Batch, Loss, Setting, unknown
from unskew.log import Log, StreamedLog
from unskew.log.remembered import RememberedRows
from unskew.propensity.given import PropensitiesOfRows
from unskew.seeds import stream
from unskew.training import Sample
from unskew.training.held_out import SHARED_SEED, Split
from unskew.training.samplers import Known
from unskew.training.streams import Columns, Reading, Rounds, RowColumns, StreamedClicks

if TYPE_CHECKING:
    from unskew.debias.fit import Observed

ROUND_CLICKS = 1 << 18
"""Training clicks of a stream after which is done what is done after an epoch."""

PROPENSITY_BYTES = 1 << 28
"""Propensities of all rows that are kept in memory at most, where the rows are."""

KEPT_PROPENSITY = "propensity of this training"
"""The column of blocks that has them."""


class StreamedRows:
    """Batches of O and D of a stream, for R replicas that share them.

    Parameters
    ----------
    split
        Which clicks train.
    clicks
        How many train, as far as that is known.
    kept
        The rows in memory: features of users and items are theirs.
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
        kept: Observed,
        propensity: PropensitiesOfRows | None,
        everywhere: bool,
    ) -> None:
        self._split, self._clicks, self._kept = split, clicks, kept
        self._propensity, self._everywhere = propensity, everywhere
        self.rounds = Rounds.of(self._with_propensities(source), clicks, ROUND_CLICKS)
        self._columns = RowColumns.of(source.encoders, kept.encoders)

    def sampler(self, batch_size: int, purpose: str) -> StreamedClicks:
        """Batches in an order for a purpose."""
        reading = Reading(self._split.trains, self._of_clicks, self._of_cells)
        seed = stream(SHARED_SEED, purpose)
        return StreamedClicks(self.rounds, reading, self._clicks, batch_size, seed, self._kept.device)

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

    def bind(self, loss: Loss, setting: Setting) -> Callable[[Sample], Tensor]:
        """A method's loss as a function of a sample."""

        def of_sample(sample: Sample) -> Tensor:
            assert isinstance(sample.observed, Known)
            assert not isinstance(sample.cells, Tensor)
            observed = self._batch(sample.observed)
            return loss(setting, observed, observed if sample.cells is None else self._batch(sample.cells))

        return of_sample

    def _batch(self, known: Known) -> Batch:
        shape = (len(self._kept.seeds), known.click.shape[1])
        tables, device = self._kept.population.tables, known.click.device
        return Batch(
            rows=known.rows if tables is None else tables.completed(known.rows),
            conversion=_spread(known.conversion, shape, device),
            propensity=_spread(known.propensity, shape, device),
            click=known.click.expand(shape),
        )


def _spread(values: Tensor | None, shape: tuple[int, int], device: torch.device) -> Tensor:
    """Values of rows for all replicas; NaN where none are known."""
    return unknown(shape, device) if values is None else values.expand(shape)
