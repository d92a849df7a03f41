"""StableDR: SNIPS with propensities that are tilted until imputed errors are balanced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from unskew.backbones import Intercept
from unskew.debias.imputation import FORMS
from unskew.debias.method import Debiaser
from unskew.debias.setting import Batch, ClicksAndCells, Plan, Setting, State, require_ratio
from unskew.debias.snips import normalised_loss
from unskew.estimator import require
from unskew.registry import register
from unskew.training import Pass, Step, halves, over_population, stratified

CERTAIN = 1e-6
"""A propensity of 1 is taken for 1 minus this, so that it has a logit that can be shifted."""


class Centre(State):
    """What stands for Ē in the tilt."""

    imputed: Tensor
    """``[R, 1]``."""


@register(order=170)
@dataclass(kw_only=True)
class StableDR(Debiaser):
    """L = Σ_B e/p / Σ_B 1/p, where p keeps the constraint Σ_O (ê − Ē)/p = 0 and Ē = mean_D ê.

    Under the constraint the doubly robust estimate Ē + Σ_O (e − ê)/p ÷ Σ_O 1/p is this one: bounded by the
    largest error whatever the weights, and right if either p or ê is. logit p = logit p̃ + s + t·(ê − Ē): the
    given propensities p̃ (any) with a shift s and a tilt t per repetition. On each batch

    - the imputer learns (1/|D|) Σ_O (e − ê)²/p, with ê = CE(r̃, r̂) (P1);
    - t learns (1/|D|) Σ_D CE(o, p) + η·((1/|D|) Σ_O (ê − Ē)/p)², s the first term alone; the square is the
      product of two half-batches, so that noise is not taken for imbalance;
    - the prediction learns L.

    p has no gradient in the first and third, ê none in the second. Use it where small propensities make
    DR unstable; one tilt cannot repair propensities that rank pairs wrongly beyond ê.

    Parameters
    ----------
    constraint
        η. 100 (Coat) to 1,000 (Yahoo) in the published code, which sums where this takes means.
    shift_learning_rate
        Of s and t; 0.01 in the published code on Coat, for its one parameter.
    ratio
        Cells of D per click in a batch; 3 to 5 in the published code.
    """

    name: ClassVar[str] = "stable-dr"
    paper: ClassVar[str] = "Li 2023"
    when: ClassVar[str] = "where small propensities make doubly robust training unstable"
    needs_propensity: ClassVar[bool] = True
    needs_propensity_everywhere: ClassVar[bool] = True
    needs_full_space: ClassVar[bool] = True
    imputation: ClassVar[str | None] = "P1"
    detached: ClassVar[tuple[str, ...]] = (
        "propensity in the imputation and prediction steps",
        "prediction in the imputation step",
        "imputation and prediction in the propensity step",
    )

    constraint: float = 100.0
    shift_learning_rate: float = 0.01
    ratio: float = 1.0

    def networks(self) -> dict[str, tuple[str, ...]]:
        """The predictor, the imputer, and the shift and tilt of the propensities."""
        return {"prediction": ("prediction",), "imputation": ("imputation",), "propensity": ("shift", "tilt")}

    def plan(self) -> Plan:
        """On each batch the imputer, shift and tilt, then the prediction."""
        steps = (
            Step("imputation", self.imputation_loss, ("imputation",)),
            Step("propensity", self.propensity_loss, ("propensity",)),
            Step("prediction", self.loss, ("prediction",)),
        )
        return (Pass(ClicksAndCells(self.ratio), steps, self.find_centre),)

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

    def imputation_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """(|O|/|D|) · mean_B (e − ê)²/p."""
        output, logit = setting.logit(observed, "imputation"), setting.predicted(observed)
        deviation = FORMS["P1"].deviation(observed.conversion, output, logit)
        weight = 1.0 / self.tilted(setting, observed).propensity
        return stratified(observed=weight * deviation.square(), density=setting.density)

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Σ_B CE(r, r̂)/p / Σ_B 1/p."""
        return normalised_loss(setting, self.tilted(setting, observed))

    def find_centre(self, setting: Setting) -> None:
        """Σ_O ê/p̃ ÷ Σ_O 1/p̃ for the Ē of the tilt: any constant will do there, s makes up for it."""
        weight = 1.0 / setting.clicks.propensity
        mean = (weight * self.imputed(setting, setting.clicks)).sum(-1, keepdim=True) / weight.sum(
            -1, keepdim=True
        )
        setting.state(Centre).write(imputed=mean)

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
        return (
            torch.logit(batch.propensity, eps=CERTAIN)
            + shift
            + tilt * (imputed - setting.state(Centre).imputed)
        )

    def imputed(self, setting: Setting, batch: Batch) -> Tensor:
        """ê = CE(r̃, r̂) without gradient and dropout."""
        return FORMS["P1"].imputed(setting.predicted(batch, "imputation"), setting.predicted(batch))

    def _check(self) -> None:
        super()._check()
        require_ratio(self.ratio)
        require(
            self.constraint >= 0.0,
            f"constraint must not be negative, not {self.constraint}",
            "give 0 or more",
        )


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
