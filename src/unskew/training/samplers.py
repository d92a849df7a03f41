"""Batches over O and over D, for R replicas with an order of their own. D is never materialised.

A sampler yields an epoch in blocks of ``[R, steps, B]`` numbers (positions in O, cells of D, or both),
made in bulk so that a step only slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.training import hashing
from unskew.training.draws import Draw, Sampler, batches, endless_blocks, in_batches
from unskew.training.population import Population, Slots
from unskew.training.unclicked import unclicked_cells

BLOCK = 1 << 20
"""Numbers drawn at once per replica at most: bounds the memory of an epoch over D."""


@dataclass
class ShuffledRows:
    """Every row of a set once per epoch, in an order of each replica's own.

    Parameters
    ----------
    rows
        ``[R, n]`` numbers; each replica may have its own set.
    """

    rows: Tensor
    seeds: Sequence[int]
    batch_size: int

    def __post_init__(self) -> None:
        self.steps, self._batch = batches(self.rows.shape[1], self.batch_size)
        self._seeds = torch.tensor(self.seeds, device=self.rows.device)

    def epoch(self, number: int) -> Iterator[Draw]:
        """One block with the whole epoch; a few rows come twice to fill the last batch."""
        order = hashing.shuffled(hashing.keys(self._seeds, salt=number), self.rows.shape[1])
        rows = self.rows.gather(1, order)
        yield Draw(observed=in_batches(rows, self.steps, self._batch))


@dataclass
class EveryCell:
    """Every admitted cell of D once per epoch, in an order of each replica's own.

    Parameters
    ----------
    slots, admitted
        Replica r visits cell c if ``admitted[r, slot of c]``; with ``slots=None`` it visits all of D.
    """

    population: Population
    seeds: Sequence[int]
    batch_size: int
    slots: Slots | None = None
    admitted: Tensor | None = None

    def __post_init__(self) -> None:
        self._seeds = torch.tensor(self.seeds, device=self.population.device)
        share = 1.0 if self.admitted is None else float(self.admitted.float().mean(1).max())
        self._cells = max(1, round(self.population.size * share))
        self.steps, self._batch = batches(self._cells, self.batch_size)

    def epoch(self, number: int) -> Iterator[Draw]:
        """Blocks of cells; held-out cells are left out before batches are cut."""
        key = hashing.keys(self._seeds, salt=number)
        bits = hashing.permutation_bits(self.population.size)
        if 1 << bits <= BLOCK:
            yield self._whole(key, bits)
            return
        left = self.steps
        pending: list[Tensor] | None = None
        for start in endless_blocks(1 << bits, BLOCK):
            cell = hashing.permuted_range(start, min(start + BLOCK, 1 << bits), key, bits)
            pending = self._admit(cell, pending)
            steps = min(left, min(len(row) for row in pending) // self._batch)
            if steps:
                taken = torch.stack([row[: steps * self._batch] for row in pending])
                pending = [row[steps * self._batch :] for row in pending]
                yield Draw(cells=taken.view(len(taken), steps, self._batch))
                left -= steps
            if left == 0:
                return

    def _whole(self, key: Tensor, bits: int) -> Draw:
        """An epoch that fits into one block, without a transfer to the host."""
        cell, inside = self._inside(hashing.permuted_range(0, 1 << bits, key, bits))
        place = inside.cumsum(1)
        count = place[:, -1:].clamp(min=1)
        last = cell.shape[1]
        front = torch.zeros(len(cell), last + 1, dtype=cell.dtype, device=cell.device)
        front.scatter_(1, torch.where(inside, place - 1, last), cell)
        wanted = torch.arange(self.steps * self._batch, device=cell.device).unsqueeze(0) % count
        return Draw(cells=front.gather(1, wanted).view(len(cell), self.steps, self._batch))

    def _inside(self, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Cells ``[R, n]`` and whether each is a cell of D that the replica may visit."""
        inside = cell < self.population.size
        safe = cell.clamp(max=self.population.size - 1)
        if self.slots is not None and self.admitted is not None:
            inside = inside & self.admitted.gather(1, self.slots.of(safe))
        return safe, inside

    def _admit(self, cell: Tensor, pending: list[Tensor] | None) -> list[Tensor]:
        safe, inside = self._inside(cell)
        rows = [row[keep] for row, keep in zip(safe, inside, strict=True)]
        return rows if pending is None else [torch.cat(both) for both in zip(pending, rows, strict=True)]


@dataclass
class LookedUp:
    """Cells with their rows and clicks: looked up once per block instead of once per step."""

    sampler: Sampler
    population: Population

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return self.sampler.steps

    def epoch(self, number: int) -> Iterator[Draw]:
        """The sampler's blocks with what their cells are."""
        for block in self.sampler.epoch(number):
            assert block.cells is not None
            yield Draw(rows=self.population.rows(block.cells), click=self.population.click(block.cells))


@dataclass
class ObservedAndFull:
    """Batches of O, each with a batch drawn uniformly from all of D, clicked or not.

    Together they serve the exact stratified estimator of a sum over D (:func:`stratified`).

    Parameters
    ----------
    observed
        The sampler over O.
    ratio
        Cells of D per position of O in a batch.
    unclicked_once
        Draw unclicked cells alone, and once for all epochs, as published code does; what is estimated is
        then not a sum over D.
    """

    observed: ShuffledRows
    population: Population
    ratio: float = 1.0
    unclicked_once: bool = False

    def __post_init__(self) -> None:
        self.steps = self.observed.steps
        self._seeds = torch.tensor(self.observed.seeds, device=self.population.device)

    def epoch(self, number: int) -> Iterator[Draw]:
        """One block with the whole epoch."""
        (block,) = self.observed.epoch(number)
        assert block.observed is not None
        _, steps, batch = block.observed.shape
        cells = max(1, round(self.ratio * batch))
        drawn = self._cells(number, steps * cells)
        yield Draw(observed=block.observed, cells=drawn.view(-1, steps, cells))

    def _cells(self, number: int, count: int) -> Tensor:
        if self.unclicked_once:
            drawn = unclicked_cells(self.population, self._seeds, salt=5, count=count)
            order = hashing.shuffled(hashing.keys(self._seeds, salt=(number << 8) + 6), count)
            return drawn.gather(1, order)
        counter = torch.arange(count, device=self.population.device)
        key = hashing.keys(self._seeds, salt=(number << 8) + 5).unsqueeze(1)
        return hashing.uniform_int(counter.unsqueeze(0), key, self.population.size)
