"""Cells of D that no click tower trains on: some to calibrate it with, some to judge it by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from unskew.log import Rows
from unskew.seeds import stream
from unskew.training import Population, Slots
from unskew.training.inference import held_out_cells

Part = Literal["calibration", "evaluation"]

SLOTS = 10
"""D is dealt into so many slots: eight train, one calibrates, one evaluates (METHODS §2.4: 80/10/10)."""
SLOT_OF: dict[Part, int] = {"calibration": 0, "evaluation": 1}
MOST_CELLS = 1 << 17
"""Held-out cells of a part per replica; beyond it the unclicked are thinned and weighted."""


@dataclass(frozen=True)
class Cells:
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

    def trains(self, cell: Tensor) -> Tensor:
        """Whether a click tower trains on cells ``[R, B]``."""
        return self._slots.of(cell) >= len(SLOT_OF)

    def unclicked(self, cell: Tensor) -> Tensor:
        """1.0 where a cell has no click at all: one that is held out for validation is a click too."""
        return 1.0 - self.population.click(cell)

    @cached_property
    def calibration(self) -> Cells:
        """Cells to calibrate with."""
        return self._cells("calibration")

    @cached_property
    def evaluation(self) -> Cells:
        """Cells to judge by."""
        return self._cells("evaluation")

    @cached_property
    def _slots(self) -> Slots:
        return self.population.slots(self._seeds, SLOTS)

    def _cells(self, part: Part) -> Cells:
        chosen = torch.zeros(len(self._seeds), SLOTS, dtype=torch.bool, device=self.population.device)
        chosen[:, SLOT_OF[part]] = True
        cell, weight = held_out_cells(self.population, self._slots, chosen, MOST_CELLS)
        return Cells(rows=self.population.rows(cell), click=self.population.click(cell), weight=weight)
