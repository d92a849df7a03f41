"""IPS-V2: IPS with a propensity that also balances: clicked and unclicked must weigh the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from unskew.base.estimator import require, require_above, require_choice
from unskew.base.registry import register
from unskew.debias.ips import Errors, ips
from unskew.debias.setting import Batch, ClicksAndCells, Plan, Setting
from unskew.debias.tasks import click_conversion_loss, click_loss, only_clicks
from unskew.debias.towers import ClickTower, Tasks, WithTower
from unskew.training import Pass, Step
from unskew.training.means import OnBoth, Space, halves

if TYPE_CHECKING:
    from jaxtyping import Float


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
        both = click_conversion_loss(observed.conversion, logit, click, errors=self.errors, **tasks.space)
        return (
            click_loss(click, errors=self.errors, **tasks.space)
            + self.click_conversion_weight * both
            + self.conversion_loss(setting, observed, tasks)
            + self.balance_weight * self.squared_imbalance(setting, tasks)
        )

    def conversion_loss(self, setting: Setting, observed: Batch, tasks: Tasks) -> Tensor:
        """β · L_cvr."""
        return self.conversion_weight * ips(
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
        return squared_imbalance(*logits, p_min=self.least(setting), **tasks.space)

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


def ips_v2(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: Float[Tensor, "*#batches #B"],
    click_logit: OnBoth,
    *,
    click_conversion_weight: float = 1.0,
    conversion_weight: float = 1.0,
    balance_weight: float = 0.01,
    errors: Errors = "squared",
    p_min: float | Tensor = 0.0,
    **space: Any,
) -> Tensor:
    """L = mean_D (p − o)² + α · mean_D (p·r̂ − o·r)² + β · (1/|D|) Σ_O e/p + γ · (imbalance)².

    Parameters
    ----------
    conversion, logit, propensity, click_logit, space
        As in :func:`escm2_ips`.
    click_conversion_weight, conversion_weight, balance_weight
        α, β and γ.
    errors
        e = (r − r̂)², or ``"ce"`` for cross-entropies in the place of all squares but the last.
    p_min
        What p and 1 − p are clipped at in the imbalance (:func:`squared_imbalance`).

    Examples
    --------
    >>> import torch
    >>> zero, click = torch.zeros(4), torch.tensor([1.0, 0.0, 1.0, 0.0])
    >>> ips_v2(click, zero, torch.full((4,), 0.5), zero, click=click)
    tensor(0.8125)
    """
    at_clicks = Space(space.get("click")).both(logit)[0]
    conversions = ips(conversion, at_clicks, propensity, errors=errors, **only_clicks(space))
    balance = squared_imbalance(logit, click_logit, p_min=p_min, **space)
    return (
        click_loss(click_logit, errors=errors, **space)
        + click_conversion_weight
        * click_conversion_loss(conversion, logit, click_logit, errors=errors, **space)
        + conversion_weight * conversions
        + balance_weight * balance
    )


def imbalance(
    logit: OnBoth,
    click_logit: OnBoth,
    *,
    click: Tensor | None = None,
    density: float | None = None,
    unclicked: Tensor | None = None,
    p_min: float | Tensor = 0.0,
) -> Tensor:
    """mean_D [(o/p − (1 − o)/(1 − p)) · r̂], which is 0 for true propensities.

    Examples
    --------
    >>> import torch
    >>> zero = torch.zeros(2)
    >>> imbalance(zero, zero, click=torch.tensor([1.0, 0.0]))
    tensor(0.)
    """
    space = Space(click, density, unclicked)
    clicked, others = (torch.sigmoid(each) for each in space.both(logit))
    at_clicks, at_cells = space.both(click_logit)
    p, not_p = torch.sigmoid(at_clicks).clamp(min=p_min), torch.sigmoid(-at_cells).clamp(min=p_min)
    return space.over_cells(clicked=clicked / p, unclicked=-others / not_p)


def squared_imbalance(
    logit: OnBoth, click_logit: OnBoth, *, p_min: float | Tensor = 0.0, **space: Any
) -> Tensor:
    """The square of :func:`imbalance`, as the product of two half-batches: a batch's own counts its noise."""
    parts = []
    for part, half in enumerate(Space(**space).halves()):
        at = [_half(each, part) for each in (logit, click_logit)]
        how = {"click": half.click, "density": half.density, "unclicked": half.unclicked}
        parts.append(imbalance(*at, p_min=p_min, **how))  # type: ignore[arg-type]
    return parts[0] * parts[1]


def _half(values: OnBoth, part: int) -> OnBoth:
    if isinstance(values, tuple):
        return halves(values[0])[part], halves(values[1])[part]
    return halves(values)[part]
