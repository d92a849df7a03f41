"""DCMT: a factual and a counterfactual conversion tower that must sum to one, over all of D."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.ddpo import LEAST_UNCLICKED
from unskew.debias.esmm import MultiTask, esmm
from unskew.debias.method import Batch, Setting, within
from unskew.debias.towers import Tasks
from unskew.training.means import OnBoth, OnRows, PerModel, Space, cross_entropy


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

    name = "dcmt"
    paper = "Zhu 2023"
    when = "on logged impressions, where not clicking speaks against a conversion"
    needs_propensity_everywhere = True
    towers = ("prediction", "counterfactual")
    ranges = within(sum_weight="[0, inf)")

    conversion_weight: float = 1.0
    click_conversion_weight: float = 1.0
    sum_weight: float = 0.01

    def tasks_loss(self, setting: Setting, observed: Batch, full: Batch, tasks: Tasks) -> Tensor:
        """Return L."""
        return dcmt(
            observed.conversion,
            tasks.of("prediction"),
            (self.propensity_of(setting, observed), self.propensity_of(setting, full)),
            tasks.of("counterfactual"),
            tasks.of("click"),
            conversion_weight=self.conversion_weight,
            click_conversion_weight=self.click_conversion_weight,
            sum_weight=self.sum_weight,
            p_min=setting.floor,
            **tasks.space,
        )


def dcmt(
    conversion: OnRows,
    logit: OnBoth,
    propensity: OnBoth,
    counterfactual: OnBoth,
    click_logit: OnBoth,
    *,
    conversion_weight: float = 1.0,
    click_conversion_weight: float = 1.0,
    sum_weight: float = 0.01,
    p_min: float | Tensor = LEAST_UNCLICKED,
    **space: Any,
) -> PerModel:
    """L = mean_D CE(o, p) + λ_c · L_cvr + λ_g · mean_D CE(o·r, p·r̂).

    L_cvr = (1/|D|) [Σ_O CE(r, r̂)/p + Σ_{D∖O} CE(1, r̂*)/(1 − p)] + λ · mean_D |1 − (r̂ + r̂*)|, p and 1 − p
    without gradient.

    Parameters
    ----------
    conversion, logit, click_logit, space
        As in :func:`escm2_ips`.
    propensity
        The p of weights, on all rows.
    counterfactual
        Logit of r̂* ``[..., B]``; or a pair.
    conversion_weight, click_conversion_weight, sum_weight
        λ_c, λ_g and λ.
    p_min
        What 1 − p is clipped at.

    Examples
    --------
    >>> import torch
    >>> zero, click = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> dcmt(torch.tensor([1.0, 0.0]), zero, torch.tensor([0.5, 0.5]), zero, zero, click=click)
    tensor(2.9164)
    """
    tasks = esmm(conversion, logit, click_logit, click_conversion_weight=click_conversion_weight, **space)
    whole = Space(**space)
    (factual, factual_cells), (other, other_cells) = whole.both(logit), whole.both(counterfactual)
    p, p_cells = (each.detach() for each in whole.both(propensity))
    errors = whole.over_cells(
        clicked=cross_entropy(whole.known(conversion), factual) / whole.known(p),
        unclicked=-torch.nn.functional.logsigmoid(other_cells) / (1.0 - p_cells).clamp(min=p_min),
    )
    off = whole.over_cells(clicked=_off_one(factual, other), unclicked=_off_one(factual_cells, other_cells))
    return tasks + conversion_weight * (errors + sum_weight * off)


def _off_one(logit: Tensor, other: Tensor) -> Tensor:
    """|1 − (r̂ + r̂*)| = |σ(−a) − σ(a*)|."""
    return (torch.sigmoid(-logit) - torch.sigmoid(other)).abs()
