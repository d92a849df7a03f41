"""DCMT: a factual and a counterfactual conversion tower that must sum to one, over all of D."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unskew.base.estimator import require_at_least
from unskew.base.registry import register
from unskew.debias import losses
from unskew.debias.setting import Batch, Setting
from unskew.debias.towers import MultiTask, Tasks


@register(order=250)
@dataclass(kw_only=True)
class DCMT(MultiTask):
    """L = mean_D CE(o, p) + λ_c · L_cvr + λ_g · mean_D CE(o·r, p·r̂).

    L_cvr = (1/|D|) [Σ_O CE(r, r̂)/sg(p) + Σ_{D∖O} CE(1, r̂*)/sg(1 − p)] + λ · mean_D |1 − (r̂ + r̂*)|. The
    counterfactual tower r̂* learns r* = 1 − r on pairs that were not clicked, whose r counts as 0 there; the
    last term carries that to r̂, the prediction. Towers share embeddings. With λ = 0 the prediction learns as
    in :class:`ESCM2IPS`. Use it where an unclicked pair is a sign against a conversion, as on logged
    impressions; not where unclicked pairs were never seen: λ draws their rates to 0.

    Parameters
    ----------
    conversion_weight, click_conversion_weight
        λ_c and λ_g.
    sum_weight
        λ. Where the towers sum to more than 1, as the labels r* = 1 make them, it lowers a rate r̂ by the
        share λ·(1 − r̂): so the default is small.
    """

    name: ClassVar[str] = "dcmt"
    paper: ClassVar[str] = "Zhu 2023"
    when: ClassVar[str] = "on logged impressions, where not clicking speaks against a conversion"
    needs_propensity_everywhere: ClassVar[bool] = True
    towers: ClassVar[tuple[str, ...]] = ("prediction", "counterfactual")

    conversion_weight: float = 1.0
    click_conversion_weight: float = 1.0
    sum_weight: float = 0.01

    def conversion_loss(self, setting: Setting, observed: Batch, full: Batch, tasks: Tasks) -> Tensor:
        """λ_c · L_cvr."""
        return self.conversion_weight * losses.dcmt_conversion(
            observed.conversion,
            tasks.of("prediction"),
            (self.tower.propensity(setting, observed), self.tower.propensity(setting, full)),
            tasks.of("counterfactual"),
            sum_weight=self.sum_weight,
            p_min=setting.floor,
            **tasks.space,
        )

    def _check(self) -> None:
        super()._check()
        require_at_least(0, sum_weight=self.sum_weight)
