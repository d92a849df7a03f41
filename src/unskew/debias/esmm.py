"""ESMM: clicks and clicks that convert as two tasks over all of D, the conversion rate between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.ips import Errors
from unskew.debias.method import Batch, Setting
from unskew.debias.towers import Tasks, WithTower, click_loss
from unskew.training.means import OnBoth, OnRows, PerModel, Space


@dataclass(kw_only=True)
class MultiTask(WithTower):
    """L = (1/|D|) Σ_D CE(o, p) + L_c + λ_g · (1/|D|) Σ_D CE(o·r, p·r̂).

    Clicks, conversions and clicks that convert are tasks of one network; methods of this family differ in
    L_c, the loss of conversions. All towers share embeddings and learn in one step; only p, where it is a
    weight, has no gradient.

    Parameters
    ----------
    click_conversion_weight
        λ_g; 0 leaves the term out.
    """

    needs_full_space = True
    towers: ClassVar[tuple[str, ...]] = ("prediction",)
    """Towers beside that of clicks."""

    click_conversion_weight: float = 0.0

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Return one network: all towers on shared embeddings."""
        return {"prediction": (*self.towers, "click")}

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Return the weighted sum of the tasks."""
        tasks = Tasks.read(setting, observed, full, *self.towers)
        return self.tasks_loss(setting, observed, full, tasks)

    def tasks_loss(self, setting: Setting, observed: Batch, full: Batch, tasks: Tasks) -> Tensor:
        """Return the weighted sum of the tasks from their logits."""
        raise NotImplementedError


@register(order=120)
@dataclass(kw_only=True)
class ESMM(MultiTask):
    """L = (1/|D|) Σ_D CE(o, p) + α · (1/|D|) Σ_D CE(o·r, p·r̂).

    p is the click tower, r̂ the prediction, on shared embeddings; α is ``click_conversion_weight``. No
    weights and no loss on O alone: r̂ is what is left of p·r̂, so p keeps its gradient everywhere and is
    never calibrated, which would break p·r̂ (METHODS §5B). Given propensities only weigh the validation
    loss. Use it where D is truly what was shown; it is known to overestimate conversion rates.

    Parameters
    ----------
    click_conversion_weight
        α; 1 in the paper, 2 in public code for Coat.
    """

    name = "esmm"
    paper = "Ma 2018"
    when = "on logged impressions, as the multi-task yardstick without weights"
    sources = ("report-only",)

    click_conversion_weight: float = 1.0

    def tasks_loss(self, setting: Setting, observed: Batch, full: Batch, tasks: Tasks) -> Tensor:
        """Return L."""
        return esmm(
            observed.conversion,
            tasks.of("prediction"),
            tasks.of("click"),
            click_conversion_weight=self.click_conversion_weight,
            **tasks.space,
        )


def esmm(
    conversion: OnRows,
    logit: OnBoth,
    click_logit: OnBoth,
    *,
    click_conversion_weight: float = 1.0,
    **space: Any,
) -> PerModel:
    """L = (1/|D|) Σ_D CE(o, p) + α · (1/|D|) Σ_D CE(o·r, p·r̂).

    Parameters
    ----------
    conversion, logit, click_logit
        As in :func:`click_conversion_loss`.
    click_conversion_weight
        α.
    space
        As in :func:`click_loss`.

    Examples
    --------
    >>> import torch
    >>> zero, click = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> esmm(torch.tensor([1.0, 0.0]), zero, zero, click=click)
    tensor(1.5301)
    """
    loss = click_loss(click_logit, **space)
    if click_conversion_weight:
        both = click_conversion_loss(conversion, logit, click_logit, **space)
        loss = loss + click_conversion_weight * both
    return loss


def click_conversion_loss(
    conversion: OnRows, logit: OnBoth, click_logit: OnBoth, *, errors: Errors = "ce", **space: Any
) -> PerModel:
    """L = (1/|D|) Σ_D CE(o·r, p·r̂), the CTCVR loss; or mean_D (o·r − p·r̂)².

    Parameters
    ----------
    conversion
        r of clicks; or of rows of D, with ``click``.
    logit, click_logit
        Logits of r̂ and p ``[..., B]``; or pairs.
    space
        As in :func:`click_loss`.

    Examples
    --------
    >>> import torch
    >>> zero = torch.zeros(2)  # p·r̂ = 1/4
    >>> click_conversion_loss(torch.tensor([1.0, 0.0]), zero, zero, click=torch.tensor([1.0, 0.0]))
    tensor(0.8370)
    """
    whole, logsigmoid = Space(**space), torch.nn.functional.logsigmoid
    conversion = whole.known(conversion)
    (at_clicks, at_cells), (p_clicks, p_cells) = whole.both(logit), whole.both(click_logit)
    if errors == "squared":
        both, both_cells = (
            torch.sigmoid(p) * torch.sigmoid(r) for p, r in ((p_clicks, at_clicks), (p_cells, at_cells))
        )
        return whole.over_cells(clicked=(both - conversion).square(), unclicked=both_cells.square())
    both = logsigmoid(p_clicks) + logsigmoid(at_clicks)
    return whole.over_cells(
        clicked=-(conversion * both + (1.0 - conversion) * log_not_both(at_clicks, p_clicks)),
        unclicked=-log_not_both(at_cells, p_cells),
    )


def log_not_both(logit: Tensor, click_logit: Tensor) -> Tensor:
    """log(1 − p·r̂) = log[(1 − p) + p·(1 − r̂)], finite for all logits, also where p·r̂ rounds to 1."""
    logsigmoid = torch.nn.functional.logsigmoid
    return torch.logaddexp(logsigmoid(-click_logit), logsigmoid(click_logit) + logsigmoid(-logit))
