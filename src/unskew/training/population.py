"""The population D on a device: cells by number, clicks looked up, slots computed; no table of a large D."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from unskew.base.tensors import Tensor, torch
from unskew.data import Log, Rows, Space
from unskew.data.vocabulary import Vocabulary
from unskew.training import hashing
from unskew.training.reader import Tables, on_device

if TYPE_CHECKING:
    from jaxtyping import Float, Int

FoldBy = Literal["cell", "user", "item"]
"""What a fold holds together: a pair ("cell"), or all pairs of a user or of an item."""

TABLE_CELLS = 1 << 24
"""Matrices of at most so many cells have a table of their clicks (16 MB at most), which a look-up reads in a
tenth of the time of a search; in larger ones clicks are searched."""


class IdHashes(NamedTuple):
    """Hashes of ids by their codes, on a device: ``[n_users + 1]`` and ``[n_items + 1]``.

    The last is of the code for ids that are not known.
    """

    user: Tensor
    item: Tensor

    @classmethod
    def of(cls, users: Vocabulary, items: Vocabulary, device: torch.device) -> IdHashes:
        """Return the hashes of two vocabularies; a user and an item of one id differ."""
        user, item = (torch.tensor(np.append(each.hashes, 0), device=device) for each in (users, items))
        return cls(user, hashing.mix(item))


class Population:
    """All cells of D of a log, on a device.

    In the space ``"matrix"`` cell number c is the pair (c // n_items, c % n_items), and clicks are found in
    the sorted cells of O; in ``"impressions"`` cell number c is row c.
    """

    def __init__(self, log: Log, device: torch.device) -> None:
        clicked = log.clicked
        cells = np.sort(log.cell[clicked]) if log.space == "matrix" else clicked
        self.space: Space = log.space
        # Where propensities are known D has rows x actions cells; those that were not shown are not listed.
        self.size = log.population_size if log.space == "matrix" else len(log)
        self.n_items = log.n_items
        self.device = device
        self.hashes = IdHashes.of(log.users, log.items, device)
        self.observed = torch.as_tensor(cells, device=device)
        self.tables = Tables.of(log, device)
        self._ids: tuple[Tensor, Tensor] | None = None
        self._click: Tensor | None = None
        self._maybe: Tensor | None = None
        if log.space == "impressions":
            self._ids = on_device(log.user, device), on_device(log.item, device)
            self._click = on_device(log.click, device)
        elif self.size <= TABLE_CELLS:
            self._click = torch.zeros(self.size, dtype=torch.uint8, device=device)
            self._click[self.observed] = 1
        elif device.type == "cpu":
            self._maybe = torch.zeros(TABLE_CELLS, dtype=torch.bool)
            self._maybe[_place_of(self.observed)] = True

    @property
    def n_clicks(self) -> int:
        """|O|."""
        return len(self.observed)

    def rows(self, cell: Int[Tensor, "*n"]) -> Rows:
        """Return what networks read of cells."""
        return self.filled(self.ids(cell), cell)

    def filled(self, ids: Rows, cell: Int[Tensor, "*n"]) -> Rows:
        """Return the ids of cells with their features, if the log has any."""
        return ids if self.tables is None else self.tables.added(ids, cell)

    def ids(self, cell: Int[Tensor, "*n"]) -> Rows:
        """Return users and items of cells."""
        if self._ids is not None:
            user, item = (codes[cell].long() for codes in self._ids)
            return Rows(user=user, item=item)
        user = torch.div(cell, self.n_items, rounding_mode="trunc")
        return Rows(user=user, item=cell - user * self.n_items)

    def click(self, cell: Int[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """Return 1.0 where a cell was clicked, else 0.0."""
        if self._click is not None:
            return self._click[cell].float()
        if self._maybe is None:
            return self._searched(cell)
        # One look-up shows for nearly all cells of a large D that they have no click; the rest are searched.
        result = torch.zeros(cell.shape)
        maybe = self._maybe[_place_of(cell)]
        result[maybe] = self._searched(cell[maybe])
        return result

    def _searched(self, cell: Tensor) -> Tensor:
        position = torch.searchsorted(self.observed, cell.contiguous()).clamp_(max=self.n_clicks - 1)
        return (self.observed[position] == cell).float()

    def slots(self, seeds: Sequence[int], count: int, by: FoldBy = "cell") -> Slots:
        """Return a partition of the cells into ``count`` slots, for each replica from its own seed."""
        return Slots(self.hashes, seeds, count, by, self)


def _place_of(cell: Tensor) -> Tensor:
    """Return the place of a cell in a table of :data:`TABLE_CELLS`, which others share."""
    return hashing.scaled_int(hashing.mix(cell), TABLE_CELLS)


class Slots:
    """slot = ⌊S · h(user id, item id, seed) / 2³²⌋: a partition of pairs into S slots, for each replica.

    It is a function of the ids and the seed alone: not of codes, of the order or number of a log's rows, or
    of which of them were clicked. So a pair is in the same slot wherever it comes from, and all rows of a
    pair share one. With ``by="user"`` or ``"item"`` all pairs of a user (item) do. Slots are of one size in
    expectation.

    Parameters
    ----------
    hashes
        Of the ids whose codes :meth:`of_rows` gets.
    seeds
        One for each replica.
    count
        S.
    population
        Whose cells :meth:`of` gets; not needed for rows.
    """

    def __init__(
        self,
        hashes: IdHashes,
        seeds: Sequence[int],
        count: int,
        by: FoldBy = "cell",
        population: Population | None = None,
    ) -> None:
        self.hashes = hashes
        self.count = count
        self.by = by
        self.population = population
        self.key = hashing.keys(torch.tensor(seeds, device=hashes.user.device), salt=0).unsqueeze(1)

    def of(self, cell: Int[Tensor, "_ n"]) -> Int[Tensor, "R n"]:
        """Return slots ``[R, n]`` of cells ``[R, n]`` (or ``[1, n]``) of the population."""
        assert self.population is not None
        return self.of_rows(self.population.ids(cell))

    def of_rows(self, rows: Rows) -> Int[Tensor, "R B"]:
        """Return slots ``[R, n]`` of rows ``[R, n]`` (or ``[1, n]``)."""
        if self.by == "user":
            hashed = self.hashes.user[rows.user]
        elif self.by == "item":
            hashed = self.hashes.item[rows.item]
        else:
            hashed = self.hashes.user[rows.user] + self.hashes.item[rows.item]
        return hashing.scaled_int(hashing.mix(hashed + self.key), self.count)
