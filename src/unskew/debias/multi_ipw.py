"""Multi-IPW: IPS and its propensity learned together on shared embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unskew import losses
from unskew.debias.setting import Batch, Setting
from unskew.debias.towers import MultiTask, Tasks
from unskew.registry import register


@register(order=190)
@dataclass(kw_only=True)
class MultiIPW(MultiTask):
    """L = (1/|D|) Σ_D CE(o, p) + λ_c · (1/|D|) Σ_O CE(r, r̂) / sg(p).

    p is the click tower or, as a weight, what ``calibration`` says; λ_c is ``conversion_weight``, 1 in the
    paper. Clicks are many where conversions are few, and the shared embeddings learn from both. Use it where
    clicks and conversions have causes in common; where they have not, :class:`IPS` is better.
    """

    name: ClassVar[str] = "multi-ipw"
    paper: ClassVar[str] = "Zhang 2020"
    when: ClassVar[str] = "IPS where clicks can teach the embeddings what conversions need"

    conversion_weight: float = 1.0

    def conversion_loss(self, setting: Setting, observed: Batch, full: Batch, tasks: Tasks) -> Tensor:
        """λ_c · (1/|D|) Σ_O CE(r, r̂) / sg(p)."""
        p, logit = self.tower.propensity(setting, observed), tasks.observed["prediction"]
        return self.conversion_weight * losses.ips(observed.conversion, logit, p, density=tasks.density)
