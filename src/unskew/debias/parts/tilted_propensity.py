"""Given propensities with a learned shift and tilt of their logits, until imputed errors are in balance."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import softplus

from unskew.backbones import Intercept
from unskew.debias.core.setting import Batch, Setting
from unskew.debias.parts.full_space import FullSpace
from unskew.debias.parts.imputation import FORMS
from unskew.training import halves, over_population, stratified

CERTAIN = 1e-6
"""A propensity of 1 is taken for 1 minus this, so that it has a logit that can be shifted."""

CENTRE = "imputed mean"
"""What stands for Ē in the tilt ``[R, 1]``, among what the setting remembers."""


@dataclass(kw_only=True)
class TiltedPropensity(FullSpace):
    """logit p = logit p̃ + s + t·(ê − Ē): the given propensities p̃ (any), shifted and tilted.

    s and t are two numbers per repetition. t learns (1/|D|) Σ_D CE(o, p) + η·C² with
    C = (1/|D|) Σ_O (ê − Ē)/p and Ē = mean_D ê, without gradient in ê; s learns the first term alone, because
    it is a common factor of small propensities and could lower C² only by making every weight small. C² is
    estimated by the product of two half-batches' C: the square of a batch's C counts its noise, which larger
    p makes smaller.

    Parameters
    ----------
    constraint
        η; published values are with :class:`StableDR`.
    shift_learning_rate
        Of s and t.
    """

    constraint: float = 100.0
    shift_learning_rate: float = 0.01

    def backbones(self) -> dict[str, Intercept]:
        """Shift and tilt are one number each."""
        return {"propensity": Intercept()}

    def learning_rates(self) -> dict[str, float]:
        """Shift and tilt have their own."""
        return {"propensity": self.shift_learning_rate}

    def weight_decays(self) -> dict[str, float]:
        """Shift and tilt do not decay, nor by default the imputer, whose squared loss is flat."""
        imputer = {"imputation": 0.0} if self.weight_decay == "auto" else {}
        return {"propensity": 0.0, **imputer}

    def find_centre(self, setting: Setting) -> None:
        """Σ_O ê/p̃ ÷ Σ_O 1/p̃ for the Ē of the tilt: any constant will do there, s makes up for it."""
        weight = 1.0 / setting.clicks.propensity
        mean = (weight * self.imputed(setting, setting.clicks)).sum(-1, keepdim=True) / weight.sum(
            -1, keepdim=True
        )
        setting.remember(CENTRE, mean)

    def propensity_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_D CE(o, p) + η·C², the square by halves and without gradient in s."""
        imputed, everywhere = (self.imputed(setting, batch) for batch in (observed, full))
        at_observed = self.tilted_logit(setting, observed, imputed)
        at_full = self.tilted_logit(setting, full, everywhere)
        p = _clipped(setting, self.tilted_logit(setting, observed, imputed, shift_learns=False))
        likelihood = over_population(
            clicked=softplus(-at_observed),
            unclicked_observed=softplus(at_observed),
            unclicked_full=softplus(at_full),
            density=setting.density,
        )
        first, second = (
            imbalance(*parts, density=setting.density)
            for parts in zip(*map(halves, (imputed, everywhere, p)), strict=True)
        )
        return likelihood + self.constraint * first * second

    def tilted(self, setting: Setting, batch: Batch) -> Batch:
        """The batch with tilted propensities, clipped again, without gradient."""
        logit = self.tilted_logit(setting, batch, self.imputed(setting, batch))
        return replace(batch, propensity=_clipped(setting, logit).detach())

    def tilted_logit(
        self, setting: Setting, batch: Batch, imputed: Tensor, *, shift_learns: bool = True
    ) -> Tensor:
        """logit p̃ + s + t·(ê − Ē)."""
        shift, tilt = setting.logits(batch, "shift", "tilt")
        if not shift_learns:
            shift = shift.detach()
        return torch.logit(batch.propensity, eps=CERTAIN) + shift + tilt * (imputed - setting.state[CENTRE])

    def imputed(self, setting: Setting, batch: Batch) -> Tensor:
        """ê = CE(r̃, r̂) without gradient and dropout."""
        return FORMS["P1"].imputed(setting.predicted(batch, "imputation"), setting.predicted(batch))


def _clipped(setting: Setting, logit: Tensor) -> Tensor:
    return torch.sigmoid(logit).clamp_min(setting.floor)


def imbalance(imputed: Tensor, everywhere: Tensor, propensity: Tensor, *, density: float) -> Tensor:
    """C = (|O|/|D|) · mean_{B_O} (ê − mean_{B_D} ê)/p ``[R]``.

    Parameters
    ----------
    imputed, everywhere
        ê on the batch of O and on the batch of D.
    propensity
        p on the batch of O.
    """
    centred = imputed - everywhere.mean(-1, keepdim=True)
    return stratified(observed=centred / propensity, density=density)
