"""An imputer that is learned beside the prediction: its loss, its weights, its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unskew.debias.core.checks import check_imputer
from unskew.debias.core.plans import PassPlan, StepPlan
from unskew.debias.core.setting import Batch, Setting
from unskew.debias.parts.doubly_robust import DoublyRobust
from unskew.debias.parts.legacy import noisy_imputation
from unskew.training import cross_entropy, stratified

Copy = Literal["epoch", "batch", "none", "host"]


@dataclass(kw_only=True)
class JointLearning(DoublyRobust):
    """L_imp = (1/|D|) Σ_O w·(e − ê)², in turn with the doubly robust L.

    Each epoch trains the imputer in one pass over O, the prediction held fixed, then the prediction in one
    pass over O and D, the imputer held fixed; whoever is held fixed is read without dropout. Methods of
    this family differ in the weight w alone.

    Parameters
    ----------
    imp_loss
        ``"sq"`` (the papers): w·(e − ê)², which with P1 is w·a²·(r − r̃)², without gradient where the
        prediction is undecided (a = 0). ``"ce"`` (public code): w·CE(r, r̃); P1 only.
    copy
        Gives the imputer the prediction's weights before each ``"epoch"``, each ``"batch"``, or never
        (``"none"``); P1 only.
    normalise_weights
        Divides w by its mean over the training clicks: (1 − p)²/p³ is 10⁵ at p = 0.02. For w = 1/p this
        changes the loss by the factor Σ_O 1/p ÷ |D|, about 1.
    weight_clamp
        Upper limit of w before that (5 in the paper's code); None has none.
    imputation_weight_decay
        Of the imputer; None takes ``weight_decay``, but no decay where that is ``"auto"`` and the loss
        ``"sq"``: w·a²·(r − r̃)² has hardly a gradient while the prediction is undecided, and any decay would
        keep the imputer at one constant.
    legacy_noisy_imputer
        Leaves the imputer's dropout on where the prediction reads it, as in the paper's code.
    """

    detached: ClassVar[tuple[str, ...]] = (
        "propensity",
        "imputation in the prediction step",
        "prediction in the imputation step",
    )

    imp_loss: Literal["sq", "ce"] = "sq"
    copy: Copy = "none"
    normalise_weights: bool = True
    weight_clamp: float | None = None
    imputation_weight_decay: float | None = None
    legacy_noisy_imputer: bool = False

    def imputation_weight(self, propensity: Tensor) -> Tensor:
        """w of clicks."""
        raise NotImplementedError

    def copying(self) -> Copy:
        """When the prediction's weights are copied."""
        return self.copy

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """A network each for the prediction and the imputer, nothing shared."""
        return {"prediction": ("prediction",), "imputation": ("imputation",)}

    def weight_decays(self) -> Mapping[str, float]:
        """``imputation_weight_decay``, or none where the loss is too flat to stand against any."""
        if self.imputation_weight_decay is not None:
            return {"imputation": self.imputation_weight_decay}
        return {"imputation": 0.0} if self.weight_decay == "auto" and self.imp_loss == "sq" else {}

    def plan(self) -> tuple[PassPlan, ...]:
        """Per epoch one pass for the imputer over O, then one for the prediction."""
        step = StepPlan("imputation", self.imputation_loss, ("imputation",))
        return (PassPlan((step,), before=self.before_imputation), self.prediction_pass())

    def before_imputation(self, setting: Setting) -> None:
        """Copy weights if asked to, and find the mean of w."""
        if self.copying() == "epoch":
            setting.copy_weights("prediction", "imputation")
        if self.normalise_weights:
            mean = self._clamped(setting.clicks.propensity).mean(-1, keepdim=True)
            # Where every p is 1 all weights are 0 and there is nothing to divide by.
            setting.remember("mean weight", torch.where(mean > 0, mean, 1.0))

    def imputer_output(self, setting: Setting, batch: Batch) -> Tensor:
        """b, without gradient and, unless asked for, dropout."""
        if not self.legacy_noisy_imputer:
            return setting.predicted(batch, "imputation")
        return noisy_imputation(setting, batch)

    def imputation_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """(|O|/|D|) · mean_B w·(e − ê)², or the mean of w·(e − ê)² with weights of mean 1."""
        if self.copying() == "batch":
            setting.copy_weights("prediction", "imputation")
        observed = self.weighed(setting, observed)
        output = setting.logit(observed, "imputation")
        if self.imp_loss == "ce":
            each = cross_entropy(observed.conversion, output)
        else:
            each = self.deviation(setting, observed, output).square()
        weighted = self._clamped(observed.propensity) * each
        if self.normalise_weights:
            return (weighted / setting.state["mean weight"]).mean(-1)
        return stratified(observed=weighted, density=setting.density)

    def deviation(self, setting: Setting, observed: Batch, output: Tensor) -> Tensor:
        """e − ê of clicks, the prediction without dropout and gradient."""
        return self.form.deviation(observed.conversion, output, setting.predicted(observed))

    def _clamped(self, propensity: Tensor) -> Tensor:
        weight = self.imputation_weight(propensity)
        return weight if self.weight_clamp is None else weight.clamp(max=self.weight_clamp)

    def _check(self) -> None:
        super()._check()
        check_imputer(self.name, self.imputation_form, self.imp_loss, self.copying())
