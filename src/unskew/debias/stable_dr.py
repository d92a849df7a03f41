"""StableDR: SNIPS with propensities that are tilted until imputed errors are balanced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unskew.debias.core.plans import PassPlan, StepPlan
from unskew.debias.core.setting import Batch, Setting
from unskew.debias.parts.imputation import FORMS
from unskew.debias.parts.tilted_propensity import TiltedPropensity
from unskew.debias.snips import SNIPS
from unskew.estimator import require
from unskew.registry import register
from unskew.training import stratified


@register(order=170)
@dataclass(kw_only=True)
class StableDR(TiltedPropensity, SNIPS):
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
    needs_propensity_everywhere: ClassVar[bool] = True
    imputation: ClassVar[str | None] = "P1"
    detached: ClassVar[tuple[str, ...]] = (
        "propensity in the imputation and prediction steps",
        "prediction in the imputation step",
        "imputation and prediction in the propensity step",
    )

    def networks(self) -> dict[str, tuple[str, ...]]:
        """The predictor, the imputer, and the shift and tilt of the propensities."""
        return {"prediction": ("prediction",), "imputation": ("imputation",), "propensity": ("shift", "tilt")}

    def plan(self) -> tuple[PassPlan, ...]:
        """On each batch the imputer, shift and tilt, then the prediction."""
        steps = (
            StepPlan("imputation", self.imputation_loss, ("imputation",)),
            StepPlan("propensity", self.propensity_loss, ("propensity",)),
            StepPlan("prediction", self.loss, ("prediction",)),
        )
        return (self.full_pass(*steps, before=self.find_centre),)

    def imputation_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """(|O|/|D|) · mean_B (e − ê)²/p."""
        output, logit = setting.logit(observed, "imputation"), setting.predicted(observed)
        deviation = FORMS["P1"].deviation(observed.conversion, output, logit)
        weight = 1.0 / self.tilted(setting, observed).propensity
        return stratified(observed=weight * deviation.square(), density=setting.density)

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Σ_B CE(r, r̂)/p / Σ_B 1/p."""
        return super().loss(setting, self.tilted(setting, observed), full)

    def _check(self) -> None:
        super()._check()
        require(
            self.constraint >= 0.0,
            f"constraint must not be negative, not {self.constraint}",
            "give 0 or more",
        )
