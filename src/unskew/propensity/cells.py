"""Cells of D as arrays, dealt to training and held-out parts: what a model without a network is fitted on.

The partition is that of :class:`unskew.Propensity`: with the same seed both hold out the same cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.errors import DataError
from unskew.log import Log
from unskew.propensity.design import OUT, TRAIN, SplitDesign
from unskew.propensity.negatives import logit_offset
from unskew.seeds import stream
from unskew.training import ClicksAndNegatives, Population, rows_of
from unskew.training.inference import held_out_cells
from unskew.training.population import FoldBy

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

HELD_OUT_BUDGET = 1 << 22
"""Held-out cells scored per replica; beyond it the unclicked are thinned and weighted."""

BLOCK = 1 << 18
"""Cells looked at, or pairs scored, at once: bounds the memory of a model's inputs."""


class Pairs(NamedTuple):
    """What a model may know of the pairs it scores."""

    user: Codes
    item: Codes
    conversion: Floats | None = None
    """NaN where unknown; only naive Bayes looks at it."""

    def take(self, rows: Any) -> Pairs:
        """Some of the pairs."""
        known = None if self.conversion is None else self.conversion[rows]
        return Pairs(self.user[rows], self.item[rows], known)


Scorer = Callable[[Pairs], Floats]
"""A fitted model: probabilities in [0, 1] over the cells it was fitted on."""


class Cells(NamedTuple):
    """Cells of D with the slot of the partition that each is in."""

    user: Codes
    item: Codes
    click: Floats
    slot: Codes


class Replica(NamedTuple):
    """One model to fit: its number, its repetition, the slots it may see, a seed for what it draws."""

    number: int
    seed: int
    trains: NDArray[np.bool_]
    """``[slots]``."""
    random: int


class HeldOut(NamedTuple):
    """Cells that a replica never saw; weighted sums estimate those over D."""

    pairs: Pairs
    click: Floats
    weight: Floats


class FoldedCells:
    """The cells of a log's D, for each seed in a partition of its own.

    Parameters
    ----------
    crossfit
        Folds, or None for 80 % training, 10 % calibration and 10 % evaluation cells.
    fold_by
        What stays together.
    """

    def __init__(self, log: Log, seeds: tuple[int, ...], *, crossfit: int | None, fold_by: FoldBy) -> None:
        self.design = SplitDesign.of(crossfit)
        self.seeds = seeds
        self.fold_by = fold_by
        self.space, self.n_users, self.n_items = log.space, log.n_users, log.n_items
        self.population = Population(log, torch.device("cpu"))
        self.slots = [
            self.population.slots([stream(seed, "propensity split")], self.design.slots, fold_by)
            for seed in seeds
        ]
        observed = self.population.observed.numpy()
        self._clicks = torch.as_tensor(
            np.stack(
                [
                    np.bincount(self.slot(seed, observed), minlength=self.design.slots)
                    for seed in range(len(seeds))
                ]
            )
        )
        self.roles: Codes = self.design.roles_of(self._clicks).numpy()
        """``[seeds · folds, S]``."""

    @property
    def size(self) -> int:
        """|D|."""
        return self.population.size

    def replicas(self, purpose: str) -> Iterator[Replica]:
        """One for each seed and fold, those of a seed side by side."""
        # Nothing is stopped early: with cross-fitting the cells that would stop a network train as well.
        trains = self.roles == TRAIN if self.design.folds is None else self.roles != OUT
        for number, admitted in enumerate(trains):
            seed, fold = divmod(number, self.design.replicas)
            yield Replica(number, seed, admitted, stream(self.seeds[seed], purpose, fold))

    def slot(self, seed: int, cell: Codes) -> Codes:
        """Slots of cells in the partition of a seed (by its position)."""
        return np.asarray(self.slots[seed].of(torch.as_tensor(cell).unsqueeze(0))[0].numpy())

    def fold(self, seed: int, rows: Pairs) -> Codes:
        """The fold of pairs: the replica that never saw them."""
        slots = self.slots[seed].of_rows(rows_of(rows.user, rows.item, self.population.device))
        return np.asarray(self.design.fold_of(slots)[0].numpy())

    def role(self, number: int, cell: Codes) -> Codes:
        """What cells are to a replica: training, calibration or evaluation."""
        return np.asarray(self.roles[number][self.slot(number // self.design.replicas, cell)])

    def blocks(self, replica: Replica) -> Iterator[Cells]:
        """All training cells of a replica, in blocks."""
        for start in range(0, self.size, BLOCK):
            cells = self._looked_up(replica, np.arange(start, min(start + BLOCK, self.size)))
            kept = replica.trains[cells.slot]
            yield Cells(cells.user[kept], cells.item[kept], cells.click[kept], cells.slot[kept])

    def training(self, replica: Replica, ratio: float | None) -> Cells:
        """All training cells; or, with ``ratio``, the clicks among them and so many negatives per click."""
        if ratio is None:
            parts = [np.concatenate(part) for part in zip(*self.blocks(replica), strict=True)]
            cells = Cells(*parts)
        else:
            sampler = ClicksAndNegatives(
                self.population,
                [stream(replica.random, "negatives")],
                self.size,
                self.slots[replica.seed],
                torch.as_tensor(replica.trains).unsqueeze(0),
                ratio,
            )
            (block,) = sampler.epoch(0)
            assert block.cells is not None
            cells = self._looked_up(replica, block.cells.flatten().numpy())
        self.require_clicks(float(cells.click.sum()))
        return cells

    def offset(self, replica: Replica, ratio: float | None) -> float:
        """log w of the negatives that a replica samples; 0 where it trains on all its cells."""
        if ratio is None:
            return 0.0
        clicks = int(replica.trains[self.slot(replica.seed, self.population.observed.numpy())].sum())
        self.require_clicks(clicks)
        return logit_offset(ratio, clicks, round(self.size * self._training_share(replica)))

    def held_out(self, number: int, role: int) -> HeldOut:
        """The cells that have a role for a replica."""
        seed = number // self.design.replicas
        admitted = torch.as_tensor(self.roles[number] == role).unsqueeze(0)
        cells, weight = held_out_cells(self.population, self.slots[seed], admitted, HELD_OUT_BUDGET)
        click = self.population.click(cells[0]).numpy().astype(np.float64)
        self.require_held_out(number, role, float(click.sum()))
        rows = self.population.rows(cells[0])
        return HeldOut(
            Pairs(rows.user.numpy(), rows.item.numpy()), click, weight[0].numpy().astype(np.float64)
        )

    def require_held_out(self, number: int, role: int, clicks: float) -> None:
        """An error where no click is held out; with cross-fitting, where less than two folds have clicks."""
        if role == OUT and self.design.folds:
            # Calibrator and figures are made from several folds together, so one may lack clicks.
            of_fold = self._clicks[number // self.design.replicas].view(self.design.replicas, -1).sum(1)
            clicks = 0 if self.population.n_clicks < self.design.folds else int((of_fold > 0).sum()) - 1
        self.require_clicks(clicks)

    def require_clicks(self, clicks: float) -> None:
        """An error where a part of D has no click."""
        if not clicks > 0:
            raise DataError(
                f"too few clicks ({self.population.n_clicks}) for every fold to train on some and to hold"
                " some out",
                remedy="give more data, or fewer folds (crossfit)",
            )

    def _looked_up(self, replica: Replica, cell: Codes) -> Cells:
        numbers = torch.as_tensor(cell)
        rows = self.population.rows(numbers)
        click = self.population.click(numbers).numpy().astype(np.float64)
        return Cells(rows.user.numpy(), rows.item.numpy(), click, self.slot(replica.seed, cell))

    def _training_share(self, replica: Replica) -> float:
        """Share of D that a replica trains on; folds of rows, users or items differ in size."""
        if self.space == "impressions":
            probe = np.arange(self.size)
        elif self.fold_by == "cell":
            return float(replica.trains.mean())
        else:
            probe = (
                np.arange(self.n_users) * self.n_items if self.fold_by == "user" else np.arange(self.n_items)
            )
        return float(replica.trains[self.slot(replica.seed, probe)].mean())
