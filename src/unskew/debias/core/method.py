"""What a method says of itself: its facts, its networks, its losses and when they train.

How that becomes trained networks is told in :mod:`unskew.debias.core.fitting`, once for all methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor

from unskew.backbones import Backbone, NeuMF
from unskew.debias.core.plans import PassPlan, StagePlan, StepPlan
from unskew.debias.core.setting import Batch, Setting
from unskew.estimator import Estimator, require, require_schedule, require_types
from unskew.metrics.clip import Clip, require_clip

Rows = Literal["clicks", "population"]
"""What the loss of a network is a likelihood of: |O| clicks, or |D| cells."""


@dataclass(kw_only=True)
class Method(Estimator):
    """Networks and losses; :class:`unskew.debias.core.base.Debiaser` says what its parameters are."""

    paper: ClassVar[str] = ""
    when: ClassVar[str] = ""
    """One line: when to use it."""
    needs_propensity: ClassVar[bool] = False
    needs_propensity_everywhere: ClassVar[bool] = False
    """Whether its losses read propensities on batches of D too."""
    needs_full_space: ClassVar[bool] = False
    """Whether its losses sum over D, beyond the clicked rows."""
    imputation: ClassVar[str | None] = None
    """How it imputes errors: P1 pseudo-label, P2 direct error, P3 residual (METHODS §1.2)."""
    detached: ClassVar[tuple[str, ...]] = ()
    """Quantities without gradient in its losses."""
    predicts_rates: ClassVar[bool] = True
    """Whether predictions are meant as conversion rates; otherwise they are scores, to rank by."""

    backbone: Backbone = field(default_factory=NeuMF)
    p_min: Clip = "auto"
    epochs: int = 200
    batch_size: int = 1024
    learning_rate: float = 1e-3
    weight_decay: float | Literal["auto"] = "auto"
    regularisation: float = 5.0
    patience: int | None = 10
    validation_share: float = 0.1
    selection: Literal["snips", "ce"] = "snips"

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Networks by name, with the towers that share their embeddings; ``"prediction"`` predicts."""
        return {"prediction": ("prediction",)}

    def stages(self) -> tuple[StagePlan, ...]:
        """What is trained, in order; by default :meth:`plan` alone."""
        return (StagePlan(self.plan()),)

    def plan(self) -> tuple[PassPlan, ...]:
        """The passes of an epoch; by default one step of :meth:`loss` for the prediction network."""
        space: Literal["observed", "both"] = "both" if self.needs_full_space else "observed"
        return (PassPlan((StepPlan(self.name, self.loss, ("prediction",)),), space),)

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Loss ``[R]`` from a batch of O and, where ``needs_full_space``, a batch of D."""
        raise NotImplementedError

    def backbones(self) -> Mapping[str, Backbone]:
        """Backbone by network, where it is not ``backbone``."""
        return {}

    def finish(self, setting: Setting) -> None:
        """What a method learns or reports when its training is over; by default nothing."""

    def learning_rates(self) -> Mapping[str, float]:
        """Learning rate by network, where it is not ``learning_rate``."""
        return {}

    def weight_decays(self) -> Mapping[str, float]:
        """Weight decay by network, where it is not ``weight_decay``."""
        return {}

    def learns_from(self) -> Mapping[str, Rows]:
        """What a network's loss is a likelihood of, where it is not clicks."""
        return {}

    def decay_of(self, network: str, *, clicks: int, population: int) -> float:
        """Weight decay of a network: as told, or λ over the rows that its loss is a mean of."""
        told = self.weight_decays().get(network, self.weight_decay)
        if told != "auto":
            return float(told)
        rows = population if self.learns_from().get(network) == "population" else clicks
        return self.regularisation / max(rows, 1)

    def _check(self) -> None:
        require_types(self, choices=False)
        require(self.epochs >= 1, f"epochs must be at least 1, not {self.epochs}", "give 1 or more")
        require(
            self.batch_size >= 1, f"batch_size must be at least 1, not {self.batch_size}", "give 1 or more"
        )
        require_schedule(
            self.learning_rate, 0.0 if self.weight_decay == "auto" else self.weight_decay, self.patience
        )
        require(
            self.regularisation >= 0, f"regularisation must be at least 0, not {self.regularisation}", "use 5"
        )
        require_clip(self.p_min)
        require(
            0.0 <= self.validation_share < 1.0,
            f"validation_share must be in [0, 1), not {self.validation_share}",
            "give a number between 0 and 1, such as 0.1",
        )
        require(
            self.selection in ("snips", "ce"),
            f"selection must be 'snips' or 'ce', not {self.selection!r}",
            "give one of these",
        )
