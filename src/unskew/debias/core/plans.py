"""What a method trains and when: steps on a batch, passes of an epoch, stages one after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from unskew.debias.core.setting import Batch, Setting

Loss = Callable[[Setting, Batch, Batch], Tensor]
"""(setting, batch of O, batch of D) → ``[R]``. A method that does not ask for D gets the batch of O twice."""


@dataclass(frozen=True)
class StepPlan:
    """One loss and the networks it trains."""

    name: str
    loss: Loss
    trains: tuple[str, ...]


@dataclass(frozen=True)
class PassPlan:
    """One pass per epoch over O; on each batch its steps run in turn.

    Two passes alternate by epoch; two steps in one pass alternate by batch.

    Parameters
    ----------
    space
        ``"observed"``, or ``"both"`` for a batch drawn uniformly from D beside each batch of O.
    ratio
        Cells of D per row of O.
    before
        Runs before the pass in each epoch, in ``eval`` mode without gradient.
    batch_size
        Rows of O in a batch; None takes the method's.
    unclicked_once
        Cells of D are unclicked ones, drawn once for all epochs (:class:`unskew.training.ObservedAndFull`).
    """

    steps: tuple[StepPlan, ...]
    space: Literal["observed", "both"] = "observed"
    ratio: float = 1.0
    before: Callable[[Setting], None] | None = None
    batch_size: int | None = None
    unclicked_once: bool = False


@dataclass(frozen=True)
class StagePlan:
    """Passes that are repeated for up to so many epochs; stages follow one another."""

    passes: tuple[PassPlan, ...]
    epochs: int | None = None
    """None takes the method's ``epochs``."""
    selects: bool = True
    """Whether early stopping chooses the epoch of this stage."""
    validate: Callable[[Setting], Tensor] | None = None
    """The loss ``[R]`` it stops on; None takes that of the conversions."""
    patience: int | None = None
    """None takes the method's ``patience``."""
