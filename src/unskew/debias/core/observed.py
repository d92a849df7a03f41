"""The clicked rows of a log on a device, their split, and batches of O and of D."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.debias.core.given import GivenPropensities
from unskew.debias.core.plans import Loss
from unskew.debias.core.setting import Batch, Setting
from unskew.debias.core.split import split_clicks
from unskew.errors import DataError
from unskew.log import Log
from unskew.training import Draw, Population, rows_of


class Observed:
    """O and D of one log for R replicas."""

    def __init__(
        self, log: Log, given: GivenPropensities | None, seeds: tuple[int, ...], device: torch.device
    ) -> None:
        clicked = log.clicked
        self._log = log
        self.seeds = seeds
        self.device = device
        self.population = Population(log, device)
        self.rows = rows_of(log.user[clicked], log.item[clicked], device).map(lambda values: values[0])
        self.cell = torch.as_tensor(log.cell[clicked] if log.space == "matrix" else clicked, device=device)
        self.conversion = torch.as_tensor(log.known_conversion(), device=device)
        self.propensity = None if given is None else _on(given.clicked, device)
        self.everywhere = None if given is None or given.everywhere is None else _on(given.everywhere, device)

    def split(self, validation_share: float) -> tuple[Tensor, Tensor]:
        """Training and validation positions ``[R, n]`` in O, by a hash of the pairs' ids and each seed."""
        size = len(self.conversion)
        held = round(validation_share * size)
        if size - held < 1 or (validation_share > 0 and held < 1):
            raise DataError(f"{size} clicked rows are too few to split", remedy="give more data")
        parts = [split_clicks(self._log, seed, held) for seed in self.seeds]
        training, held_out = (np.stack(each) for each in zip(*parts, strict=True))
        return torch.as_tensor(training, device=self.device), torch.as_tensor(held_out, device=self.device)

    def observed(self, rows: Tensor) -> Batch:
        """A batch of O from positions ``[R, B]``."""
        return Batch(
            rows=self.rows.map(lambda values: values[rows]),
            conversion=self.conversion[rows],
            propensity=_unknown(rows) if self.propensity is None else self.propensity.gather(1, rows),
            cell=self.cell[rows],
        )

    def full(self, cells: Tensor) -> Batch:
        """A batch of D from cells ``[R, B]``."""
        return Batch(
            rows=self.population.rows(cells),
            conversion=_unknown(cells),
            propensity=_unknown(cells) if self.everywhere is None else self.everywhere.gather(1, cells),
            cell=cells,
        )

    def bind(self, loss: Loss, setting: Setting) -> Callable[[Draw], Tensor]:
        """A method's loss as a function of a draw."""

        def of_draw(draw: Draw) -> Tensor:
            assert draw.observed is not None
            observed = self.observed(draw.observed)
            return loss(setting, observed, observed if draw.cells is None else self.full(draw.cells))

        return of_draw


def _unknown(like: Tensor) -> Tensor:
    return torch.full((1, 1), torch.nan, device=like.device).expand(like.shape)


def _on(values: NDArray[Any], device: torch.device) -> Tensor:
    return torch.as_tensor(values.astype(np.float32), device=device)
