"""DDPO: soft labels for pairs that were not clicked, and inverse propensities on both sides of the click."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.esmm import MultiTask, esmm
from unskew.debias.method import Batch, Setting
from unskew.debias.towers import Tasks
from unskew.training.means import OnBoth, OnRows, PerModel, Space, cross_entropy, weighted_mean

LEAST_UNCLICKED = 1e-6
"""Least 1 − p in a weight, as DDPO has it published."""


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

    name = "ddpo"
    paper = "Su 2024"
    when = "to rank, where pairs that were not clicked should train the conversion tower too"
    needs_propensity_everywhere = True
    predicts_rates = False
    towers = ("prediction", "soft_label")

    conversion_weight: float = 1.0
    click_conversion_weight: float = 1.0
    soft_label_weight: float = 1.0
    soften_clicks: bool = True

    def tasks_loss(self, setting: Setting, observed: Batch, full: Batch, tasks: Tasks) -> Tensor:
        """Return L."""
        return ddpo(
            observed.conversion,
            tasks.of("prediction"),
            (self.propensity_of(setting, observed), self.propensity_of(setting, full)),
            tasks.of("soft_label"),
            tasks.of("click"),
            conversion_weight=self.conversion_weight,
            click_conversion_weight=self.click_conversion_weight,
            soft_label_weight=self.soft_label_weight,
            soften_clicks=self.soften_clicks,
            **tasks.space,
        )


def ddpo(
    conversion: OnRows,
    logit: OnBoth,
    propensity: OnBoth,
    soft_label: OnBoth,
    click_logit: OnBoth,
    *,
    conversion_weight: float = 1.0,
    click_conversion_weight: float = 1.0,
    soft_label_weight: float = 1.0,
    soften_clicks: bool = True,
    **space: Any,
) -> PerModel:
    """L = mean_D CE(o, p) + λ_c · mean_D [o·CE(r, c)] + λ_g · mean_D CE(o·r, p·r̂) + λ_r · (L_click + L_non).

    L_click = Σ_O CE(min(r + sg(c), 1), r̂)/p ÷ Σ_O 1/p,
    L_non = Σ_{D∖O} CE(sg(c), r̂)/(1 − p) ÷ Σ_{D∖O} 1/(1 − p).

    Parameters
    ----------
    conversion, logit, click_logit, space
        As in :func:`escm2_ips`.
    propensity
        The p of weights, on all rows.
    soft_label
        Logit of c ``[..., B]``; or a pair.
    conversion_weight, click_conversion_weight, soft_label_weight
        λ_r, λ_g and λ_c.
    soften_clicks
        False takes r itself as the label of a click, which does not make rates too high.

    Examples
    --------
    >>> import torch
    >>> zero, click = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> ddpo(torch.tensor([1.0, 0.0]), zero, torch.tensor([0.5, 0.5]), zero, zero, click=click)
    tensor(3.2630)
    """
    tasks = esmm(conversion, logit, click_logit, click_conversion_weight=click_conversion_weight, **space)
    whole = Space(**space)
    conversion = whole.known(conversion)
    (at_clicks, at_cells), (p, p_cells) = whole.both(logit), whole.both(propensity)
    soft_logit, soft_cells = whole.both(soft_label)
    soft = torch.sigmoid(soft_logit).detach()
    label = (conversion + soft).clamp(max=1.0) if soften_clicks else conversion
    clicks = whole.normalised(cross_entropy(label, at_clicks), 1.0 / p.detach())
    unclicked = whole.unclicked if whole.click is None else (whole.click <= 0).to(p.dtype)
    assert unclicked is not None
    others = weighted_mean(
        cross_entropy(torch.sigmoid(soft_cells).detach(), at_cells),
        unclicked / (1.0 - p_cells.detach()).clamp(min=LEAST_UNCLICKED),
        least=LEAST_UNCLICKED,
    )
    learned = whole.over_clicks(cross_entropy(conversion, soft_logit))
    return tasks + (conversion_weight * (clicks + others) + soft_label_weight * learned)
