"""DDPO: soft labels for pairs that were not clicked, and inverse propensities on both sides of the click."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unskew.base.registry import register
from unskew.debias import losses
from unskew.debias.setting import Batch, Setting
from unskew.debias.towers import MultiTask, Tasks


@register(order=210)
@dataclass(kw_only=True)
class DDPO(MultiTask):
    """L = mean_D CE(o, p) + λ_c · mean_D [o·CE(r, c)] + λ_g · mean_D CE(o·r, p·r̂) + λ_r · (L_click + L_non).

    c is a third tower, the conversion propensity, learned on clicks and then, without gradient, the label
    where none is known: L_click = Σ_O CE(min(r + sg(c), 1), r̂)/p ÷ Σ_O 1/p and
    L_non = Σ_{D∖O} CE(sg(c), r̂)/(1 − p) ÷ Σ_{D∖O} 1/(1 − p), each over a batch, p without gradient. Towers
    share embeddings. Use it for rankings; the label r + c makes predicted rates too high by design.

    Parameters
    ----------
    conversion_weight, click_conversion_weight, soft_label_weight
        λ_r, λ_g and λ_c; all 1 in published code.
    soften_clicks
        False takes r itself as the label of a click, which does not make rates too high.
    """

    name: ClassVar[str] = "ddpo"
    paper: ClassVar[str] = "Su 2024"
    when: ClassVar[str] = "to rank, where pairs that were not clicked should train the conversion tower too"
    needs_propensity_everywhere: ClassVar[bool] = True
    predicts_rates: ClassVar[bool] = False
    detached: ClassVar[tuple[str, ...]] = ("propensity in weights", "conversion propensity as a label")
    towers: ClassVar[tuple[str, ...]] = ("prediction", "soft_label")

    conversion_weight: float = 1.0
    click_conversion_weight: float = 1.0
    soft_label_weight: float = 1.0
    soften_clicks: bool = True

    def conversion_loss(self, setting: Setting, observed: Batch, full: Batch, tasks: Tasks) -> Tensor:
        """λ_r · (L_click + L_non), and λ_c · mean_D [o·CE(r, c)] for c."""
        clicks, soft_label = observed.conversion, tasks.of("soft_label")
        conversions = losses.ddpo_conversion(
            clicks,
            tasks.of("prediction"),
            (self.tower.propensity(setting, observed), self.tower.propensity(setting, full)),
            soft_label,
            soften_clicks=self.soften_clicks,
            **tasks.space,
        )
        learned = losses.ddpo_soft_label(clicks, soft_label[0], density=tasks.density)
        return self.conversion_weight * conversions + self.soft_label_weight * learned
