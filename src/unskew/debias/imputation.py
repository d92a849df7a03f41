"""Imputed errors: their forms, the doubly robust correction, and imputers learned beside the prediction."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.debias.method import Debiaser
from unskew.debias.setting import Batch, ClicksAndCells, Plan, Setting, State, clicks, require_ratio
from unskew.estimator import require
from unskew.training import Pass, Step, cross_entropy, stratified

FormName = Literal["P1", "P2", "P3"]
Copy = Literal["epoch", "batch", "none", "host"]

FAR_TARGET = 20.0
"""An effective target beyond this many times |D|/|O|, the mean of 1/p, is far. METHODS §5D has ±20 for any
density, which on a log with 1 % clicks nearly every honest weight exceeds."""
FAR_SHARE = 0.01
"""Share of far targets in a batch of O above which a warning says that training is at risk (METHODS §5D)."""

Numbers = TypeVar("Numbers", Tensor, NDArray[np.float64])


class ImputationForm:
    """What the output b of an imputer says about the error of a prediction with logit a.

    e is the error with the known conversion r, ê the imputed one; r̃ is the conversion that the imputer
    stands for, where the form has one.
    """

    has_label: bool = True
    """Whether there is an r̃, and with it an effective target t = r̃ + (r − r̃)/p."""

    def error(self, conversion: Tensor, logit: Tensor) -> Tensor:
        """e."""
        return cross_entropy(conversion, logit)

    def imputed(self, output: Tensor, logit: Tensor) -> Tensor:
        """ê."""
        raise NotImplementedError

    def label(self, output: Tensor, logit: Tensor) -> Tensor:
        """r̃."""
        raise NotImplementedError

    def deviation(self, conversion: Tensor, output: Tensor, logit: Tensor) -> Tensor:
        """What the squared imputation loss squares: e − ê."""
        return self.error(conversion, logit) - self.imputed(output, logit)

    def shifted(self, conversion: Tensor, output: Tensor, logit: Tensor, shift: Tensor) -> Tensor:
        """(e − ê)·s, written with the shift (r − r̃)·s of the target."""
        raise NotImplementedError


class PseudoLabel(ImputationForm):
    """P1: r̃ = σ(b), ê = CE(r̃, r̂).

    CE is affine in its target, so e − ê = −(r − r̃)·a exactly: nothing is subtracted that could cancel.
    """

    def imputed(self, output: Tensor, logit: Tensor) -> Tensor:
        """CE(σ(b), r̂)."""
        return cross_entropy(self.label(output, logit), logit)

    def label(self, output: Tensor, logit: Tensor) -> Tensor:
        """σ(b)."""
        return torch.sigmoid(output)

    def deviation(self, conversion: Tensor, output: Tensor, logit: Tensor) -> Tensor:
        """−(r − r̃)·a."""
        return -(conversion - self.label(output, logit)) * logit

    def shifted(self, conversion: Tensor, output: Tensor, logit: Tensor, shift: Tensor) -> Tensor:
        """−(r − r̃)·s·a."""
        return -shift * logit


class DirectError(ImputationForm):
    """P2: ê = softplus(b), which is never negative and, unlike a probability, may exceed 1."""

    has_label = False

    def imputed(self, output: Tensor, logit: Tensor) -> Tensor:
        """softplus(b)."""
        return torch.nn.functional.softplus(output)


class SquaredErrors(ImputationForm):
    """Errors are squared: e = (r − r̂)², ê = (r̃ − r̂)²."""

    def error(self, conversion: Tensor, logit: Tensor) -> Tensor:
        """(r − r̂)²."""
        return (conversion - torch.sigmoid(logit)).square()

    def imputed(self, output: Tensor, logit: Tensor) -> Tensor:
        """(r̃ − r̂)²."""
        return self.error(self.label(output, logit), logit)


class Residual(SquaredErrors):
    """P3: b predicts r − r̂, r̃ = sg(r̂) + b; the value of ê is b², its gradient −2b·∇r̂."""

    def label(self, output: Tensor, logit: Tensor) -> Tensor:
        """sg(r̂) + b."""
        return torch.sigmoid(logit).detach() + output

    def deviation(self, conversion: Tensor, output: Tensor, logit: Tensor) -> Tensor:
        """r − r̂ − b: the residual itself, since e − ê would leave the sign of b open."""
        return conversion - torch.sigmoid(logit) - output

    def shifted(self, conversion: Tensor, output: Tensor, logit: Tensor, shift: Tensor) -> Tensor:
        """(r − r̃)·s·(r + r̃ − 2r̂)."""
        return shift * (conversion + self.label(output, logit) - 2.0 * torch.sigmoid(logit))


class SquaredPseudoLabel(SquaredErrors):
    """P1 with squared errors: r̃ = σ(b) (IPS-V2 and DR-V2 as published)."""

    def label(self, output: Tensor, logit: Tensor) -> Tensor:
        """σ(b)."""
        return torch.sigmoid(output)


FORMS: dict[FormName, ImputationForm] = {"P1": PseudoLabel(), "P2": DirectError(), "P3": Residual()}


def require_form(name: str) -> None:
    """One of the three."""
    require(
        name in FORMS,
        f"imputation_form must be one of {', '.join(FORMS)}, not {name!r}",
        "give one of these",
    )


class FarTargets(State):
    """How many effective targets t = r̃ + (r − r̃)/p were far."""

    share: Tensor
    """The largest share of a batch so far ``[R]``."""


def watch_targets(setting: Setting) -> None:
    """Before the first batch; a captured step can only write to what is there."""
    if setting.state(FarTargets).is_empty:
        setting.state(FarTargets).write(share=torch.zeros_like(setting.clicks.conversion[:, 0]).float())


def correction(
    setting: Setting,
    form: ImputationForm,
    observed: Batch,
    output: Tensor,
    logit: Tensor,
    inverse: Tensor,
    clip: float | None,
) -> Tensor:
    """(e − ê)/p of clicks ``[R, B]``.

    With a pseudo-label it moves the label to the effective target t = r̃ + (r − r̃)/p: clipped to
    [−clip, 1 + clip], or, without a clip, watched.

    Parameters
    ----------
    output, logit
        Of the imputer, without gradient, and of the prediction.
    inverse
        1/p.
    """
    conversion = observed.conversion
    if not form.has_label:
        return form.deviation(conversion, output, logit) * inverse
    label = form.label(output, logit)
    target = label + (conversion - label) * inverse
    far = setting.state(FarTargets)
    if clip is not None:
        target = target.clamp(-clip, 1.0 + clip)
    elif not far.is_empty:
        share = (target.detach().abs() * setting.density > FAR_TARGET).float().mean(-1)
        far.write(share=torch.maximum(far.share, share))
    return form.shifted(conversion, output, logit, target - label)


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


def inverse_weight(propensity: Numbers) -> Numbers:
    """1/p: every pair of D counts the same (DR-JL)."""
    return 1.0 / propensity


def variance_weight(propensity: Numbers) -> Numbers:
    """(1 − p)/p²: the share of a click in Var_DR, with o in the place of the unknown p (MRDR)."""
    return (1.0 - propensity) / propensity**2


def bias_weight(propensity: Numbers) -> Numbers:
    """(1 − p)²/p³: the share of a click in the squared bias of DR (DR-BIAS)."""
    return (1.0 - propensity) ** 2 / propensity**3


class Host(NamedTuple):
    """How a doubly robust method trains its imputer, for methods that change one."""

    weight: Callable[[Tensor], Tensor]
    copy: Copy


HOSTS = {
    "dr-jl": Host(inverse_weight, "none"),
    "mrdr": Host(variance_weight, "epoch"),
    "dr-bias": Host(bias_weight, "none"),
}


def require_host(host: str, hosts: Sequence[str]) -> None:
    """One of those that a method can change."""
    require(host in hosts, f"host must be one of {', '.join(hosts)}, not {host!r}", "give one of these")


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

    def plan(self) -> Plan:
        """Per epoch one pass for the imputer over O, then one for the prediction over O and D."""
        imputation = Step("imputation", self.imputation_loss, ("imputation",))
        prediction = Step("prediction", self.loss, ("prediction",))
        return (
            Pass(clicks, (imputation,), self.before_imputation),
            Pass(ClicksAndCells(self.ratio), (prediction,), self.before_prediction),
        )

    def before_imputation(self, setting: Setting) -> None:
        """Copy weights if asked to, and find the mean of w."""
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
        """The p of all training clicks that the mean of w is of: by default the given ones."""
        return setting.clicks.propensity

    def weighed(self, setting: Setting, observed: Batch) -> Batch:
        """A batch of O with the propensities that become weights: by default the given ones."""
        return observed

    def inverse_propensity(self, observed: Batch) -> Tensor:
        """1/p of clicks."""
        return 1.0 / observed.propensity

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
        return self.form.imputed(self.imputer_output(setting, batch), logit)

    def correction(self, setting: Setting, observed: Batch, logit: Tensor) -> Tensor:
        """(e − ê)/p of clicks, with the effective target clipped and watched."""
        output, inverse = self.imputer_output(setting, observed), self.inverse_propensity(observed)
        return correction(setting, self.form, observed, output, logit, inverse, self.target_clip)

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
        weighted = self.clamped_weight(observed.propensity) * each
        if self.normalise_weights:
            return (weighted / setting.state(MeanWeight).mean).mean(-1)
        return stratified(observed=weighted, density=setting.density)

    def deviation(self, setting: Setting, observed: Batch, output: Tensor) -> Tensor:
        """e − ê of clicks, the prediction without dropout and gradient."""
        return self.form.deviation(observed.conversion, output, setting.predicted(observed))

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
        require_ratio(self.ratio)
        require_form(self.imputation_form)
        require_target_clip(self.target_clip, self.imputation_form)
        has_label, copying = self.imputation_form == "P1", self.copying()
        require(
            self.imp_loss in ("sq", "ce"),
            f"imp_loss must be 'sq' or 'ce', not {self.imp_loss!r}",
            "give one of these",
        )
        require(
            has_label or self.imp_loss == "sq",
            "imp_loss 'ce' needs a pseudo-label",
            "use imputation_form='P1'",
        )
        require(
            copying in ("epoch", "batch", "none"),
            f"copy must be 'epoch', 'batch' or 'none', not {copying!r}",
            "give one of these",
        )
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
