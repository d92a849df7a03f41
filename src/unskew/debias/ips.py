"""IPS: weight each click by the inverse of its propensity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unskew.base.registry import register
from unskew.debias import losses
from unskew.debias.method import Debiaser
from unskew.debias.setting import Batch, Setting


@register(order=20)
@dataclass(kw_only=True)
class IPS(Debiaser):
    """L = (1/|D|) Σ_O CE(r, r̂) / p.

    p is ``propensity``, clipped at ``p_min`` and without gradient. Unbiased for the ideal loss if p is the
    true propensity; its variance grows with 1/p. Use it with calibrated, cross-fitted propensities; where
    weights vary wildly prefer :class:`SNIPS` or a doubly robust method.
    """

    name: ClassVar[str] = "ips"
    paper: ClassVar[str] = "Schnabel 2016"
    when: ClassVar[str] = "with propensities you trust and weights of moderate size"
    needs_propensity: ClassVar[bool] = True
    detached: ClassVar[tuple[str, ...]] = ("propensity",)

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """(|O|/|D|) · mean_B CE(r, r̂) / p."""
        logit = setting.logit(observed)
        return losses.ips(observed.conversion, logit, observed.propensity, density=setting.density)
