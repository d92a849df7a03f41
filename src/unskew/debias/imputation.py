"""Imputed errors: their forms, the doubly robust correction, and imputers learned beside the prediction."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from unskew.base.estimator import require, require_above, require_choice
from unskew.debias.forms import (
    FORMS,
    FormName,
    ImputationForm,
    dr_correction,
    effective_target,
    imputation_loss,
    imputed_error,
)
from unskew.debias.method import Debiaser
from unskew.debias.setting import Batch, ClicksAndCells, Plan, Setting, State, clicks
from unskew.metrics.sample_weight import bias_weight, inverse_weight, variance_weight
from unskew.training import Pass, Step
from unskew.training.means import stratified

if TYPE_CHECKING:
    pass


Copy = Literal["epoch", "batch", "none", "host"]

FAR_TARGET = 20.0
"""An effective target beyond this many times |D|/|O|, the mean of 1/p, is far. METHODS §5D has ±20 for any
density, which on a log with 1 % clicks nearly every honest weight exceeds."""
FAR_SHARE = 0.01
"""Share of far targets in a batch of O above which a warning says that training is at risk (METHODS §5D)."""


class FarTargets(State):
    """How many effective targets t = r̃ + (r − r̃)/p were far."""

    share: Tensor
    """The largest share of a batch so far ``[R]``."""


def watch_targets(setting: Setting) -> None:
    """Before the first batch; a captured step can only write to what is there."""
    if setting.state(FarTargets).is_empty:
        setting.state(FarTargets).write(share=torch.zeros_like(setting.clicks.conversion[:, 0]).float())


def watch_for_far_targets(setting: Setting, observed: Batch, label: Tensor) -> None:
    """Note the share of effective targets of a batch that are far; where a clip holds them there is no need.

    Parameters
    ----------
    label
        r̃ of clicks ``[R, B]``.
    """
    far = setting.state(FarTargets)
    if not far.is_empty:
        target = effective_target(observed.conversion, observed.propensity, label.detach())
        share = (target.abs() * setting.density > FAR_TARGET).float().mean(-1)
        far.write(share=torch.maximum(far.share, share))


def tell_of_far_targets(setting: Setting, method: str) -> None:
    """One warning, if there was a batch with too many."""
    far = setting.state(FarTargets)
    share = 0.0 if far.is_empty else float(far.share.max())
    if share > FAR_SHARE:
        warnings.warn(
            f"{method}: up to {share:.1%} of a batch's effective targets were beyond ±{FAR_TARGET:g} times"
            f" the mean weight, with propensities clipped at {float(setting.floor.min()):.2g}: a larger"
            " p_min, or a target_clip, keeps training stable at the price of some bias",
            stacklevel=4,
        )


def require_target_clip(clip: float | None, form: FormName) -> None:
    """At least 0, for a form that has a target."""
    require(
        clip is None or (clip >= 0 and FORMS[form].has_label),
        f"target_clip {clip} does not fit imputation {form}",
        "give a number of at least 0 with P1 or P3, or None",
    )


class Host(NamedTuple):
    """How a doubly robust method trains its imputer, for methods that change one."""

    weight: Callable[[Tensor], Tensor]
    copy: Copy


HOSTS = {
    "dr-jl": Host(inverse_weight, "none"),
    "mrdr": Host(variance_weight, "epoch"),
    "dr-bias": Host(bias_weight, "none"),
}


class MeanWeight(State):
    """What the weights of an imputation loss are divided by."""

    mean: Tensor
    """Their mean over the training clicks ``[R, 1]``."""


@dataclass(kw_only=True)
class JointLearning(Debiaser):
    """L = (1/|D|) Σ_D [ê + o·(e − ê)/p], L_imp = (1/|D|) Σ_O w·(e − ê)², in turn.

    e is the error of the prediction, ê the imputed one, p ``propensity``, clipped and without gradient. Each
    epoch trains the imputer in one pass over O, the prediction held fixed, then the prediction in one pass
    over O and D, the imputer held fixed; whoever is held fixed is read without dropout. Most methods of this
    family differ in the weight w alone.

    With a pseudo-label r̃ (P1) a click's term is CE(t, r̂) with the effective target t = r̃ + (r − r̃)/p. Where
    t leaves [0, 1] that term has no lower bound: small propensities and long training diverge. Clip p
    (``p_min``) or t (``target_clip``), and stop early.

    Parameters
    ----------
    ratio
        Cells of D in a batch per row of O. The estimators are exact for any; more cells, less noise.
    imputation_form
        ``"P1"`` pseudo-label, ``"P2"`` direct error, ``"P3"`` residual with squared errors (METHODS §1.2).
    target_clip
        τ: effective targets are clipped to [−τ, 1 + τ]; None (the papers) does not.
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
    """

    needs_full_space: ClassVar[bool] = True
    needs_propensity: ClassVar[bool] = True
    imputation: ClassVar[str | None] = "P1"
    detached: ClassVar[tuple[str, ...]] = (
        "propensity",
        "imputation in the prediction step",
        "prediction in the imputation step",
    )

    ratio: float = 1.0
    imputation_form: FormName = "P1"
    target_clip: float | None = None
    imp_loss: Literal["sq", "ce"] = "sq"
    copy: Copy = "none"
    normalise_weights: bool = True
    weight_clamp: float | None = None
    imputation_weight_decay: float | None = None

    @property
    def form(self) -> ImputationForm:
        """The arithmetic of ``imputation_form``."""
        return FORMS[self.imputation_form]

    def imputation_weight(self, propensity: Tensor) -> Tensor:
        """w of clicks."""
        raise NotImplementedError

    def click_weight(self, setting: Setting, observed: Batch) -> Tensor:
        """Return w of clicks, at most ``weight_clamp``."""
        return self.clamped_weight(self.pseudo_propensity(observed))

    def copying(self) -> Copy:
        """When the prediction's weights are copied."""
        return self.copy

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """A network each for the prediction, the imputer and a method's own clicks; nothing is shared."""
        names = ("prediction", "imputation", *(() if self.tower is None else ("click",)))
        return {name: (name,) for name in names}

    def weight_decays(self) -> Mapping[str, float]:
        """``imputation_weight_decay``, or none where the loss is too flat to stand against any."""
        if self.imputation_weight_decay is not None:
            return {"imputation": self.imputation_weight_decay}
        return {"imputation": 0.0} if self.weight_decay == "auto" and self.imp_loss == "sq" else {}

    def plan(self) -> Plan:
        """Per epoch one pass for the imputer over O, then one for the prediction over O and D."""
        imputation = Step("imputation", self.imputation_loss, ("imputation",))
        prediction = Step("prediction", self.loss, ("prediction",))
        return (
            Pass(clicks, (imputation,), self.before_imputation),
            Pass(ClicksAndCells(self.ratio), (prediction,), self.before_prediction),
        )

    def before_imputation(self, setting: Setting) -> None:
        """The new p of a click network, if there is one; copy weights if asked to; find the mean of w."""
        if self.tower is not None:
            self.tower.recalibrate(setting)
        if self.copying() == "epoch":
            setting.copy_weights("prediction", "imputation")
        if self.normalise_weights:
            mean = self.clamped_weight(self.propensity_of_clicks(setting)).mean(-1, keepdim=True)
            # Where every p is 1 all weights are 0 and there is nothing to divide by.
            setting.state(MeanWeight).write(mean=torch.where(mean > 0, mean, 1.0))

    def before_prediction(self, setting: Setting) -> None:
        """Once per epoch; subclasses extend it."""
        watch_targets(setting)

    def propensity_of_clicks(self, setting: Setting) -> Tensor:
        """The p of all training clicks that the mean of w is of: given, or those of the click network."""
        if self.tower is None:
            return setting.clicks.propensity
        return self.tower.propensity(setting, setting.clicks)

    def weighed(self, setting: Setting, observed: Batch) -> Batch:
        """A batch of O with the propensities that become weights: given, or those of the click network."""
        if self.tower is None:
            return observed
        return replace(observed, propensity=self.tower.propensity(setting, observed))

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_{B_D} ê + (|O|/|D|) · mean_{B_O} (e − ê)/p."""
        observed = self.weighed(setting, observed)
        return stratified(
            observed=self.correction(setting, observed, setting.logit(observed)),
            full=self.imputed_error(setting, full, setting.logit(full)),
            density=setting.density,
        )

    def imputer_output(self, setting: Setting, batch: Batch) -> Tensor:
        """b ``[R, B]``, without gradient and dropout."""
        return setting.predicted(batch, "imputation")

    def imputed_error(self, setting: Setting, batch: Batch, logit: Tensor) -> Tensor:
        """ê of a batch of O or D."""
        return imputed_error(self.imputer_output(setting, batch), logit, form=self.form)

    def correction(self, setting: Setting, observed: Batch, logit: Tensor) -> Tensor:
        """(e − ê)/p of clicks, with the effective target clipped and watched."""
        return dr_correction(
            observed.conversion,
            logit,
            observed.propensity,
            self.watched_output(setting, observed, logit),
            form=self.form,
            target_clip=self.target_clip,
        )

    def watched_output(self, setting: Setting, observed: Batch, logit: Tensor) -> Tensor:
        """b of clicks, after a look at the effective targets that it gives."""
        output = self.imputer_output(setting, observed)
        if self.form.has_label and self.target_clip is None:
            watch_for_far_targets(setting, observed, self.form.label(output, logit))
        return output

    def imputation_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """(|O|/|D|) · mean_B w·(e − ê)², or the mean of w·(e − ê)² with weights of mean 1."""
        if self.copying() == "batch":
            setting.copy_weights("prediction", "imputation")
        observed = self.weighed(setting, observed)
        output = setting.logit(observed, "imputation")
        return imputation_loss(
            observed.conversion,
            output,
            # The cross-entropy does not look at the prediction.
            output if self.imp_loss == "ce" else setting.predicted(observed),
            self.clamped_weight(observed.propensity),
            density=setting.density,
            loss=self.imp_loss,
            form=self.form,
            targeting=self.targeting(setting, observed),
            mean_weight=setting.state(MeanWeight).mean if self.normalise_weights else None,
        )

    def targeting(self, setting: Setting, observed: Batch) -> Tensor | None:
        """What imputed errors of clicks are raised by, if anything."""
        return None

    def clamped_weight(self, propensity: Tensor) -> Tensor:
        """w of clicks, at most ``weight_clamp``."""
        weight = self.imputation_weight(propensity)
        return weight if self.weight_clamp is None else weight.clamp(max=self.weight_clamp)

    def finish(self, setting: Setting) -> None:
        """Tell of far targets, once."""
        tell_of_far_targets(setting, self.name)
        super().finish(setting)

    def _check(self) -> None:
        super()._check()
        require_above(0, ratio=self.ratio)
        require_choice("imputation_form", self.imputation_form, FORMS)
        require_target_clip(self.target_clip, self.imputation_form)
        has_label, copying = self.imputation_form == "P1", self.copying()
        require_choice("imp_loss", self.imp_loss, ("sq", "ce"))
        require(
            has_label or self.imp_loss == "sq",
            "imp_loss 'ce' needs a pseudo-label",
            "use imputation_form='P1'",
        )
        require_choice("copy", copying, ("epoch", "batch", "none"))
        require(
            has_label or copying == "none",
            f"copy {copying!r}: a prediction's weights mean nothing to an imputer of the form"
            f" {self.imputation_form}",
            "use copy='none', or imputation_form='P1'",
        )
        if self.imputation_form == "P2":
            warnings.warn(
                f"{self.name} with P2 and separate networks trains the prediction exactly as IPS does:"
                " ê does not depend on it (METHODS §1.2); use P1, or a method with shared embeddings",
                stacklevel=3,
            )


@dataclass(kw_only=True)
class Hosted(JointLearning):
    """Joint learning that trains its imputer as another method does.

    Parameters
    ----------
    host
        The name of that method.
    copy
        As the host has it (``"host"``), or the value given.
    """

    host: str = "mrdr"
    copy: Copy = "host"

    def imputation_weight(self, propensity: Tensor) -> Tensor:
        """w of the host."""
        return HOSTS[self.host].weight(propensity)

    def copying(self) -> Copy:
        """As the host has it, or as given."""
        return HOSTS[self.host].copy if self.copy == "host" else self.copy
