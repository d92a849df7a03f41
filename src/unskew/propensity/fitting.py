"""Training a propensity's networks over D: which cells each sees, stops on and is judged on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unskew.backbones import Network
from unskew.errors import DataError
from unskew.log import Schema
from unskew.progress import Progress
from unskew.propensity.design import OUT, SPARED, STOP, TRAIN
from unskew.training import (
    ClicksAndNegatives,
    Draw,
    EveryCell,
    History,
    LookedUp,
    Pass,
    Sampler,
    Schedule,
    Slots,
    Step,
    in_groups,
    join_histories,
    train,
)
from unskew.training.inference import held_out_cells, logits
from unskew.training.memory import parameters_of, replicas_at_once

if TYPE_CHECKING:
    from unskew.propensity.estimator import Propensity

HELD_OUT_BUDGET = 1 << 24
"""Held-out cells kept over all networks; beyond it the unclicked are thinned and weighted."""


EVERYTHING = slice(None)


class Fitting:
    """One fit of a :class:`Propensity` whose population is known: networks of all seeds, folds and members.

    Networks do not depend on one another; those of a slice are trained as they would be among all.
    """

    def __init__(self, propensity: Propensity) -> None:
        self.propensity = propensity
        self.population = propensity.population_
        self.ratio = propensity.ratio_
        self.members = propensity.method().stacked_members()
        self._split_seeds = propensity.replica_split_seeds()
        design, observed = propensity.design_, self.population.observed[None]
        slot_of_clicks = self.population.slots(
            self.propensity.split_seeds(), design.slots, propensity.fold_by
        )
        clicks = torch.stack(
            [torch.bincount(line, minlength=design.slots) for line in slot_of_clicks.of(observed)]
        )
        self._roles = design.roles_of(clicks).repeat_interleave(self.members, dim=0).to(propensity.device_)
        self._clicks = clicks.repeat_interleave(len(self._roles) // len(clicks), dim=0)

    def held_out(self, role: int, networks: slice = EVERYTHING) -> tuple[Tensor, Tensor]:
        """Cells and weights ``[R, n]`` that have a role for each network."""
        self._require_clicks(role)
        return held_out_cells(
            self.population,
            self._slots(networks),
            self._admitted(role, networks),
            max(1, HELD_OUT_BUDGET // len(self._roles)),
        )

    def training_cells(self) -> tuple[Tensor, Tensor]:
        """The training clicks and fresh negatives, as published code calibrates and judges on."""
        # Members of an ensemble are judged together, so they get the same cells in the same order.
        of_folds = self.propensity.replica_seeds("fresh negatives")[:: self.members]
        seeds = [seed for seed in of_folds for _ in range(self.members)]
        admitted = self._admitted(TRAIN, EVERYTHING) | self._admitted(SPARED, EVERYTHING)
        everything = ClicksAndNegatives(
            self.population, seeds, 1, self._slots(EVERYTHING), admitted, self.ratio or 1.0
        )
        (block,) = everything.epoch(0)
        assert block.cells is not None
        cells = block.cells.flatten(1)
        return cells, torch.ones(cells.shape, device=cells.device)

    def train(self, progress: Progress) -> tuple[Network, History]:
        """Train all networks, in one go if they fit into memory; each keeps its best epoch."""
        propensity, seeds = self.propensity, self.propensity.replica_seeds("propensity")
        schema = Schema.of_ids(len(propensity.users_), len(propensity.items_))
        backbone = propensity.trained_backbone()
        parameters = parameters_of(lambda tiny: [backbone.build(tiny, seeds[:1])], schema)
        size = replicas_at_once(len(seeds), parameters, propensity.device_)
        whole = backbone.build(schema, seeds)
        propensity.method().check_network(whole)
        whole.to_device(propensity.device_)

        def train_some(networks: slice) -> History:
            if networks == slice(0, len(seeds)):
                return self._train(whole, networks, progress)
            part = backbone.build(schema, seeds[networks]).to_device(propensity.device_)
            history = self._train(part, networks, progress)
            state = whole.state_dict()
            for name, trained in part.state_dict().items():
                state[name][networks] = trained
            return history

        return whole, join_histories(in_groups(len(seeds), train_some, size))

    def _train(self, network: Network, networks: slice, progress: Progress) -> History:
        propensity = self.propensity
        method, smoothing = propensity.method(), propensity.label_smoothing

        def loss(draw: Draw) -> Tensor:
            assert draw.click is not None
            target = draw.click * (1.0 - smoothing) + 0.5 * smoothing if smoothing else draw.click
            return method.loss(target, network(draw.rows)).mean(-1)

        step = Step("propensity", loss, trains=("propensity",))
        stop = self.held_out(STOP, networks) if propensity.holds_out() else None
        return train(
            {"propensity": network},
            [Pass(LookedUp(self._sampler(networks), self.population), (step,))],
            Schedule(
                propensity.epochs, propensity.learning_rate, propensity.weight_decay, propensity.patience
            ),
            replicas=network.replicas,
            validate=None if stop is None else self._held_out_loss(network, *stop),
            tracker=progress.task("propensity", propensity.epochs),
        )

    def _held_out_loss(self, network: Network, cells: Tensor, weight: Tensor) -> Callable[[], Tensor]:
        rows, click = self.population.rows(cells), self.population.click(cells)
        method, offset = self.propensity.method(), self.propensity.offset_

        def weighted_mean() -> Tensor:
            each = method.held_out_loss(click, logits(network, rows), offset)
            return (each * weight).sum(1) / weight.sum(1)

        return weighted_mean

    def _sampler(self, networks: slice) -> Sampler:
        self._require_clicks(TRAIN)
        propensity, admitted = self.propensity, self._admitted(TRAIN, networks)
        seeds, slots = propensity.replica_seeds("propensity order")[networks], self._slots(networks)
        if self.ratio is None:
            return EveryCell(self.population, seeds, propensity.batch_size, slots, admitted)
        return ClicksAndNegatives(
            self.population,
            seeds,
            propensity.batch_size,
            slots,
            admitted,
            self.ratio,
            propensity.resample_negatives,
        )

    def _slots(self, networks: slice) -> Slots:
        propensity = self.propensity
        return self.population.slots(
            self._split_seeds[networks], propensity.design_.slots, propensity.fold_by
        )

    def _admitted(self, role: int, networks: slice) -> Tensor:
        return self._roles[networks] == role

    def _require_clicks(self, role: int) -> None:
        """An error where the cells of a role have no click, for some network."""
        has_clicks = (self._clicks * (self._roles == role)).sum(1) > 0
        if role == OUT and self.propensity.design_.folds:
            # Calibrator and figures are made from several folds together, so one may lack clicks.
            has_clicks = has_clicks.view(len(self.propensity.seeds_), -1).sum(1) > self.members
            has_clicks &= self.population.n_clicks >= self.propensity.design_.folds
        if not bool(has_clicks.all()):
            raise DataError(
                f"too few clicks ({self.population.n_clicks}) for every replica to train on some and to hold"
                " some out",
                remedy="give more data, or fewer folds (crossfit)",
            )
