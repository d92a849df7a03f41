"""What is held out from training, by ids and seeds: clicks of O, and cells of D for click towers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.base.errors import DataError
from unskew.base.seeds import stream
from unskew.data import Log, Rows
from unskew.data.splitting import SplitBy
from unskew.training.inference import held_out_cells
from unskew.training.population import Population, Slots

Part = Literal["calibration", "evaluation"]

SLOTS = 10
"""D is dealt into so many slots: eight train, one calibrates, one evaluates (METHODS §2.4: 80/10/10)."""
SLOT_OF: dict[Part, int] = {"calibration": 0, "evaluation": 1}
BY_PAIR = SplitBy()
NAMES = {"pair": "pairs", "user": "users", "time": "moments", "group": "groups"}
MOST_CELLS = 1 << 17
"""Held-out cells of a part per replica; beyond it the unclicked are thinned and weighted."""


@dataclass(frozen=True)
class SplitCells:
    """Cells of D with their clicks, ``[R, n]`` each."""

    rows: Rows
    click: Tensor
    weight: Tensor
    """How many cells of D each stands for; 0 is padding."""


class HeldOut:
    """A split of D, for each replica from its own seed, into cells for training, calibration, evaluation.

    By a hash of the pair's ids. It is the click of a held-out cell, o = 1 or o = 0, that nothing trains on;
    a conversion there still trains the conversion model.
    """

    def __init__(self, population: Population, seeds: Sequence[int]) -> None:
        self.population = population
        self._seeds = [stream(seed, "held-out cells") for seed in seeds]

    def trains(self, rows: Rows) -> Tensor:
        """Return whether a click tower trains on rows ``[R, B]``."""
        return self._slots.of_rows(rows) >= len(SLOT_OF)

    def of(self, seeds: Sequence[int]) -> HeldOut:
        """Return the same for other seeds."""
        return HeldOut(self.population, seeds)

    @cached_property
    def calibration(self) -> SplitCells:
        """Return cells to calibrate with."""
        return self._cells("calibration")

    @cached_property
    def evaluation(self) -> SplitCells:
        """Return cells to judge by."""
        return self._cells("evaluation")

    @cached_property
    def _slots(self) -> Slots:
        return self.population.slots(self._seeds, SLOTS)

    def _cells(self, part: Part) -> SplitCells:
        chosen = torch.zeros(len(self._seeds), SLOTS, dtype=torch.bool, device=self.population.device)
        chosen[:, SLOT_OF[part]] = True
        cell, weight = held_out_cells(self.population, self._slots, chosen, MOST_CELLS)
        return SplitCells(rows=self.population.rows(cell), click=self.population.click(cell), weight=weight)


Positions = NDArray[np.int64]
Ends = tuple[int, ...]
"""The greatest key of each part of the clicks, one after the other."""


def split_clicks(
    log: Log, seed: int, held_out: int, by: SplitBy = BY_PAIR, part: int = 0
) -> tuple[Positions, Positions]:
    """Return positions in O that train (one order of a seed's own), and those that are held out: one part of
    the clicks, of those of :func:`split_parts`."""
    return split_parts(log, seed, held_out, by, (part,))[part]


def split_parts(
    log: Log, seed: int, held_out: int, by: SplitBy, parts: Sequence[int], ends: Ends = ()
) -> dict[int, tuple[Positions, Positions]]:
    """Return positions in O that train (one order of a seed's own), and those that are held out, for some
    parts.

    The clicks are dealt into parts of as many as are held out, by their keys; where there are fewer parts
    than asked for, the first follows the last. Of times there is one part, the latest.

    No pair (user, group, moment) is in both: where several of its rows lie across the end of a part, those
    that do not fit in train nothing, and others come twice in their place, so that every seed has as many.

    Parameters
    ----------
    ends
        The greatest key of each part, where an earlier training has set them: nothing between the ends of a
        part trains, and ``held_out`` clicks of it are held out.
    """
    key = by.keys(log, log.clicked, seed)
    order = np.argsort(key, kind="stable")
    key = key[order]
    ends = ends or _ends(key, held_out, by, max(parts) + 1)
    found = {}
    for part in dict.fromkeys(parts):
        held, rest = order[:0], order
        if held_out:
            line = part % len(ends)
            first = int(np.searchsorted(key, ends[line - 1], side="right")) if line else 0
            held = order[first : first + held_out]
            rest = order[(key < key[first]) | (key > ends[line])]
        if not len(rest):
            raise DataError(
                f"{len(order)} clicked rows are of too few {NAMES[by.kind]} to split",
                remedy="give more data, or validation_share=0",
            )
        found[part] = np.resize(rest, len(order) - held_out), held
    return found


def _ends(key: NDArray[np.int64], held_out: int, by: SplitBy, most: int) -> Ends:
    """Return the greatest key of each part of the clicks, whose keys are sorted.

    A part has whole keys: the next begins with the first key above its last. What is later than a held-out
    click must not train, so that times have one part.
    """
    ends: list[int] = []
    first = 0
    while held_out and len(ends) < (1 if by.kind == "time" else most) and first + held_out <= len(key):
        ends.append(int(key[first + held_out - 1]))
        first = int(np.searchsorted(key, ends[-1], side="right"))
    return tuple(ends)


@dataclass(frozen=True)
class Split:
    """Which clicks were held out.

    Attributes
    ----------
    held_out
        How many for each seed, or each of its members; 0 if every click trained.
    ends
        For each seed the greatest keys (:meth:`~unskew.data.splitting.SplitBy.keys`) of the parts that were
        held out, one after the other.
    by
        What was held out together.
    lines
        Of a seed: its members that hold out a part each; 1 where all of a seed hold out the same.
    """

    held_out: int
    ends: tuple[Ends, ...]
    by: SplitBy = BY_PAIR
    lines: int = 1

    @classmethod
    def of(
        cls,
        log: Log,
        seeds: Sequence[int],
        held_out: int,
        by: SplitBy = BY_PAIR,
        *,
        members: int = 1,
    ) -> Split:
        """Return the split of a log, for so many members that are trained on their own."""
        if not held_out:
            return cls(0, ())
        lines = 1 if by.kind == "time" else members
        ends = tuple(_ends(np.sort(by.keys(log, log.clicked, seed)), held_out, by, lines) for seed in seeds)
        return cls(held_out, ends, by, lines)

    def rows(self, log: Log, seeds: Sequence[int]) -> NDArray[np.int64]:
        """Return numbers ``[seeds · lines, n]`` of a log's clicked rows that did not train a seed, or its
        member.

        The log may be the training log, in any order, or a part of it: what is between the ends of a part
        trained nothing, wherever it comes from. Where a log has more such rows in one line than in another,
        those with the least keys are given.
        """
        clicked = log.clicked
        if not self.held_out:
            return np.empty((len(seeds) * self.lines, 0), dtype=np.int64)
        found = []
        for seed, ends in zip(seeds, self.ends, strict=True):
            key = self.by.keys(log, clicked, seed)
            order = np.argsort(key, kind="stable")
            borders = [0, *np.searchsorted(key[order], ends, side="right")]
            parts = [clicked[order[first:last]] for first, last in pairwise(borders)]
            found += [parts[line % len(parts)] for line in range(self.lines)]
        count = min(len(each) for each in found)
        if not count:
            raise DataError(
                "none of these clicks was held out from training, for some seed or member",
                remedy="give the training log, or more of it; or say which rows trained no model"
                " (held_out='all' for a new log)",
            )
        return np.stack([each[:count] for each in found])
