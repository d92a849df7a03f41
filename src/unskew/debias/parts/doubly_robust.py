"""The doubly robust prediction loss, once for all methods of its family; where ê comes from is theirs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from unskew.debias.core.plans import PassPlan, StepPlan
from unskew.debias.core.setting import Batch, Setting
from unskew.debias.parts.effective_target import effective_target, start_watching, tell_of_far_targets
from unskew.debias.parts.imputing import Imputing
from unskew.debias.parts.legacy import averaged_together, clicks_of_batch
from unskew.estimator import require
from unskew.training import stratified


@dataclass(kw_only=True)
class DoublyRobust(Imputing):
    """L = (1/|D|) Σ_D [ê + o·(e − ê)/p].

    e is the error of the prediction, ê the imputed one, p ``propensity``, clipped and without gradient, as
    is the imputation. With a pseudo-label r̃ (P1) a click's term is CE(t, r̂) with the effective target
    t = r̃ + (r − r̃)/p. Where t leaves [0, 1] that term has no lower bound: small propensities and long
    training diverge. Clip p (``p_min``) or t (``target_clip``), and stop early.

    Parameters
    ----------
    target_clip
        τ: effective targets are clipped to [−τ, 1 + τ]; None (the papers) does not.
    legacy_unweighted_imputation
        Corrects by Σ_O (e/p − ê), as much public code does: not doubly robust, even with true p.
    legacy_scaling
        Averages clicks and their ``ratio`` cells of D together, as public code does: it takes |O|/|D| for
        1/(1 + ratio).
    legacy_batches
        ``batch_size`` counts clicks and cells of D together, and the latter are unclicked ones that are
        drawn once for all epochs, as in the paper's code.
    """

    needs_propensity: ClassVar[bool] = True
    detached: ClassVar[tuple[str, ...]] = ("propensity", "imputation")

    target_clip: float | None = None
    legacy_unweighted_imputation: bool = False
    legacy_scaling: bool = False
    legacy_batches: bool = False

    def plan(self) -> tuple[PassPlan, ...]:
        """One pass over O and D for the prediction."""
        return (self.prediction_pass(),)

    def prediction_pass(self) -> PassPlan:
        """Batches of O, each with ``ratio`` times as many cells of D."""
        step = StepPlan("prediction", self.loss, ("prediction",))
        clicks = clicks_of_batch(self.batch_size, self.ratio) if self.legacy_batches else None
        usual = self.full_pass(step, before=self.before_prediction)
        return replace(usual, batch_size=clicks, unclicked_once=self.legacy_batches)

    def before_prediction(self, setting: Setting) -> None:
        """Once per epoch; heirs add to it."""
        start_watching(setting)

    def imputer_output(self, setting: Setting, batch: Batch) -> Tensor:
        """b ``[R, B]``, without gradient."""
        raise NotImplementedError

    def weighed(self, setting: Setting, observed: Batch) -> Batch:
        """A batch of O with the propensities that become weights: by default the given ones."""
        return observed

    def inverse_propensity(self, observed: Batch) -> Tensor:
        """1/p of clicks."""
        return 1.0 / observed.propensity

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_{B_D} ê + (|O|/|D|) · mean_{B_O} (e − ê)/p."""
        setting.imputed = None
        observed = self.weighed(setting, observed)
        logit = setting.logit(observed)
        clicked = self.correction(setting, observed, logit)
        if self.legacy_scaling:
            clicked = clicked + self.imputed_error(setting, observed, logit)
        imputed = self.imputed_error(setting, full, setting.logit(full))
        if self.legacy_scaling:
            return averaged_together(clicked, imputed, self.ratio)
        return stratified(observed=clicked, full=imputed, density=setting.density)

    def imputed_error(self, setting: Setting, batch: Batch, logit: Tensor) -> Tensor:
        """ê of a batch of O or D."""
        return self.form.imputed(self.imputer_output(setting, batch), logit)

    def correction(self, setting: Setting, observed: Batch, logit: Tensor) -> Tensor:
        """(e − ê)/p of clicks, with the effective target clipped and watched."""
        output = self.imputer_output(setting, observed)
        form, conversion, inverse = self.form, observed.conversion, self.inverse_propensity(observed)
        if self.legacy_unweighted_imputation:
            return form.error(conversion, logit) * inverse - form.imputed(output, logit)
        if not form.has_label:
            return form.deviation(conversion, output, logit) * inverse
        label = form.label(output, logit)
        target = effective_target(setting, label, conversion, inverse, self.target_clip)
        return form.shifted(conversion, output, logit, target - label)

    def finish(self, setting: Setting) -> None:
        """Tell of far targets, once."""
        tell_of_far_targets(setting, self.name)

    def _check(self) -> None:
        super()._check()
        require(
            self.target_clip is None or (self.target_clip >= 0 and self.form.has_label),
            f"target_clip {self.target_clip} does not fit imputation {self.imputation_form}",
            "give a number of at least 0 with P1 or P3, or None",
        )
