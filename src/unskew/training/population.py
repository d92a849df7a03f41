"""The population D on a device: cells by number, clicks looked up, folds computed; no table of a large D."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from unskew.log import Log, Space
from unskew.training import hashing

FoldBy = Literal["cell", "user", "item"]

TABLE_CELLS = 1 << 24
"""Matrices of at most so many cells have a table of their clicks (64 MB at most), which a look-up reads in a
tenth of the time of a search; in larger ones clicks are searched."""


class Population:
    """All cells of D of a log, on a device.

    In the space ``"matrix"`` cell number c is the pair (c // n_items, c % n_items), and clicks are found in
    the sorted cells of O; in ``"impressions"`` cell number c is row c.
    """

    def __init__(self, log: Log, device: torch.device) -> None:
        clicked = log.clicked
        cells = np.sort(log.cell[clicked]) if log.space == "matrix" else clicked
        self._set(log.space, log.population_size, log.n_items, torch.as_tensor(cells, device=device))
        if log.space == "impressions":
            self._user = torch.as_tensor(log.user.astype(np.int64), device=device)
            self._item = torch.as_tensor(log.item.astype(np.int64), device=device)
            self._click = torch.as_tensor(log.click.astype(np.float32), device=device)

    @classmethod
    def of_cells(cls, observed: Tensor, n_users: int, n_items: int) -> Population:
        """A matrix population from its sorted clicked cells, as a saved propensity has them."""
        population = cls.__new__(cls)
        population._set("matrix", n_users * n_items, n_items, observed)
        return population

    def _set(self, space: Space, size: int, n_items: int, observed: Tensor) -> None:
        self.space = space
        self.size = size
        self.n_items = n_items
        self.observed = observed
        self.device = observed.device
        self._place: Tensor | None = None
        if space == "matrix" and size <= TABLE_CELLS:
            self._place = torch.full((size,), -1, dtype=torch.int32, device=self.device)
            self._place[observed] = torch.arange(len(observed), dtype=torch.int32, device=self.device)

    @property
    def n_clicks(self) -> int:
        """|O|."""
        return len(self.observed)

    def pairs(self, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Users and items of cells."""
        if self.space == "matrix":
            return torch.div(cell, self.n_items, rounding_mode="floor"), cell % self.n_items
        return self._user[cell], self._item[cell]

    def position(self, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Where a cell stands among the sorted cells of O, and whether it is there."""
        if self._place is not None:
            place = self._place[cell]
            return place.clamp(min=0).long(), place >= 0
        place = torch.searchsorted(self.observed, cell.contiguous()).clamp_(max=self.n_clicks - 1)
        return place, self.observed[place] == cell

    def click(self, cell: Tensor) -> Tensor:
        """1.0 where a cell was clicked, else 0.0."""
        if self.space == "matrix":
            return self.position(cell)[1].float()
        return self._click[cell]


class Slots:
    """A partition of the cells of D into S slots, for each replica from its own seed.

    Clicked cells are dealt out evenly (stratified); the others by a hash of their number. With
    ``by="user"`` or ``"item"`` all cells of a user (item) share a slot.
    """

    def __init__(self, population: Population, seeds: Sequence[int], count: int, by: FoldBy = "cell") -> None:
        self.population = population
        self.count = count
        self.by = by
        self.key = hashing.keys(torch.tensor(seeds, device=population.device), salt=0).unsqueeze(1)
        if by == "cell":
            place = torch.argsort(hashing.shuffled(self.key[:, 0], population.n_clicks), dim=1)
            self._of_observed = place % count

    def of(self, cell: Tensor) -> Tensor:
        """Slots ``[R, n]`` of cells ``[R, n]`` (or ``[1, n]``)."""
        if self.by != "cell":
            user, item = self.population.pairs(cell)
            return hashing.uniform_int(user if self.by == "user" else item, self.key, self.count)
        hashed = hashing.uniform_int(cell, self.key, self.count)
        place, observed = self.population.position(cell)
        place, observed = place.expand_as(hashed), observed.expand_as(hashed)
        return torch.where(observed, self._of_observed.gather(1, place), hashed)
