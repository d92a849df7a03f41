"""Which cells of D each replica of a propensity trains on, stops on, is calibrated on and is judged on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.estimator import require

TRAIN, STOP, OUT, SPARED = 0, 1, 2, 3
"""Roles of a slot for a replica: trained on; early stopping (and, without cross-fitting, calibration);
held out from both; not trained on, but counted to the training cells."""

DEFAULT_FOLDS = 5
"""Folds of a propensity that may become a weight."""

_HOLDOUT_SLOTS = 10
_SLOTS_PER_FOLD = 4
_STOP_SHARE = 0.1

MOST_FOLDS = 100
"""Each fold is a network of its own; beyond this many they differ in nothing."""


@dataclass(frozen=True)
class SplitDesign:
    """Roles of the slots of D for the replicas of one seed.

    A pair's slot follows from its ids and the seed (:class:`unskew.training.Slots`), so which replica never
    saw it is known wherever the pair comes from.

    Without cross-fitting there is one replica: 80 % of the cells train it, 10 % stop and calibrate it, 10 %
    judge it (METHODS §2.4). With K folds there are K replicas; replica k is held out from fold k, stops on
    a tenth of the rest and trains on what remains, so every cell is held out from exactly one replica.
    """

    folds: int | None
    roles: Tensor
    """``[K or 1, S]``."""

    @classmethod
    def of(cls, crossfit: int | None, *, hold_out: bool = True, spare: bool = False) -> SplitDesign:
        """The design for ``crossfit`` folds, or for a single hold-out (None), or with nothing held out (or
        only a tenth spared from training, to no end)."""
        if not hold_out:
            require(
                crossfit is None,
                "cross-fitting and calibrating on training cells exclude each other",
                "give crossfit=None, or leave out the other",
            )
            roles = torch.full((1, _HOLDOUT_SLOTS if spare else 1), TRAIN)
            roles[0, 1:2] = SPARED
            return cls(folds=None, roles=roles)
        if crossfit is None:
            roles = torch.full((1, _HOLDOUT_SLOTS), TRAIN)
            roles[0, -2], roles[0, -1] = STOP, OUT
            return cls(folds=None, roles=roles)
        require(
            2 <= crossfit <= MOST_FOLDS,
            f"crossfit must be None or from 2 to {MOST_FOLDS} folds, not {crossfit}",
            "give 5, for example",
        )
        slots = crossfit * _SLOTS_PER_FOLD
        fold = torch.arange(slots) // _SLOTS_PER_FOLD
        roles = torch.full((crossfit, slots), TRAIN)
        stop = max(1, round(_STOP_SHARE * slots))
        for k in range(crossfit):
            after = ((k + 1) * _SLOTS_PER_FOLD + torch.arange(stop)) % slots
            roles[k, after] = STOP
            roles[k, fold == k] = OUT
        return cls(folds=crossfit, roles=roles)

    @property
    def replicas(self) -> int:
        """Replicas per seed."""
        return len(self.roles)

    @property
    def slots(self) -> int:
        """Slots into which D is cut."""
        return int(self.roles.shape[1])

    def roles_of(self, clicks: Tensor) -> Tensor:
        """``[seeds · replicas, S]``: the roles for each seed's replicas, side by side.

        Slots are even in expectation only, so in a small log those that stop a replica (without
        cross-fitting also those that judge it) may have no click. Then they get one of the slots that would
        have trained it, if another one with clicks is left for training. Folds stay what they are.

        Parameters
        ----------
        clicks
            ``[seeds, S]`` clicks in each slot.
        """
        lacking = (STOP,) if self.folds else (STOP, OUT)
        roles = self.roles.repeat(len(clicks), 1)
        for line, of_slot in zip(roles, clicks.repeat_interleave(self.replicas, dim=0).cpu(), strict=True):
            for role in lacking:
                if bool((line == role).any()) and not bool(of_slot[line == role].any()):
                    trains = torch.nonzero((line == TRAIN) & (of_slot > 0))[:, 0]
                    if len(trains) > 1:
                        line[trains[0]] = role
        return roles

    def fold_of(self, slot: Tensor) -> Tensor:
        """The replica that a slot is held out from (0 without cross-fitting)."""
        if self.folds is None:
            return torch.zeros_like(slot)
        return torch.div(slot, _SLOTS_PER_FOLD, rounding_mode="floor")
