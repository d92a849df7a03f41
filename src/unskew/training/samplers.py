"""What steps work on: batches over O and over D, for R replicas with an order of their own.

A sampler yields an epoch in blocks of ``[R, steps, B]`` numbers (positions in O, cells of D, or both),
made in bulk so that a step only slices. D is never materialised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from unskew.data import Rows
from unskew.training import hashing
from unskew.training.population import Population, Slots

if TYPE_CHECKING:
    from jaxtyping import Int

BLOCK = 1 << 20
"""Numbers drawn at once per replica at most: bounds the memory of an epoch over D."""


class Known(NamedTuple):
    """Rows of a stream with what is known of them, ``[1, B]`` (or ``[1, steps, B]``): for all replicas."""

    rows: Rows
    click: Tensor
    conversion: Tensor | None = None
    propensity: Tensor | None = None
    """``[R, B]`` where replicas have their own."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Known:
        """The same with every tensor changed."""
        conversion, propensity = (
            None if part is None else change(part) for part in (self.conversion, self.propensity)
        )
        return Known(self.rows.map(change), change(self.click), conversion, propensity)


class Sample(NamedTuple):
    """Numbers that a sampler drew: for one step ``[R, B]``, or for a block of steps ``[R, steps, B]``.

    It says which pairs, not what is known of them: whoever trains looks that up
    (:class:`unskew.debias.Batch`). Rows of a stream come themselves, or as their numbers in it, which are
    looked up for a whole block (:class:`unskew.training.row_table.RowTable`).
    """

    observed: Tensor | Known | None = None
    """Positions in O."""
    cells: Tensor | Known | None = None
    """Cells of D."""
    rows: Rows | None = None
    click: Tensor | None = None
    """What the cells are, where :class:`LookedUp` has looked it up for a whole block."""

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, those of the rows among them."""
        for part in self:
            yield from _tensors(part)

    @property
    def device(self) -> torch.device:
        """Where all tensors are."""
        return next(self.tensors()).device

    @property
    def shape(self) -> torch.Size:
        """``[R, B]`` or ``[R, steps, B]``."""
        return next(self.tensors()).shape

    def map(self, change: Callable[[Tensor], Tensor]) -> Sample:
        """The same with every tensor changed."""

        def changed(part: Any) -> Any:
            return part if part is None else change(part) if isinstance(part, Tensor) else part.map(change)

        return Sample(*(changed(part) for part in self))

    def at(self, position: Tensor) -> Sample:
        """The step of a block at a position ``[1]`` that is known only on the device."""
        return self.map(lambda part: part.index_select(1, position).squeeze(1))

    def steps(self, first: int = 0) -> Iterator[Sample]:
        """The steps of a block from a number on, one after the other."""
        for step in range(first, self.shape[1]):
            yield self.map(partial(torch.select, dim=1, index=step))


def _tensors(part: Tensor | Known | Rows | None) -> Iterator[Tensor]:
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, Rows):
        yield from (part[name] for name in part)
    elif part is not None:
        for each in part:
            yield from _tensors(each)


class Sampler(Protocol):
    """What an epoch works on, in blocks."""

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        ...

    @property
    def batch_rows(self) -> int:
        """Rows that a step reads for each replica."""
        ...

    def epoch(self, number: int) -> Iterator[Sample]:
        """Blocks of epoch ``number``; their steps add up to ``self.steps``."""
        ...


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
        self.steps, self.batch_rows = batches(self.rows.shape[1], self.batch_size)
        self._seeds = torch.tensor(self.seeds, device=self.rows.device)

    def with_cells(self, population: Population, ratio: float) -> Sampler:
        """The same with ``ratio`` times as many cells of D."""
        return ObservedAndFull(self, population, ratio)

    def epoch(self, number: int) -> Iterator[Sample]:
        """One block with the whole epoch; a few rows come twice to fill the last batch."""
        order = hashing.shuffled(hashing.keys(self._seeds, salt=number), self.rows.shape[1])
        rows = self.rows.gather(1, order)
        yield Sample(observed=in_batches(rows, self.steps, self.batch_rows))


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
        self.steps, self.batch_rows = batches(self._cells, self.batch_size)

    def epoch(self, number: int) -> Iterator[Sample]:
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
            steps = min(left, min(len(row) for row in pending) // self.batch_rows)
            if steps:
                taken = torch.stack([row[: steps * self.batch_rows] for row in pending])
                pending = [row[steps * self.batch_rows :] for row in pending]
                yield Sample(cells=taken.view(len(taken), steps, self.batch_rows))
                left -= steps
            if left == 0:
                return

    def _whole(self, key: Tensor, bits: int) -> Sample:
        """An epoch that fits into one block, without a transfer to the host."""
        cell, inside = self._inside(hashing.permuted_range(0, 1 << bits, key, bits))
        place = inside.cumsum(1)
        count = place[:, -1:].clamp(min=1)
        last = cell.shape[1]
        front = torch.zeros(len(cell), last + 1, dtype=cell.dtype, device=cell.device)
        front.scatter_(1, torch.where(inside, place - 1, last), cell)
        wanted = torch.arange(self.steps * self.batch_rows, device=cell.device).unsqueeze(0) % count
        return Sample(cells=front.gather(1, wanted).view(len(cell), self.steps, self.batch_rows))

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


@dataclass(frozen=True)
class PartsOfEpochs:
    """A sampler whose epochs are the parts of another's, in turn, so that early stopping looks more often.

    Parameters
    ----------
    parts
        Into how many an epoch is cut.
    """

    sampler: Sampler
    parts: int

    @property
    def steps(self) -> int:
        """Steps of a part; one has a step less where they do not come out even."""
        return -(-self.sampler.steps // self.parts)

    @property
    def batch_rows(self) -> int:
        """Rows that a step reads for each replica."""
        return self.sampler.batch_rows

    def epoch(self, number: int) -> Iterator[Sample]:
        """Yield the blocks of a part, cut where it begins and ends."""
        epoch, part = divmod(number, self.parts)
        first, last = (edge * self.sampler.steps // self.parts for edge in (part, part + 1))
        done = 0
        for block in self.sampler.epoch(epoch):
            low, high = max(first - done, 0), min(last - done, block.shape[1])
            if low < high:
                yield block.map(partial(torch.narrow, dim=1, start=low, length=high - low))
            done += block.shape[1]
            if done >= last:
                return


@dataclass
class LookedUp:
    """Cells with their ids and clicks: looked up once per block instead of once per step.

    Features, which are many times as large, are looked up once per step (:meth:`Population.filled`).
    """

    sampler: Sampler
    population: Population

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return self.sampler.steps

    @property
    def batch_rows(self) -> int:
        """Rows that a step reads for each replica."""
        return self.sampler.batch_rows

    def epoch(self, number: int) -> Iterator[Sample]:
        """The sampler's blocks with what their cells are."""
        for block in self.sampler.epoch(number):
            assert isinstance(block.cells, Tensor)
            yield Sample(
                cells=None if self.population.tables is None else block.cells,
                rows=self.population.ids(block.cells),
                click=self.population.click(block.cells),
            )


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
        self._cells_each = max(1, round(self.ratio * self.observed.batch_rows))
        self.batch_rows = self.observed.batch_rows + self._cells_each
        self._seeds = torch.tensor(self.observed.seeds, device=self.population.device)

    def epoch(self, number: int) -> Iterator[Sample]:
        """One block with the whole epoch."""
        (block,) = self.observed.epoch(number)
        assert isinstance(block.observed, Tensor)
        steps, cells = self.steps, self._cells_each
        drawn = self._cells(number, steps * cells)
        yield Sample(observed=block.observed, cells=drawn.view(-1, steps, cells))

    def _cells(self, number: int, count: int) -> Tensor:
        if self.unclicked_once:
            drawn = unclicked_cells(self.population, self._seeds, salt=5, count=count)
            order = hashing.shuffled(hashing.keys(self._seeds, salt=(number << 8) + 6), count)
            return drawn.gather(1, order)
        counter = torch.arange(count, device=self.population.device)
        key = hashing.keys(self._seeds, salt=(number << 8) + 5).unsqueeze(1)
        return hashing.uniform_int(counter.unsqueeze(0), key, self.population.size)


@dataclass
class ClicksAndNegatives:
    """Admitted cells of O and ``ratio`` times as many unclicked cells of D, drawn uniformly.

    The sample's odds are 1/w times those of D, with w = ratio · |O| / (|D| − |O|): whoever trains on it
    must add log w to the logit before using it as a propensity over D (METHODS §2.3).

    Parameters
    ----------
    resample
        Draw new negatives in each epoch; otherwise each replica keeps those of its first.
    """

    population: Population
    seeds: Sequence[int]
    batch_size: int
    slots: Slots
    admitted: Tensor
    ratio: float
    resample: bool = True

    def __post_init__(self) -> None:
        population = self.population
        self._seeds = torch.tensor(self.seeds, device=population.device)
        observed = population.observed.unsqueeze(0).expand(len(self.seeds), -1)
        keep = self.admitted.gather(1, self.slots.of(observed))
        self._clicks = [cells[kept] for cells, kept in zip(observed, keep, strict=True)]
        # Not the least of the replicas' own numbers: what one draws must not depend on the others.
        share = float(self.admitted.float().mean(1).max())
        clicks = max(1, round(share * population.n_clicks))
        self._sizes = clicks, max(1, round(self.ratio * clicks))
        self.steps, self.batch_rows = batches(sum(self._sizes), self.batch_size)

    def epoch(self, number: int) -> Iterator[Sample]:
        """One block: clicks and negatives, shuffled together."""
        n_clicks, n_negatives = self._sizes
        draw = number if self.resample else 0
        clicks = torch.stack(self._clicks_of(number, n_clicks))
        cells = torch.cat((clicks, self._negatives(draw, n_negatives)), dim=1)
        order = hashing.shuffled(hashing.keys(self._seeds, salt=2 * number), cells.shape[1])
        cells = cells.gather(1, order)
        yield Sample(cells=in_batches(cells, self.steps, self.batch_rows))

    def _clicks_of(self, number: int, count: int) -> list[Tensor]:
        # Slots are even in expectation only: some clicks are left out at random, or come twice.
        key = hashing.keys(self._seeds, salt=2 * number + 1)
        wanted = torch.arange(count, device=key.device)
        return [
            cells[hashing.shuffled(k.unsqueeze(0), len(cells))[0, wanted % len(cells)]]
            for k, cells in zip(key, self._clicks, strict=True)
        ]

    def _negatives(self, draw: int, count: int) -> Tensor:
        return unclicked_cells(
            self.population,
            self._seeds,
            salt=(draw << 8) + 3,
            count=count,
            admit=lambda cell: self.admitted.gather(1, self.slots.of(cell)),
        )


def unclicked_cells(
    population: Population,
    seeds: Int[Tensor, " R"],
    *,
    salt: int,
    count: int,
    admit: Callable[[Tensor], Tensor] | None = None,
) -> Int[Tensor, "R count"]:
    """``[R, count]`` unclicked cells of D that ``admit`` lets in, drawn uniformly for each seed.

    None comes twice, unless more are asked for than there are.
    """
    key = hashing.keys(seeds, salt=salt)
    bits = hashing.permutation_bits(population.size)
    step = min(2 * count + 64, 1 << bits)
    pending = [torch.empty(0, dtype=torch.int64, device=population.device) for _ in range(len(seeds))]
    for start in endless_blocks(1 << bits, step=step):
        cell = hashing.permuted_range(start, min(start + step, 1 << bits), key, bits)
        keep = cell < population.size
        cell = cell.clamp(max=population.size - 1)
        keep &= population.click(cell) == 0
        if admit is not None:
            keep &= admit(cell)
        pending = [torch.cat((old, new[kept])) for old, new, kept in zip(pending, cell, keep, strict=True)]
        if min(len(cells) for cells in pending) >= count:
            break
    return torch.stack([cells[:count] for cells in pending])


def batches(size: int, batch_size: int) -> tuple[int, int]:
    """Steps per epoch and a batch size that divides it evenly (the last batch is not a rump).

    Examples
    --------
    >>> batches(6264, 1024)
    (7, 895)
    """
    steps = max(1, -(-size // batch_size))
    return steps, -(-size // steps)


def in_batches(numbers: Int[Tensor, "R n"], steps: int, batch: int) -> Int[Tensor, "R steps batch"]:
    """``[R, n]`` as ``[R, steps, batch]``; the first come once more to fill the last batch."""
    missing = steps * batch - numbers.shape[1]
    filled = torch.cat((numbers, numbers[:, :missing]), dim=1)
    return filled.view(len(filled), steps, batch)


def endless_blocks(size: int, step: int) -> Iterator[int]:
    """Where blocks of a range start, from the front again when it is used up."""
    while True:
        yield from range(0, size, step)
