"""ESCM²-IPS: Multi-IPW held to the rate of clicks that convert, over all of D."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor
from unskew.debias.esmm import MultiTask, esmm
from unskew.debias.ips import ips
from unskew.debias.method import Batch, Setting
from unskew.debias.towers import Tasks
from unskew.training.means import OnBoth, OnRows, PerModel, Space


@register(order=130)
@dataclass(kw_only=True)
class ESCM2IPS(MultiTask):
    """L = (1/|D|) Σ_D CE(o, p) + λ_c · (1/|D|) Σ_O CE(r, r̂)/sg(p) + λ_g · (1/|D|) Σ_D CE(o·r, p·r̂).

    The last term says over the whole space that p·r̂ is the rate of clicks that convert; p has its gradient
    there. λ_c is ``conversion_weight``, λ_g ``click_conversion_weight``: public code has (0.5, 0.5),
    (0.1, 1) and (1, 1). Use it as :class:`MultiIPW`, where clicks that convert are many enough.
    """

    name = "escm2-ips"
    paper = "Wang 2022"
    when = "multi-ipw where clicks that convert are many enough to be a task"

    conversion_weight: float = 1.0
    click_conversion_weight: float = 1.0

    def tasks_loss(self, setting: Setting, observed: Batch, full: Batch, tasks: Tasks) -> Tensor:
        """Return L."""
        return escm2_ips(
            observed.conversion,
            tasks.of("prediction"),
            self.propensity_of(setting, observed),
            tasks.of("click"),
            conversion_weight=self.conversion_weight,
            click_conversion_weight=self.click_conversion_weight,
            **tasks.space,
        )


def escm2_ips(
    conversion: OnRows,
    logit: OnBoth,
    propensity: OnRows,
    click_logit: OnBoth,
    *,
    conversion_weight: float = 1.0,
    click_conversion_weight: float = 1.0,
    **space: Any,
) -> PerModel:
    """L = (1/|D|) Σ_D CE(o, p) + λ_c · (1/|D|) Σ_O CE(r, r̂)/sg(p) + λ_g · (1/|D|) Σ_D CE(o·r, p·r̂).

    Parameters
    ----------
    conversion, logit, click_logit
        As in :func:`click_conversion_loss`.
    propensity
        The p that is a weight, as in :func:`ips`: calibrated, clipped; or σ(click_logit), clipped. It is read
        without gradient.
    conversion_weight, click_conversion_weight
        λ_c and λ_g.
    space
        As in :func:`click_loss`.

    Examples
    --------
    >>> import torch
    >>> zero, click = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> escm2_ips(torch.tensor([1.0, 0.0]), zero, torch.tensor([0.5, 0.5]), zero, click=click)
    tensor(2.2233)
    """
    tasks = esmm(conversion, logit, click_logit, click_conversion_weight=click_conversion_weight, **space)
    at_clicks = Space(**space).both(logit)[0]
    return tasks + conversion_weight * ips(conversion, at_clicks, propensity, **space)
