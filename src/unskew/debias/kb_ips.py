"""KB-IPS: IPS with weights that balance kernel means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unskew.debias.core.plans import PassPlan, StepPlan
from unskew.debias.core.setting import Batch, Setting
from unskew.debias.ips import IPS
from unskew.debias.parts.kernel_balance import KernelBalancing
from unskew.registry import register


@register(order=230)
@dataclass(kw_only=True)
class KBIPS(KernelBalancing, IPS):
    """L = (1/|O|) Σ_O w·CE(r, r̂), with w from :class:`KernelBalancing`, in turn by batch.

    w has no gradient here. While the weight network is at its start w is 1/p scaled to mean 1, and this is
    :class:`SNIPS`; with γ = 0 the weights go to 1, and it becomes :class:`Naive`. Use it where propensities
    leave some kinds of pairs out of balance; not where embeddings say nothing yet (very few clicks).
    """

    name: ClassVar[str] = "kb-ips"
    paper: ClassVar[str] = "Li 2024"
    when: ClassVar[str] = "where 1/p leaves some kinds of pairs out of balance"
    detached: ClassVar[tuple[str, ...]] = (
        "propensity",
        "weight in the prediction step",
        "embeddings in the kernels",
    )

    def networks(self) -> dict[str, tuple[str, ...]]:
        """The predictor and the weights."""
        return {"prediction": ("prediction",), "weight": ("weight",)}

    def plan(self) -> tuple[PassPlan, ...]:
        """On each batch the weights, then the prediction."""
        prediction = StepPlan("prediction", self.loss, ("prediction",))
        return (self.full_pass(self.weight_step(), prediction),)

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_B w·CE(r, r̂)."""
        return super().loss(setting, self.balanced(setting, observed), full)
