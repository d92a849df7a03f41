"""Cells of D that no click tower trains on: some to calibrate it with, some to judge it by."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unskew.debias.setting import Cells, HeldOutPart
from unskew.seeds import stream
from unskew.training import Population, Slots
from unskew.training.inference import held_out_cells

SLOTS = 10
"""D is dealt into so many slots: eight train, one calibrates, one evaluates (METHODS §2.4: 80/10/10)."""
SLOT_OF: dict[HeldOutPart, int] = {"calibration": 0, "evaluation": 1}
MOST_CELLS = 1 << 17
"""Held-out cells of a part per replica; beyond it the unclicked are thinned and weighted."""


class HeldOut:
    """A split of D, for each replica from its own seed, into cells for training, calibration, evaluation.

    Clicks are dealt out evenly. The conversions of held-out clicks still train the conversion model: it is
    the click of a held-out cell, o = 1 or o = 0, that nothing trains on.
    """

    def __init__(self, population: Population, seeds: Sequence[int]) -> None:
        self.population = population
        self._density = population.n_clicks / population.size
        self._slots = Slots(population, [stream(seed, "held-out cells") for seed in seeds], SLOTS)
        self._admitted = torch.ones(len(seeds), SLOTS, dtype=torch.bool, device=population.device)
        self._admitted[:, list(SLOT_OF.values())] = False

    def weight_clicked(self, cell: Tensor) -> Tensor:
        """Weights of clicked cells ``[R, B]``; they sum to |O|/|D|."""
        return _shares(self._trains(cell).float(), self._density)

    def weight_unclicked(self, cell: Tensor) -> Tensor:
        """Weights of cells drawn uniformly from D ``[R, B]``, 0 where clicked; they sum to 1 − |O|/|D|."""
        # A click that is held out for validation is a click, so that it never counts as o = 0.
        return _shares(self._trains(cell) * (1.0 - self.population.click(cell)), 1.0 - self._density)

    def cells(self, part: HeldOutPart) -> Cells:
        """The cells of a part, with their clicks."""
        chosen = torch.zeros_like(self._admitted)
        chosen[:, SLOT_OF[part]] = True
        cell, weight = held_out_cells(self.population, self._slots, chosen, MOST_CELLS)
        user, item = self.population.pairs(cell)
        return Cells(user=user, item=item, click=self.population.click(cell), weight=weight)

    def _trains(self, cell: Tensor) -> Tensor:
        return self._admitted.gather(1, self._slots.of(cell))


def _shares(counts: Tensor, total: float) -> Tensor:
    return counts * (total / counts.sum(-1, keepdim=True).clamp_min(1.0))
