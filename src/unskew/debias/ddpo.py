"""DDPO: soft labels for pairs that were not clicked, and inverse propensities on both sides of the click."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unskew.debias.setting import Batch, Setting
from unskew.debias.towers import MultiTask, Tasks
from unskew.registry import register
from unskew.training import cross_entropy, stratified

FLOOR = 1e-6
"""Least 1 − p, as published."""


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
        conversion = observed.conversion
        soft, soft_full = (
            torch.sigmoid(logits["soft_label"]).detach() for logits in (tasks.observed, tasks.full)
        )
        label = (conversion + soft).clamp(max=1.0) if self.soften_clicks else conversion
        clicked = weighted_mean(
            cross_entropy(label, tasks.observed["prediction"]), 1.0 / self.tower.propensity(setting, observed)
        )
        unclicked = weighted_mean(
            cross_entropy(soft_full, tasks.full["prediction"]),
            tasks.unclicked / (1.0 - self.tower.propensity(setting, full)).clamp(min=FLOOR),
        )
        learned = stratified(
            observed=cross_entropy(conversion, tasks.observed["soft_label"]), density=setting.density
        )
        return self.conversion_weight * (clicked + unclicked) + self.soft_label_weight * learned


def weighted_mean(values: Tensor, weight: Tensor) -> Tensor:
    """Σ w·v / Σ w ``[R]``; 0 where all weights are."""
    return (weight * values).sum(-1) / weight.sum(-1).clamp(min=FLOOR)
