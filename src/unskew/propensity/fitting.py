"""Training a propensity's networks over D: which cells each sees, stops on and is judged on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unskew.errors import DataError
from unskew.progress import Progress
from unskew.propensity.design import SPARED, TRAIN
from unskew.training import (
    ClicksAndNegatives,
    Draw,
    EveryCell,
    History,
    LookedUp,
    Pass,
    Sampler,
    Schedule,
    Step,
    train,
)
from unskew.training.inference import held_out_cells, logits

if TYPE_CHECKING:
    from unskew.propensity.estimator import Propensity

HELD_OUT_BUDGET = 1 << 24
"""Held-out cells kept over all networks; beyond it the unclicked are thinned and weighted."""


class Fitting:
    """One fit of a :class:`Propensity` whose population, slots and network are made."""

    def __init__(self, propensity: Propensity, ratio: float | None) -> None:
        self.propensity = propensity
        self.population = propensity.population_
        self.ratio = ratio
        self.members = propensity.method().stacked_members()

    def held_out(self, role: int) -> tuple[Tensor, Tensor]:
        """Cells and weights ``[R, n]`` that have a role for each network."""
        admitted = self._admitted(role)
        cells, weight = held_out_cells(
            self.population, self.propensity.slots_, admitted, HELD_OUT_BUDGET // len(admitted)
        )
        self._require_clicks((self.population.click(cells) * weight).sum(1) > 0)
        return cells, weight

    def training_cells(self) -> tuple[Tensor, Tensor]:
        """The training clicks and fresh negatives, as published code calibrates and judges on."""
        # Members of an ensemble are judged together, so they get the same cells in the same order.
        of_folds = self.propensity.replica_seeds("fresh negatives")[:: self.members]
        seeds = [seed for seed in of_folds for _ in range(self.members)]
        everything = ClicksAndNegatives(
            self.population, seeds, 1, self.propensity.slots_, self._training(), self.ratio or 1.0
        )
        (block,) = everything.epoch(0)
        assert block.cells is not None
        cells = block.cells.flatten(1)
        return cells, torch.ones(cells.shape, device=cells.device)

    def train(self, stop: tuple[Tensor, Tensor] | None, progress: Progress) -> History:
        """Train all networks; with stopping cells each keeps its best epoch."""
        propensity, network = self.propensity, self.propensity.network_
        method, smoothing = propensity.method(), propensity.label_smoothing

        def loss(draw: Draw) -> Tensor:
            assert draw.click is not None
            target = draw.click * (1.0 - smoothing) + 0.5 * smoothing if smoothing else draw.click
            return method.loss(target, network(draw.user, draw.item)).mean(-1)

        step = Step("propensity", loss, trains=("propensity",))
        return train(
            {"propensity": network},
            [Pass(LookedUp(self._sampler(), self.population), (step,))],
            Schedule(
                propensity.epochs, propensity.learning_rate, propensity.weight_decay, propensity.patience
            ),
            replicas=network.replicas,
            validate=None if stop is None else self._held_out_loss(*stop),
            tracker=progress.task("propensity", propensity.epochs),
        )

    def _held_out_loss(self, cells: Tensor, weight: Tensor) -> Callable[[], Tensor]:
        user, item = self.population.pairs(cells)
        click = self.population.click(cells)
        propensity, method = self.propensity, self.propensity.method()

        def weighted_mean() -> Tensor:
            each = method.held_out_loss(click, logits(propensity.network_, user, item), propensity.offset_)
            return (each * weight).sum(1) / weight.sum(1)

        return weighted_mean

    def _sampler(self) -> Sampler:
        propensity, admitted = self.propensity, self._admitted(TRAIN)
        seeds = propensity.replica_seeds("propensity order")
        observed = self.population.observed[None]
        self._require_clicks(admitted.gather(1, propensity.slots_.of(observed)).any(1))
        if self.ratio is None:
            return EveryCell(self.population, seeds, propensity.batch_size, propensity.slots_, admitted)
        return ClicksAndNegatives(
            self.population,
            seeds,
            propensity.batch_size,
            propensity.slots_,
            admitted,
            self.ratio,
            propensity.resample_negatives,
        )

    def _training(self) -> Tensor:
        return self._admitted(TRAIN) | self._admitted(SPARED)

    def _admitted(self, role: int) -> Tensor:
        propensity = self.propensity
        return propensity.design_.admitted(role, len(propensity.seeds_), propensity.device_, self.members)

    def _require_clicks(self, has_clicks: Tensor) -> None:
        if not bool(has_clicks.all()):
            raise DataError(
                f"too few clicks ({self.population.n_clicks}) for every replica to train on some and to hold"
                " some out",
                remedy="give more data, or fewer folds (crossfit)",
            )
