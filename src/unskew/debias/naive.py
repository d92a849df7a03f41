"""Naive: train on what was clicked as if it were everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unskew.base.registry import register
from unskew.debias import losses
from unskew.debias.method import Debiaser
from unskew.debias.setting import Batch, Setting


@register(order=10)
@dataclass(kw_only=True)
class Naive(Debiaser):
    """L = (1/|O|) Σ_O CE(r, r̂).

    r is ``conversion``, r̂ the prediction. No propensities: biased wherever selection depends on what is
    predicted. It is the yardstick, and the better choice where selection is random.
    """

    name: ClassVar[str] = "naive"
    paper: ClassVar[str] = "—"
    when: ClassVar[str] = "as the yardstick, or where clicks are random"

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_B CE(r, r̂)."""
        return losses.naive(observed.conversion, setting.logit(observed))
