"""Clicks, conversions and clicks that convert as tasks of one network, in one weighted sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unskew.debias.core.setting import Batch, Setting
from unskew.debias.parts.own_propensity import OwnPropensity
from unskew.debias.parts.tasks import Tasks


@dataclass(kw_only=True)
class MultiTask(OwnPropensity):
    """L = (1/|D|) Σ_D CE(o, p) + λ_c · L_c + λ_g · (1/|D|) Σ_D CE(o·r, p·r̂).

    Methods of this family differ in L_c, the loss of conversions, alone. All towers share embeddings and
    learn in one step; only p, where it is a weight, has no gradient.

    Parameters
    ----------
    conversion_weight
        λ_c.
    click_conversion_weight
        λ_g; 0 leaves the term out.
    """

    towers: ClassVar[tuple[str, ...]] = ("prediction",)
    """Towers beside that of clicks."""

    conversion_weight: float = 1.0
    click_conversion_weight: float = 0.0

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """All towers on shared embeddings."""
        return {"prediction": (*self.towers, "click")}

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """The weighted sum of the tasks."""
        tasks = Tasks.read(setting, observed, full, *self.towers)
        loss = tasks.click_loss() + self.conversion_loss(setting, observed, full, tasks)
        if self.click_conversion_weight:
            loss = loss + self.click_conversion_weight * tasks.click_conversion_loss(observed.conversion)
        return loss

    def conversion_loss(self, setting: Setting, observed: Batch, full: Batch, tasks: Tasks) -> Tensor:
        """λ_c · L_c."""
        raise NotImplementedError
