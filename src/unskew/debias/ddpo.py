"""DDPO: soft labels for pairs that were not clicked, and inverse propensities on both sides of the click."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from unskew.base.registry import register
from unskew.debias.esmm import MultiTask, esmm
from unskew.debias.setting import Batch, Setting
from unskew.debias.tasks import only_clicks
from unskew.debias.towers import Tasks
from unskew.training.means import OnBoth, Space, cross_entropy, weighted_mean

if TYPE_CHECKING:
    from jaxtyping import Float

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
        conversions = ddpo_conversion(
            clicks,
            tasks.of("prediction"),
            (self.tower.propensity(setting, observed), self.tower.propensity(setting, full)),
            soft_label,
            soften_clicks=self.soften_clicks,
            **tasks.space,
        )
        learned = ddpo_soft_label(clicks, soft_label[0], density=tasks.density)
        return self.conversion_weight * conversions + self.soft_label_weight * learned


def ddpo(
    conversion: Float[Tensor, "*#batches #B"],
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
) -> Tensor:
    """L = mean_D CE(o, p) + λ_c · mean_D [o·CE(r, c)] + λ_g · mean_D CE(o·r, p·r̂) + λ_r · (L_click + L_non).

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
        As in :func:`ddpo_conversion`, which is L_click + L_non.

    Examples
    --------
    >>> import torch
    >>> zero, click = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> ddpo(torch.tensor([1.0, 0.0]), zero, torch.tensor([0.5, 0.5]), zero, zero, click=click)
    tensor(3.2630)
    """
    tasks = esmm(conversion, logit, click_logit, click_conversion_weight=click_conversion_weight, **space)
    conversions = ddpo_conversion(
        conversion, logit, propensity, soft_label, soften_clicks=soften_clicks, **space
    )
    learned = ddpo_soft_label(conversion, Space(space.get("click")).both(soft_label)[0], **only_clicks(space))
    return tasks + conversion_weight * conversions + soft_label_weight * learned


def ddpo_conversion(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: OnBoth,
    soft_label: OnBoth,
    *,
    click: Tensor | None = None,
    density: float | None = None,
    unclicked: Tensor | None = None,
    soften_clicks: bool = True,
) -> Tensor:
    """L_click + L_non of :func:`ddpo`, whose parameters these are.

    L_click = Σ_O CE(min(r + sg(c), 1), r̂)/p ÷ Σ_O 1/p,
    L_non = Σ_{D∖O} CE(sg(c), r̂)/(1 − p) ÷ Σ_{D∖O} 1/(1 − p).

    Parameters
    ----------
    soften_clicks
        False takes r itself as the label of a click, which does not make rates too high.
    """
    space = Space(click, density, unclicked)
    conversion = space.known(conversion)
    (at_clicks, at_cells), (p, p_cells) = space.both(logit), space.both(propensity)
    soft, soft_cells = (torch.sigmoid(each).detach() for each in space.both(soft_label))
    label = (conversion + soft).clamp(max=1.0) if soften_clicks else conversion
    clicks = space.normalised(cross_entropy(label, at_clicks), 1.0 / p.detach())
    is_unclicked = unclicked if click is None else (click <= 0).to(p.dtype)
    assert is_unclicked is not None
    others = weighted_mean(
        cross_entropy(soft_cells, at_cells),
        is_unclicked / (1.0 - p_cells.detach()).clamp(min=LEAST_UNCLICKED),
        least=LEAST_UNCLICKED,
    )
    return clicks + others


def ddpo_soft_label(
    conversion: Float[Tensor, "*#batches #B"],
    soft_label: Float[Tensor, "*#batches #B"],
    *,
    click: Tensor | None = None,
    density: float | None = None,
) -> Float[Tensor, " *batches"]:
    """L = (1/|D|) Σ_O CE(r, c): how the third tower of :func:`ddpo` learns, from clicks."""
    space = Space(click, density)
    return space.over_clicks(cross_entropy(space.known(conversion), soft_label))
