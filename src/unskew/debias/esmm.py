"""ESMM: clicks and clicks that convert as two tasks over all of D, the conversion rate between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from unskew.base.estimator import require_above
from unskew.base.registry import register
from unskew.debias.setting import Batch, ClicksAndCells, Plan, Setting
from unskew.debias.tasks import click_conversion_loss, click_loss
from unskew.debias.towers import Source, Tasks, WithTower
from unskew.training import Pass, Step
from unskew.training.means import OnBoth

if TYPE_CHECKING:
    from jaxtyping import Float


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

    needs_full_space: ClassVar[bool] = True
    detached: ClassVar[tuple[str, ...]] = ("propensity in weights",)
    towers: ClassVar[tuple[str, ...]] = ("prediction",)
    """Towers beside that of clicks."""

    click_conversion_weight: float = 0.0

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """All towers on shared embeddings."""
        return {"prediction": (*self.towers, "click")}

    def plan(self) -> Plan:
        """One joint step over O and D for everything."""
        step = Step(self.name, self.loss, tuple(self.networks()))
        return (Pass(ClicksAndCells(self.ratio), (step,), self.tower.recalibrate),)

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """The weighted sum of the tasks."""
        tasks = Tasks.read(setting, observed, full, *self.towers)
        both = esmm(
            observed.conversion,
            tasks.of("prediction"),
            tasks.of("click"),
            click_conversion_weight=self.click_conversion_weight,
            **tasks.space,
        )
        return both + self.conversion_loss(setting, observed, full, tasks)

    def conversion_loss(self, setting: Setting, observed: Batch, full: Batch, tasks: Tasks) -> Tensor | float:
        """Return L_c."""
        return 0.0

    def _check(self) -> None:
        super()._check()
        require_above(0, ratio=self.ratio)


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

    name: ClassVar[str] = "esmm"
    paper: ClassVar[str] = "Ma 2018"
    when: ClassVar[str] = "on logged impressions, as the multi-task yardstick without weights"
    detached: ClassVar[tuple[str, ...]] = ()
    sources: ClassVar[tuple[Source, ...]] = ("report-only",)

    click_conversion_weight: float = 1.0


def esmm(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    click_logit: OnBoth,
    *,
    click_conversion_weight: float = 1.0,
    **space: Any,
) -> Tensor:
    """L = (1/|D|) Σ_D CE(o, p) + α · (1/|D|) Σ_D CE(o·r, p·r̂).

    Parameters
    ----------
    conversion, logit, click_logit
        As in :func:`click_conversion_loss`.
    click_conversion_weight
        α.
    space
        ``click``; or ``density`` and ``unclicked``, with pairs.

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
