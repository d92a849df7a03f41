"""IPS-V2: IPS with a propensity that also balances: clicked and unclicked must weigh the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unskew.base.estimator import require, require_above, require_choice
from unskew.base.registry import register
from unskew.debias import losses
from unskew.debias.setting import Batch, ClicksAndCells, Plan, Setting
from unskew.debias.towers import ClickTower, Tasks, WithTower
from unskew.training import Pass, Step


@register(order=100)
@dataclass(kw_only=True)
class IPSV2(WithTower):
    """L = mean_D (p − o)² + α · mean_D (p·r̂ − o·r)² + β · L_cvr + γ · (mean_D [(o/p − (1−o)/(1−p)) · r̂])².

    L_cvr = (1/|D|) Σ_O e/p with e = (r − r̂)². The last term, the balancing mean squared error, is 0 for true
    propensities. Its square is the product of two half-batches' means, since a batch's own square counts its
    noise too. p has its gradient there and in the first two, not in L_cvr. α is
    ``click_conversion_weight``, β ``conversion_weight``, γ ``balance_weight``; networks share nothing. Use
    it where propensities should be judged by what they balance, not by their likelihood alone.

    Parameters
    ----------
    conversion_weight, balance_weight
        β and γ. Published code: 1 and 0.01 on Coat, 5 and 0.05 on Yahoo! R3; α = 1 on both.
    errors
        ``"squared"`` as published, or ``"ce"`` for cross-entropies in the place of all squares but the last.
    detach_p_in_cvr
        False lets L_cvr move p, which it can only push up; p is then the tower's own, uncalibrated.
    """

    name: ClassVar[str] = "ips-v2"
    paper: ClassVar[str] = "Li 2023"
    when: ClassVar[str] = "IPS where propensities should balance clicked and unclicked pairs"
    needs_full_space: ClassVar[bool] = True
    detached: ClassVar[tuple[str, ...]] = ("propensity in the conversion loss",)

    click_conversion_weight: float = 1.0
    conversion_weight: float = 1.0
    balance_weight: float = 0.01
    errors: Literal["squared", "ce"] = "squared"
    detach_p_in_cvr: bool = True

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """A network each for the prediction and the click."""
        return {"prediction": ("prediction",), "click": ("click",)}

    @property
    def tower(self) -> ClickTower:
        """The click network; its own p, uncalibrated, where that has a gradient."""
        tower = super().tower
        return tower if self.detach_p_in_cvr else replace(tower, calibration="report-only")

    def plan(self) -> Plan:
        """One joint step over O and D for everything."""
        step = Step(self.name, self.loss, tuple(self.networks()))
        return (Pass(ClicksAndCells(self.ratio), (step,), self.tower.recalibrate),)

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """The four terms."""
        towers = [tower for towers in self.networks().values() for tower in towers if tower != "click"]
        tasks = Tasks.read(setting, observed, full, *towers)
        logit, click = tasks.of("prediction"), tasks.of("click")
        both = losses.click_conversion_loss(
            observed.conversion, logit, click, errors=self.errors, **tasks.space
        )
        return (
            losses.click_loss(click, errors=self.errors, **tasks.space)
            + self.click_conversion_weight * both
            + self.conversion_loss(setting, observed, tasks)
            + self.balance_weight * self.squared_imbalance(setting, tasks)
        )

    def conversion_loss(self, setting: Setting, observed: Batch, tasks: Tasks) -> Tensor:
        """β · L_cvr."""
        return self.conversion_weight * losses.ips(
            observed.conversion,
            tasks.observed["prediction"],
            self.weight_propensity(setting, observed, tasks),
            density=tasks.density,
            errors=self.errors,
            detach_propensity=self.detach_p_in_cvr,
        )

    def weight_propensity(self, setting: Setting, observed: Batch, tasks: Tasks) -> Tensor:
        """The p of the conversion loss, with a gradient only if asked for."""
        if self.detach_p_in_cvr:
            return self.tower.propensity(setting, observed)
        return torch.sigmoid(tasks.observed["click"]).clamp(min=self.least(setting))

    def squared_imbalance(self, setting: Setting, tasks: Tasks) -> Tensor:
        """The square of the imbalance, by the product of two half-batches."""
        logits = tasks.of("prediction"), tasks.of("click")
        return losses.squared_imbalance(*logits, p_min=self.least(setting), **tasks.space)

    def least(self, setting: Setting) -> Tensor:
        """What p and 1 − p are clipped at ``[R, 1]``."""
        return setting.floor

    def weight_decays(self) -> Mapping[str, float]:
        """The prediction's alone: squared errors of rare clicks have hardly a gradient to withstand it."""
        return {name: 0.0 for name in self.networks() if name != "prediction"}

    def _check(self) -> None:
        super()._check()
        require_above(0, ratio=self.ratio)
        require_choice("errors", self.errors, ("squared", "ce"))
        require(
            self.detach_p_in_cvr or self.calibration in ("auto", "report-only"),
            f"calibration {self.calibration!r} needs a p without gradient in the conversion loss",
            "use detach_p_in_cvr=True, or calibration='report-only'",
        )
