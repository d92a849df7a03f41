"""ESCM²-IPS: Multi-IPW held to the rate of clicks that convert, over all of D."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unskew.base.registry import register
from unskew.debias import losses
from unskew.debias.setting import Batch, Setting
from unskew.debias.towers import MultiTask, Tasks


@register(order=130)
@dataclass(kw_only=True)
class ESCM2IPS(MultiTask):
    """L = (1/|D|) Σ_D CE(o, p) + λ_c · (1/|D|) Σ_O CE(r, r̂)/sg(p) + λ_g · (1/|D|) Σ_D CE(o·r, p·r̂).

    The last term says over the whole space that p·r̂ is the rate of clicks that convert; p has its gradient
    there. λ_c is ``conversion_weight``, λ_g ``click_conversion_weight``: public code has (0.5, 0.5),
    (0.1, 1) and (1, 1). Use it as :class:`MultiIPW`, where clicks that convert are many enough.
    """

    name: ClassVar[str] = "escm2-ips"
    paper: ClassVar[str] = "Wang 2022"
    when: ClassVar[str] = "multi-ipw where clicks that convert are many enough to be a task"

    conversion_weight: float = 1.0
    click_conversion_weight: float = 1.0

    def conversion_loss(self, setting: Setting, observed: Batch, full: Batch, tasks: Tasks) -> Tensor:
        """λ_c · (1/|D|) Σ_O CE(r, r̂) / sg(p)."""
        p, logit = self.tower.propensity(setting, observed), tasks.observed["prediction"]
        return self.conversion_weight * losses.ips(observed.conversion, logit, p, density=tasks.density)
