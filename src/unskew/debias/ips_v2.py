"""IPS-V2: IPS with a propensity that also balances: clicked and unclicked must weigh the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.esmm import click_conversion_loss
from unskew.debias.ips import ips
from unskew.debias.method import Batch, Setting
from unskew.debias.towers import Tasks, WithTower, click_loss
from unskew.training.means import OnBoth, OnRows, PerModel, Space, halves


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
    """

    name = "ips-v2"
    paper = "Li 2023"
    when = "IPS where propensities should balance clicked and unclicked pairs"
    needs_full_space = True

    click_conversion_weight: float = 1.0
    conversion_weight: float = 1.0
    balance_weight: float = 0.01

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Return a network each for the prediction and the click."""
        return {"prediction": ("prediction",), "click": ("click",)}

    def tasks(self, setting: Setting, observed: Batch, full: Batch) -> Tasks:
        """Return the logits of all networks."""
        return Tasks.read(setting, observed, full, *(name for name in self.networks() if name != "click"))

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Return L."""
        tasks = self.tasks(setting, observed, full)
        return ips_v2(
            observed.conversion,
            tasks.of("prediction"),
            self.propensity_of(setting, observed),
            tasks.of("click"),
            click_conversion_weight=self.click_conversion_weight,
            conversion_weight=self.conversion_weight,
            balance_weight=self.balance_weight,
            p_min=setting.floor,
            **tasks.space,
        )

    def weight_decays(self) -> Mapping[str, float]:
        """Decay the prediction alone: squared errors of rare clicks hardly have a gradient against it."""
        return {name: 0.0 for name in self.networks() if name != "prediction"}


def ips_v2(
    conversion: OnRows,
    logit: OnBoth,
    propensity: OnRows,
    click_logit: OnBoth,
    *,
    click_conversion_weight: float = 1.0,
    conversion_weight: float = 1.0,
    balance_weight: float = 0.01,
    p_min: float | Tensor = 0.0,
    **space: Any,
) -> PerModel:
    """L = mean_D (p − o)² + α · mean_D (p·r̂ − o·r)² + β · (1/|D|) Σ_O (r − r̂)²/p + γ · (imbalance)².

    Parameters
    ----------
    conversion, logit, propensity, click_logit, space
        As in :func:`escm2_ips`.
    click_conversion_weight, conversion_weight, balance_weight
        α, β and γ.
    p_min
        What p and 1 − p are clipped at in the imbalance (:func:`squared_imbalance`).

    Examples
    --------
    >>> import torch
    >>> zero, click = torch.zeros(4), torch.tensor([1.0, 0.0, 1.0, 0.0])
    >>> ips_v2(click, zero, torch.full((4,), 0.5), zero, click=click)
    tensor(0.8125)
    """
    at_clicks = Space(**space).both(logit)[0]
    both = click_conversion_loss(conversion, logit, click_logit, errors="squared", **space)
    conversions = ips(conversion, at_clicks, propensity, errors="squared", **space)
    return (
        click_loss(click_logit, errors="squared", **space)
        + click_conversion_weight * both
        + conversion_weight * conversions
        + balance_weight * squared_imbalance(logit, click_logit, p_min=p_min, **space)
    )


def imbalance(logit: OnBoth, click_logit: OnBoth, *, p_min: float | Tensor = 0.0, **space: Any) -> PerModel:
    """mean_D [(o/p − (1 − o)/(1 − p)) · r̂], which is 0 for true propensities.

    Examples
    --------
    >>> import torch
    >>> zero = torch.zeros(2)
    >>> imbalance(zero, zero, click=torch.tensor([1.0, 0.0]))
    tensor(0.)
    """
    whole = Space(**space)
    clicked, others = (torch.sigmoid(each) for each in whole.both(logit))
    at_clicks, at_cells = whole.both(click_logit)
    p, not_p = torch.sigmoid(at_clicks).clamp(min=p_min), torch.sigmoid(-at_cells).clamp(min=p_min)
    return whole.over_cells(clicked=clicked / p, unclicked=-others / not_p)


def squared_imbalance(
    logit: OnBoth, click_logit: OnBoth, *, p_min: float | Tensor = 0.0, **space: Any
) -> PerModel:
    """Return the square of :func:`imbalance`, as the product of two half-batches.

    A batch's own square counts its noise.
    """
    first, second = (
        imbalance(_half(logit, part), _half(click_logit, part), p_min=p_min, **vars(half))
        for part, half in enumerate(Space(**space).halves())
    )
    return first * second


def _half(values: OnBoth, number: int) -> OnBoth:
    if isinstance(values, tuple):
        return halves(values[0])[number], halves(values[1])[number]
    return halves(values)[number]
