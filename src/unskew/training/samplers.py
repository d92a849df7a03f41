"""Samplers of steps: batches over O and over D, for R replicas with an order of their own.

A sampler yields an epoch in blocks of ``[R, steps, B]`` numbers (positions in O, cells of D, or both),
made in bulk so that a step only slices. D is never materialised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from unskew.base.tensors import Tensor, torch
from unskew.data import Rows
from unskew.training import hashing
from unskew.training.population import Population, Slots

if TYPE_CHECKING:
    from jaxtyping import Int

BLOCK = 1 << 20
"""Numbers drawn at once per replica at most: bounds the memory of an epoch over D."""

FULL_ORDER = 20_000_000
"""Rows up to which an epoch is one permutation of all rows. Of more, which may lie in a file, blocks of
neighbours are permuted and rows are shuffled within a window of blocks (:func:`shuffled_windows`)."""

BLOCK_ROWS, WINDOW_BLOCKS = 1 << 16, 16
"""Rows of such a block, and blocks of a window."""


class Sample(NamedTuple):
    """Numbers that a sampler drew: for one step ``[R, B]``, or for a block of steps ``[R, steps, B]``.

    It says which pairs, not what is known of them: whoever trains looks that up
    (:class:`unskew.debias.Batch`).
    """

    observed: Tensor | None = None
    """Positions in O."""
    cells: Tensor | None = None
    """Cells of D."""
    rows: Rows | None = None
    click: Tensor | None = None
    """What the cells are, where :class:`LookedUp` has looked it up for a whole block."""

    def tensors(self) -> Iterator[Tensor]:
        """Yield all tensors, those of the rows among them."""
        for values in self:
            yield from _tensors(values)

    @property
    def shape(self) -> torch.Size:
        """``[R, B]`` or ``[R, steps, B]``."""
        return next(self.tensors()).shape

    def map(self, change: Callable[[Tensor], Tensor]) -> Sample:
        """Return the same with every tensor changed."""

        def changed(values: Any) -> Any:
            return (
                values
                if values is None
                else change(values)
                if isinstance(values, Tensor)
                else values.map(change)
            )

        return Sample(*(changed(values) for values in self))

    def at(self, position: Tensor) -> Sample:
        """Return the step of a block at a position ``[1]`` that is known only on the device."""
        return self.map(lambda part: part.index_select(1, position).squeeze(1))

    def steps(self, first: int = 0) -> Iterator[Sample]:
        """Yield the steps of a block from a number on, one after the other."""
        for step in range(first, self.shape[1]):
            yield self.map(partial(torch.select, dim=1, index=step))


def _tensors(values: Tensor | Rows | None) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif values is not None:
        yield from (values[name] for name in values)


class Sampler(Protocol):
    """A source of the batches of an epoch, in blocks."""

    @property
    def steps(self) -> int:
        """Return the number of steps per epoch."""
        ...

    @property
    def batch_rows(self) -> int:
        """Return how many rows a step reads for each replica."""
        ...

    def epoch(self, number: int) -> Iterator[Sample]:
        """Yield blocks of epoch ``number``; their steps add up to ``self.steps``."""
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
        self._large = self.rows.shape[1] > FULL_ORDER
        if self._large:
            # Neighbours in the set are then neighbours in the log.
            self.rows = self.rows.sort(dim=1).values

    def epoch(self, number: int) -> Iterator[Sample]:
        """Yield the epoch, as one block where there is a full permutation; some rows fill the last batch."""
        key = hashing.keys(self._seeds, salt=number)
        if not self._large:
            rows = self.rows.gather(1, hashing.shuffled(key, self.rows.shape[1]))
            yield Sample(observed=in_batches(rows, self.steps, self.batch_rows))
            return
        drawn = Drawn(partial(self._windows, key))
        for steps in in_parts(self.steps, self.batch_rows):
            yield Sample(observed=drawn.take(steps, self.batch_rows))

    def _windows(self, key: Tensor) -> Iterator[list[Tensor]]:
        for places in shuffled_windows(key, self.rows.shape[1]):
            yield [row[at[at < len(row)]] for row, at in zip(self.rows, places, strict=True)]


@dataclass
class EveryCell:
    """Every admitted cell of D once per epoch, in an order of each replica's own.

    Parameters
    ----------
    slots, admitted
        Replica r visits cell c if ``admitted[r, slot of c]``; with ``slots=None`` it visits all of D.
    unclicked
        Share of the unclicked cells that are visited: others in each epoch.
    """

    population: Population
    seeds: Sequence[int]
    batch_size: int
    slots: Slots | None = None
    admitted: Tensor | None = None
    unclicked: float = 1.0

    def __post_init__(self) -> None:
        population = self.population
        self._seeds = torch.tensor(self.seeds, device=population.device)
        share = 1.0 if self.admitted is None else float(self.admitted.float().mean(1).max())
        size = population.size - (1.0 - self.unclicked) * (population.size - population.n_clicks)
        self.steps, self.batch_rows = batches(max(1, round(size * share)), self.batch_size)

    def epoch(self, number: int) -> Iterator[Sample]:
        """Yield blocks of cells; held-out cells are left out before batches are cut."""
        key = hashing.keys(self._seeds, salt=number)
        bits = hashing.permutation_bits(self.population.size)
        if 1 << bits <= BLOCK:
            yield self._whole(key, bits)
            return
        drawn = Drawn(partial(self._admitted, key, bits))
        for steps in in_parts(self.steps, self.batch_rows):
            yield Sample(cells=drawn.take(steps, self.batch_rows))

    def _whole(self, key: Tensor, bits: int) -> Sample:
        """Return an epoch that fits into one block, without a transfer to the host."""
        cell, inside = self._inside(hashing.permuted_range(0, 1 << bits, key, bits), key)
        position = inside.cumsum(1)
        count = position[:, -1:].clamp(min=1)
        last = cell.shape[1]
        front = torch.zeros(len(cell), last + 1, dtype=cell.dtype, device=cell.device)
        front.scatter_(1, torch.where(inside, position - 1, last), cell)
        wanted = torch.arange(self.steps * self.batch_rows, device=cell.device).unsqueeze(0) % count
        return Sample(cells=front.gather(1, wanted).view(len(cell), self.steps, self.batch_rows))

    def _admitted(self, key: Tensor, bits: int) -> Iterator[list[Tensor]]:
        """Yield the cells that each replica visits, in its order."""
        if is_large(self.population):
            parts = shuffled_windows(key, self.population.size)
        else:
            starts, end = range(0, 1 << bits, BLOCK), 1 << bits
            parts = (hashing.permuted_range(start, min(start + BLOCK, end), key, bits) for start in starts)
        for numbers in parts:
            cell, inside = self._inside(numbers, key)
            yield [row[keep] for row, keep in zip(cell, inside, strict=True)]

    def _inside(self, cell: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return cells ``[R, n]`` and whether each is a cell of D that the replica visits."""
        inside = cell < self.population.size
        safe = cell.clamp(max=self.population.size - 1)
        if self.slots is not None and self.admitted is not None:
            inside = inside & self.admitted.gather(1, self.slots.of(safe))
        if self.unclicked < 1.0:
            drawn = hashing.uniform_int(safe, key.unsqueeze(1), 1 << 30) < self.unclicked * (1 << 30)
            inside = inside & (drawn | (self.population.click(safe) > 0))
        return safe, inside


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
        """Return the number of steps of a part; one has a step less where they do not come out even."""
        return -(-self.sampler.steps // self.parts)

    @property
    def batch_rows(self) -> int:
        """Return how many rows a step reads for each replica."""
        return self.sampler.batch_rows

    def epoch(self, number: int) -> Iterator[Sample]:
        """Yield the blocks of a part, cut where it begins and ends."""
        epoch, number_of_part = divmod(number, self.parts)
        first, last = (
            edge * self.sampler.steps // self.parts for edge in (number_of_part, number_of_part + 1)
        )
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
        """Return the number of steps per epoch."""
        return self.sampler.steps

    @property
    def batch_rows(self) -> int:
        """Return how many rows a step reads for each replica."""
        return self.sampler.batch_rows

    def epoch(self, number: int) -> Iterator[Sample]:
        """Yield the sampler's blocks with what their cells are."""
        for block in self.sampler.epoch(number):
            assert block.cells is not None
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
        """Yield the blocks of the sampler over O with cells beside them."""
        drawn = Drawn(partial(self._cells, number))
        for block in self.observed.epoch(number):
            assert block.observed is not None
            yield Sample(block.observed, drawn.take(block.shape[1], self._cells_each))

    def _cells(self, number: int) -> Iterator[Sequence[Tensor] | Tensor]:
        """Yield cells ``[R, n]`` of an epoch."""
        wanted, size = self.steps * self._cells_each, self.population.size
        key = hashing.keys(self._seeds, salt=(number << 8) + 5)
        if self.unclicked_once:
            drawn = unclicked_cells(self.population, self._seeds, salt=5, count=wanted)
            order = hashing.shuffled(hashing.keys(self._seeds, salt=(number << 8) + 6), wanted)
            yield drawn.gather(1, order)
        elif is_large(self.population):
            # So many of each window that all rows have the same chance, and neighbours are read together.
            for window in shuffled_windows(key, size):
                inside = [line[line < size] for line in window]
                yield [line[: round(wanted / size * len(line))] for line in inside]
        else:
            for start in range(0, wanted, BLOCK):
                counter = torch.arange(start, min(start + BLOCK, wanted), device=key.device)
                yield hashing.uniform_int(counter.unsqueeze(0), key.unsqueeze(1), size)


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
        """Yield one block: clicks and negatives, shuffled together."""
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
    """Draw ``[R, count]`` unclicked cells of D that ``admit`` lets in, uniformly for each seed.

    None comes twice, unless more are asked for than there are.
    """
    key = hashing.keys(seeds, salt=salt)
    bits = hashing.permutation_bits(population.size)
    step = min(2 * count + 64, 1 << bits)
    pending = [torch.empty(0, dtype=torch.int64, device=population.device) for _ in range(len(seeds))]
    for start in cycle(range(0, 1 << bits, step)):
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
    """Return steps per epoch and a batch size that divides it evenly (the last batch is not a rump).

    Examples
    --------
    >>> batches(6264, 1024)
    (7, 895)
    """
    steps = max(1, -(-size // batch_size))
    return steps, -(-size // steps)


def in_batches(numbers: Int[Tensor, "R n"], steps: int, batch: int) -> Int[Tensor, "R steps batch"]:
    """Reshape ``[R, n]`` to ``[R, steps, batch]``; the first come once more to fill the last batch."""
    missing = steps * batch - numbers.shape[1]
    filled = torch.cat((numbers, numbers[:, :missing]), dim=1)
    return filled.view(len(filled), steps, batch)


def in_parts(steps: int, batch: int) -> Iterator[int]:
    """Yield how many steps each block of an epoch has, about :data:`BLOCK` numbers."""
    at_once = max(1, BLOCK // batch)
    for first in range(0, steps, at_once):
        yield min(at_once, steps - first)


class Drawn:
    """Numbers that come in parts, a line ``[n]`` for each replica, and are taken a block of steps at a time.

    Parameters
    ----------
    parts
        Makes the parts of an epoch; where they are used up, they come again from the first.
    """

    def __init__(self, parts: Callable[[], Iterator[Sequence[Tensor] | Tensor]]) -> None:
        self._parts = (part for _ in repeat(None) for part in parts())
        self._left: list[list[Tensor]] = []

    def take(self, steps: int, batch: int) -> Int[Tensor, "R steps batch"]:
        """Return the next numbers."""
        count = steps * batch
        while not self._left or min(sum(map(len, line)) for line in self._left) < count:
            more_of_each = list(next(self._parts))
            self._left = self._left or [[] for _ in more_of_each]
            for line, more in zip(self._left, more_of_each, strict=True):
                line.append(more)
        joined = [torch.cat(line) for line in self._left]
        self._left = [[line[count:]] for line in joined]
        return torch.stack([line[:count] for line in joined]).view(-1, steps, batch)


def is_large(population: Population) -> bool:
    """Return whether rows of a log are drawn from windows: pairs of a matrix are not looked up in rows."""
    return population.space == "impressions" and population.size > FULL_ORDER


def share_of_unclicked(population: Population, ratio: float) -> float:
    """Return the share of the unclicked rows that gives so many of them per click."""
    return min(1.0, ratio * population.n_clicks / max(population.size - population.n_clicks, 1))


def shuffled_windows(key: Int[Tensor, " R"], size: int) -> Iterator[Int[Tensor, "R n"]]:
    """Yield [0, size), and a few numbers beyond, in an order of each key's own that reads few places at once.

    Blocks of :data:`BLOCK_ROWS` neighbours are permuted, and numbers are shuffled within each window of
    :data:`WINDOW_BLOCKS` blocks.
    """
    neighbours = torch.arange(BLOCK_ROWS, device=key.device)
    blocks = hashing.shuffled(key, -(-size // BLOCK_ROWS))
    for first in range(0, blocks.shape[1], WINDOW_BLOCKS):
        chosen = blocks[:, first : first + WINDOW_BLOCKS]
        numbers = (chosen.unsqueeze(2) * BLOCK_ROWS + neighbours).flatten(1)
        yield numbers.gather(1, hashing.shuffled(hashing.mix(key + first + 1), numbers.shape[1]))
