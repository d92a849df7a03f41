"""StableDR: SNIPS with propensities that are shifted until imputed errors are balanced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from unskew.backbones import Intercept
from unskew.debias.imputation import FORMS
from unskew.debias.plans import PassPlan, StepPlan
from unskew.debias.setting import Batch, Setting
from unskew.debias.snips import SNIPS
from unskew.estimator import require
from unskew.training import over_population, stratified

CERTAIN = 1e-6
"""A propensity of 1 is taken for 1 minus this, so that it has a logit that can be shifted."""


@dataclass(kw_only=True)
class StableDR(SNIPS):
    """L = Σ_B e/p / Σ_B 1/p, where p keeps the constraint Σ_O (ê − Ē)/p = 0 and Ē = mean_D ê.

    Under the constraint the doubly robust estimate Ē + Σ_O (e − ê)/p ÷ Σ_O 1/p is this one: bounded by the
    largest error whatever the weights, and right if either p or ê is. logit p = logit p̃ + s: the given
    propensities p̃ (any) with one shift s per repetition. On each batch

    - the imputer learns (1/|D|) Σ_O (e − ê)²/p, with ê = CE(r̃, r̂) (P1);
    - s learns (1/|D|) Σ_D CE(o, p) + η·((1/|D|) Σ_O (ê − Ē)/p)²;
    - the prediction learns L.

    p has no gradient in the first and third, ê none in the second. Use it where small propensities make
    DR unstable; one shift cannot repair propensities that rank pairs wrongly.

    Parameters
    ----------
    constraint
        η. 100 (Coat) to 1,000 (Yahoo) in the published code, which sums where this takes means.
    shift_learning_rate
        Of s; 0.01 in the published code on Coat.
    ratio
        Cells of D per click in a batch; 3 to 5 in the published code.
    """

    name: ClassVar[str] = "stable-dr"
    paper: ClassVar[str] = "Li 2023"
    when: ClassVar[str] = "where small propensities make doubly robust training unstable"
    needs_full_space: ClassVar[bool] = True
    needs_propensity_everywhere: ClassVar[bool] = True
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
        """The predictor, the imputer, and the shift of the propensities."""
        return {"prediction": ("prediction",), "imputation": ("imputation",), "propensity": ("shift",)}

    def backbones(self) -> dict[str, Intercept]:
        """The shift is one number."""
        return {"propensity": Intercept()}

    def learning_rates(self) -> dict[str, float]:
        """The shift has its own."""
        return {"propensity": self.shift_learning_rate}

    def weight_decays(self) -> dict[str, float]:
        """The shift does not decay."""
        return {"propensity": 0.0}

    def plan(self) -> tuple[PassPlan, ...]:
        """On each batch the imputer, the shift, then the prediction."""
        steps = (
            StepPlan("imputation", self.imputation_loss, ("imputation",)),
            StepPlan("propensity", self.propensity_loss, ("propensity",)),
            StepPlan("prediction", self.loss, ("prediction",)),
        )
        return (PassPlan(steps, "both", self.ratio),)

    def imputation_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """(|O|/|D|) · mean_B (e − ê)²/p."""
        output, logit = setting.logit(observed, "imputation"), setting.predicted(observed)
        deviation = FORMS["P1"].deviation(observed.conversion, output, logit)
        weight = 1.0 / self.shifted(setting, observed).propensity
        return stratified(observed=weight * deviation.square(), density=setting.density)

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

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Σ_B CE(r, r̂)/p / Σ_B 1/p."""
        return super().loss(setting, self.shifted(setting, observed), full)

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

    def _check(self) -> None:
        super()._check()
        require(self.constraint >= 0.0, f"constraint must not be negative, not {self.constraint}")
        require(self.ratio > 0.0, f"ratio must be positive, not {self.ratio}")
