"""ESMM: clicks and clicks that convert as two tasks over all of D, the conversion rate between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unskew.base.registry import register
from unskew.debias import losses
from unskew.debias.setting import Batch, Setting
from unskew.debias.towers import MultiTask, Source, Tasks


@register(order=120)
@dataclass(kw_only=True)
class ESMM(MultiTask):
    """L = (1/|D|) Σ_D CE(o, p) + α · (1/|D|) Σ_D CE(o·r, p·r̂).

    p is the click tower, r̂ the prediction, on shared embeddings; α is ``click_conversion_weight``. No
    weights and no loss on O alone: r̂ is what is left of p·r̂, so p keeps its gradient everywhere and is
    never calibrated, which would break p·r̂ (METHODS §5B). Given propensities only weigh the validation
    loss. Use it where D is truly what was shown; it is known to overestimate conversion rates.

    Parameters
    ----------
    click_conversion_weight
        α; 1 in the paper, 2 in public code for Coat.
    """

    name: ClassVar[str] = "esmm"
    paper: ClassVar[str] = "Ma 2018"
    when: ClassVar[str] = "on logged impressions, as the multi-task yardstick without weights"
    detached: ClassVar[tuple[str, ...]] = ()
    sources: ClassVar[tuple[Source, ...]] = ("report-only",)

    click_conversion_weight: float = 1.0

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Click loss and that of clicks that convert."""
        tasks = Tasks.read(setting, observed, full, "prediction")
        return losses.esmm(
            observed.conversion,
            tasks.of("prediction"),
            tasks.of("click"),
            click_conversion_weight=self.click_conversion_weight,
            **tasks.space,
        )
