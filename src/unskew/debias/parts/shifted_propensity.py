"""Given propensities with one learned shift of their logits, and how far they are out of balance."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import softplus

from unskew.backbones import Intercept
from unskew.debias.core.setting import Batch, Setting
from unskew.debias.parts.full_space import FullSpace
from unskew.debias.parts.imputation import FORMS
from unskew.training import over_population, stratified

CERTAIN = 1e-6
"""A propensity of 1 is taken for 1 minus this, so that it has a logit that can be shifted."""


@dataclass(kw_only=True)
class ShiftedPropensity(FullSpace):
    """logit p = logit p̃ + s: the given propensities p̃ (any) with one shift s per repetition.

    s learns (1/|D|) Σ_D CE(o, p) + η·((1/|D|) Σ_O (ê − Ē)/p)² with Ē = mean_D ê, without gradient in ê.

    Parameters
    ----------
    constraint
        η; published values are with :class:`StableDR`.
    shift_learning_rate
        Of s.
    """

    constraint: float = 100.0
    shift_learning_rate: float = 0.01

    def backbones(self) -> dict[str, Intercept]:
        """The shift is one number."""
        return {"propensity": Intercept()}

    def learning_rates(self) -> dict[str, float]:
        """The shift has its own."""
        return {"propensity": self.shift_learning_rate}

    def weight_decays(self) -> dict[str, float]:
        """The shift does not decay."""
        return {"propensity": 0.0}

    def propensity_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_D CE(o, p) + η·(what is out of balance)²."""
        at_observed, at_full = (self.shifted_logit(setting, batch) for batch in (observed, full))
        likelihood = over_population(
            clicked=softplus(-at_observed),
            unclicked_observed=softplus(at_observed),
            unclicked_full=softplus(at_full),
            density=setting.density,
        )
        return likelihood + self.constraint * self.imbalance(setting, observed, full).square()

    def imbalance(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """(|O|/|D|) · mean_{B_O} (ê − mean_{B_D} ê)/p ``[R]``; its gradient is that of p."""
        imputed, everywhere = (
            FORMS["P1"].imputed(setting.predicted(batch, "imputation"), setting.predicted(batch))
            for batch in (observed, full)
        )
        centred = imputed - everywhere.mean(-1, keepdim=True)
        return stratified(observed=centred / self.propensity(setting, observed), density=setting.density)

    def shifted(self, setting: Setting, batch: Batch) -> Batch:
        """The batch with shifted propensities, without gradient."""
        return replace(batch, propensity=self.propensity(setting, batch).detach())

    def propensity(self, setting: Setting, batch: Batch) -> Tensor:
        """p, clipped again after the shift."""
        return torch.sigmoid(self.shifted_logit(setting, batch)).clamp_min(self.p_min)

    def shifted_logit(self, setting: Setting, batch: Batch) -> Tensor:
        """logit p̃ + s."""
        return torch.logit(batch.propensity, eps=CERTAIN) + setting.logit(batch, "shift")
