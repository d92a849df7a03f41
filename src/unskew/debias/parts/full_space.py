"""Methods whose losses sum over D: each batch of O comes with a batch of D."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from unskew.debias.core.base import Debiaser
from unskew.debias.core.plans import PassPlan, StepPlan
from unskew.debias.core.setting import Setting
from unskew.estimator import require


@dataclass(kw_only=True)
class FullSpace(Debiaser):
    """L = (1/|D|) Σ_D of something, from batches of O and cells drawn uniformly from D.

    Parameters
    ----------
    ratio
        Cells of D in a batch per row of O. The estimators are exact for any; more cells, less noise.
    """

    needs_full_space: ClassVar[bool] = True

    ratio: float = 1.0

    def full_pass(self, *steps: StepPlan, before: Callable[[Setting], None] | None = None) -> PassPlan:
        """Steps on batches of O, each with ``ratio`` times as many cells of D."""
        return PassPlan(steps, "both", self.ratio, before)

    def _check(self) -> None:
        super()._check()
        require(self.ratio > 0, f"ratio must be positive, not {self.ratio}", "give a number above 0")
