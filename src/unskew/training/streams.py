"""Batches of a streamed log, for all replicas in one order (``[1, B]``).

What differs between replicas (folds, cells that a click tower holds out) is a function of ids and the
replica's seed. Where rows come from is in :mod:`unskew.training.readings`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from unskew.base.seeds import stream
from unskew.data import Rows
from unskew.training.population import Population
from unskew.training.readings import NUMBER, Columns, Reading, Rounds, RowsOfBlock
from unskew.training.samplers import Known, Sample

AT_ONCE = 1 << 17
"""Rows of O that a sample has, about: several steps, so that a GPU copies, and replays, many at a time."""


class Waiting:
    """Rows that wait for a batch, in the order in which they came."""

    def __init__(self) -> None:
        self._parts: list[Columns] = []
        self.size = 0

    def add(self, columns: Columns) -> None:
        """More rows."""
        if columns:
            self._parts.append(columns)
            self.size += len(next(iter(columns.values())))

    def take(self, count: int) -> Columns:
        """The first so many."""
        if not count:
            return {}
        joined = {name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]}
        self._parts = [{name: values[count:] for name, values in joined.items()}]
        self.size -= count
        return {name: values[:count] for name, values in joined.items()}

    def rest(self, count: int) -> Columns:
        """So many from the front; where there are fewer, some come twice."""
        wanted = np.arange(count) % self.size
        taken = self.take(min(count, self.size))
        return {name: values[wanted] for name, values in taken.items()}


@dataclass(frozen=True)
class StreamedClicks:
    """Training clicks of a stream in batches, each once per epoch, with or without rows of D beside them.

    Rows of D are drawn uniformly from the blocks that clicks come from, as many of each block as its share of
    all rows: every row of D is drawn with the same probability, whatever the density of its block. Rows that
    do not fill a batch wait for the next block; at the end of a round some come twice to fill the last batch,
    or, where they are less than half of one, are left out.

    Parameters
    ----------
    visited
        Training clicks of an epoch, as far as they are known.
    seed
        Of the order, and of the draws from D.
    ratio
        Rows of D per click; None for clicks alone.
    """

    rounds: Rounds
    reading: Reading
    visited: float
    batch_size: int
    seed: int
    device: torch.device
    ratio: float | None = None

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        return self.rounds.sizes(self.visited, self.batch_size)

    @property
    def steps(self) -> int:
        """Steps per round, as far as the number of clicks is known."""
        return self._sizes[0]

    @property
    def batch_rows(self) -> int:
        """Rows that a step reads for each replica."""
        return self._sizes[1] + self._cells_each

    @property
    def _cells_each(self) -> int:
        return 0 if self.ratio is None else max(1, round(self.ratio * self._sizes[1]))

    def with_cells(self, population: Population, ratio: float) -> StreamedClicks:
        """The same with ``ratio`` times as many rows of D."""
        return replace(self, ratio=ratio)

    def epoch(self, number: int) -> Iterator[Sample]:
        """Samples of a round, on the device."""
        return self.reading.arrived(self._samples(number), self.device)

    def _samples(self, number: int) -> Iterator[Sample]:
        last: list[RowsOfBlock] = []

        def read() -> Iterator[tuple[Columns, Columns]]:
            rate = self._cells_each / self._sizes[1] * self.visited / len(self.rounds.source)
            passed = 0
            for place, block in enumerate(self.reading.blocks(self.rounds, number, self.seed)):
                last[:] = [block]
                clicks = block.clicks(block.numbers[block.clicked])
                before, passed = passed, passed + len(block.numbers)
                drawn = round(rate * passed) - round(rate * before)
                yield clicks, self._drawn(block, drawn, number, place) if drawn else {}

        def more(count: int) -> Columns:
            return self._drawn(last[0], count, number, -1)

        for clicks, cells, steps in in_steps(read(), (self._sizes[1], self._cells_each), more):
            yield Sample(known(clicks, steps), known(cells, steps) if cells else None)

    def _drawn(self, block: RowsOfBlock, count: int, number: int, place: int) -> Columns:
        draw = np.random.default_rng(stream(self.seed, "cells of a block", number, place + 1))
        return block.cells(block.numbers[draw.integers(len(block.numbers), size=count)])


@dataclass(frozen=True)
class StreamedCells:
    """Rows of D of a stream in batches, each once per epoch; or all clicks, and some of the other rows.

    Parameters
    ----------
    visited
        Rows of an epoch.
    unclicked
        Share of the rows without a click that is drawn, anew in each epoch.
    """

    rounds: Rounds
    reading: Reading
    visited: float
    batch_size: int
    seed: int
    device: torch.device
    unclicked: float = 1.0

    @property
    def steps(self) -> int:
        """Steps per round, about."""
        return self._sizes[0]

    @property
    def batch_rows(self) -> int:
        """Rows that a step reads for each replica."""
        return self._sizes[1]

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        return self.rounds.sizes(self.visited, self.batch_size)

    def epoch(self, number: int) -> Iterator[Sample]:
        """Samples of a round, on the device."""
        nothing: Columns = {}
        read = ((rows, nothing) for rows in self._read(number))
        steps = in_steps(read, (self.batch_rows, 0), lambda _: {})
        samples = (Sample(cells=known(rows, count)) for rows, _, count in steps)
        return self.reading.arrived(samples, self.device)

    def _read(self, number: int) -> Iterator[Columns]:
        passed = 0
        for place, block in enumerate(self.reading.blocks(self.rounds, number, self.seed)):
            rows, clicked = block.numbers, block.clicked
            if self.unclicked < 1.0:
                others = np.flatnonzero(~clicked)
                count = round(self.unclicked * (passed + len(others))) - round(self.unclicked * passed)
                passed += len(others)
                draw = np.random.default_rng(stream(self.seed, "unclicked rows", number, place))
                drawn = draw.choice(others, count, replace=False)
                rows = rows[np.sort(np.append(np.flatnonzero(clicked), drawn))]
            yield block.cells(rows)


def in_steps(
    parts: Iterator[tuple[Columns, Columns]], sizes: tuple[int, int], more: Callable[[int], Columns]
) -> Iterator[tuple[Columns, Columns, int]]:
    """Rows of two kinds for several steps at a time, so many of each for a step, and the number of steps.

    As many steps each time, but for the last. What does not fill a step waits for the next part. Of the first
    kind some rows come twice to fill the last step, or, where they are less than half of one, are left out;
    of the second there are ``more``.
    """
    batch, beside = sizes
    at_once = max(1, AT_ONCE // batch)
    first, second = Waiting(), Waiting()
    for of_first, of_second in parts:
        first.add(of_first)
        second.add(of_second)
        while first.size >= at_once * batch and second.size >= at_once * beside:
            yield first.take(at_once * batch), second.take(at_once * beside), at_once
    steps, left = divmod(first.size, batch)
    steps += 2 * left >= batch or (steps == 0 and left > 0)
    for start in range(0, steps, at_once):
        count = min(at_once, steps - start)
        if second.size < count * beside:
            second.add(more(count * beside - second.size))
        yield first.rest(count * batch), second.take(count * beside), count


def known(columns: Columns, steps: int) -> Known | Tensor:
    """Columns of ``steps · B`` rows as tensors ``[1, steps, B]``; those of propensities ``[R, steps, B]``.

    Where rows are in a table, their numbers.
    """

    def tensor(name: str) -> Tensor:
        values = torch.from_numpy(np.ascontiguousarray(columns[name]))
        return values.view(1, steps, len(values) // steps, *values.shape[1:])

    if NUMBER in columns:
        return tensor(NUMBER)
    fields = [name for name in ("user", "item", "codes", "numbers") if name in columns]
    return Known(
        rows=Rows(**{name: tensor(name) for name in fields}),
        click=tensor("click"),
        conversion=tensor("conversion") if "conversion" in columns else None,
        # One line for all replicas, or one for each: columns of a row here.
        propensity=tensor("propensity")[0].movedim(-1, 0) if "propensity" in columns else None,
    )
