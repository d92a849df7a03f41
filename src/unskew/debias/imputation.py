"""Imputed errors: their forms, the doubly robust correction, and imputers learned beside the prediction."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from unskew.base.estimator import require, require_choice
from unskew.base.tensors import Tensor, torch
from unskew.debias.method import (
    Batch,
    ClicksAndCells,
    Debiaser,
    Pass,
    Plan,
    Setting,
    State,
    Step,
    clicks,
    within,
)
from unskew.metrics.sample_weight import bias_weight, inverse_weight, variance_weight
from unskew.training.means import OnRows, PerModel, Space, cross_entropy, squared_error, stratified

FormName = Literal["P1", "P2", "P3"]
"""Pseudo-label, direct error, residual."""


class ImputationForm:
    """The meaning of an imputer's output b for the error of a prediction with logit a.

    e is the error with the known conversion r, ê the imputed one; r̃ is the conversion that the imputer
    stands for, where the form has one.
    """

    has_label: bool = True
    """True where there is an r̃, and with it an effective target t = r̃ + (r − r̃)/p."""

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
        """Return e − ê, which the squared imputation loss squares."""
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
        return squared_error(conversion, logit)

    def imputed(self, output: Tensor, logit: Tensor) -> Tensor:
        """(r̃ − r̂)²."""
        return self.error(self.label(output, logit), logit)

    def shifted(self, conversion: Tensor, output: Tensor, logit: Tensor, shift: Tensor) -> Tensor:
        """(r − r̃)·s·(r + r̃ − 2r̂)."""
        return shift * (conversion + self.label(output, logit) - 2.0 * torch.sigmoid(logit))


class Residual(SquaredErrors):
    """P3: b predicts r − r̂, r̃ = sg(r̂) + b; the value of ê is b², its gradient −2b·∇r̂."""

    def label(self, output: Tensor, logit: Tensor) -> Tensor:
        """sg(r̂) + b."""
        return torch.sigmoid(logit).detach() + output

    def deviation(self, conversion: Tensor, output: Tensor, logit: Tensor) -> Tensor:
        """r − r̂ − b: the residual itself, since e − ê would leave the sign of b open."""
        return conversion - torch.sigmoid(logit) - output


class SquaredPseudoLabel(SquaredErrors):
    """P1 with squared errors: r̃ = σ(b) (IPS-V2 and DR-V2 as published)."""

    def label(self, output: Tensor, logit: Tensor) -> Tensor:
        """σ(b)."""
        return torch.sigmoid(output)


FORMS: dict[FormName, ImputationForm] = {"P1": PseudoLabel(), "P2": DirectError(), "P3": Residual()}
"""Forms of imputation by name."""


def form_of(form: FormName | ImputationForm) -> ImputationForm:
    """Return a form by name, or the one given."""
    return form if isinstance(form, ImputationForm) else FORMS[form]


def imputed_error(imputation: OnRows, logit: OnRows, *, form: FormName | ImputationForm = "P1") -> OnRows:
    """ê of each row, from the output of the imputer and the logit of the prediction; forms as in :func:`dr`.

    Examples
    --------
    >>> import torch
    >>> imputed_error(torch.tensor([0.0]), torch.tensor([2.0]))  # CE(0.5, σ(2))
    tensor([1.1269])
    """
    return form_of(form).imputed(imputation, logit)


def effective_target(
    conversion: OnRows, propensity: OnRows, label: OnRows, *, target_clip: float | None = None
) -> OnRows:
    """t = r̃ + (r − r̃)/p of clicks: ê + (e − ê)/p = CE(t, r̂).

    Where t leaves [0, 1] that has no lower bound: small propensities and long training diverge.

    Examples
    --------
    >>> import torch
    >>> effective_target(torch.tensor([1.0]), torch.tensor([0.25]), torch.tensor([0.2]))
    tensor([3.4000])
    """
    target = label + (conversion - label) / propensity
    return target if target_clip is None else target.clamp(-target_clip, 1.0 + target_clip)


def dr_correction(
    conversion: OnRows,
    logit: OnRows,
    propensity: OnRows,
    imputation: OnRows,
    *,
    form: FormName | ImputationForm = "P1",
    target_clip: float | None = None,
) -> OnRows:
    """(e − ê)/p of each click; parameters as in :func:`dr`.

    Examples
    --------
    >>> import torch
    >>> dr_correction(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([0.5]), torch.tensor([0.0]))
    tensor([-2.])
    """
    form = form_of(form)
    if not form.has_label:
        return form.deviation(conversion, imputation, logit) / propensity
    label = form.label(imputation, logit)
    target = effective_target(conversion, propensity, label, target_clip=target_clip)
    return form.shifted(conversion, imputation, logit, target - label)


def imputation_loss(
    conversion: OnRows,
    imputation: OnRows,
    logit: OnRows,
    weight: OnRows,
    *,
    loss: Literal["sq", "ce"] = "sq",
    form: FormName | ImputationForm = "P1",
    targeting: OnRows | None = None,
    mean_weight: Tensor | None = None,
    **space: Any,
) -> PerModel:
    """L_imp = (1/|D|) Σ_O w·(e − ê)², or (1/|D|) Σ_O w·CE(r, r̃).

    Parameters
    ----------
    conversion, imputation, logit, weight
        r, the imputer's output, the logit of the prediction (read without gradient) and w: of clicks; or of
        rows of D, with ``click``, where conversion and weight are not read without one.
    loss
        ``"sq"`` as the papers have it, or ``"ce"`` as public code, for ``"P1"`` alone: with P1 the former is
        w·a²·(r − r̃)², which has no gradient where the prediction is undecided (a = 0).
    targeting
        ε·(1/p − 1), which ê is raised by (:func:`tdr_targeting`).
    space
        ``click`` or ``density``, as in :func:`ips`.
    mean_weight
        The mean of w over all clicks: weights are divided by it, and the loss is a mean over O. (1 − p)²/p³
        is 10⁵ at p = 0.02.

    Examples
    --------
    >>> import torch
    >>> one = torch.tensor([1.0])
    >>> imputation_loss(one, torch.tensor([0.0]), torch.tensor([2.0]), one)  # (−(r − r̃)·a)²
    tensor(1.)
    """
    whole = Space(**space)
    conversion, weight = whole.known(conversion), whole.known(weight).detach()
    if loss == "ce":
        error = cross_entropy(conversion, imputation)
    else:
        deviation = form_of(form).deviation(conversion, imputation, logit.detach())
        error = (deviation if targeting is None else deviation - whole.known(targeting)).square()
    if mean_weight is not None:
        return whole.mean_of_clicks(weight * error / mean_weight)
    return whole.over_clicks(weight * error)


FAR_TARGET = 20.0
"""An effective target beyond this many times |D|/|O|, the mean of 1/p, is far. METHODS §5D has ±20 for any
density, which on a log with 1 % clicks nearly every honest weight exceeds."""
FAR_SHARE = 0.01
"""Share of far targets among clicks above which a warning says that training is at risk (METHODS §5D)."""


def warn_of_far_targets(method: str, setting: Setting, label: Tensor) -> None:
    """Warn where many effective targets of clicks are far, which no ``target_clip`` held.

    Parameters
    ----------
    label
        r̃ of all training clicks ``[R, n]``.
    """
    target = effective_target(setting.clicks.conversion, setting.clicks.propensity, label)
    share = float((target.abs() * setting.density > FAR_TARGET).float().mean(-1).max())
    if share > FAR_SHARE:
        warnings.warn(
            f"{method}: {share:.1%} of the clicks' effective targets are beyond ±{FAR_TARGET:g} times"
            f" the mean weight, with propensities clipped at {float(setting.floor.min()):.2g}: a larger"
            " p_min, or a target_clip, keeps training stable at the price of some bias",
            stacklevel=4,
        )


def require_target_clip(clip: float | None, form: FormName) -> None:
    """Raise unless the clip is at least 0, and for a form that has a target."""
    require(
        clip is None or (clip >= 0 and FORMS[form].has_label),
        f"target_clip {clip} does not fit imputation {form}",
        "give a number of at least 0 with P1 or P3, or None",
    )


Copy = Literal["epoch", "batch", "none", "host"]


HOSTS: dict[str, tuple[Callable[[Tensor], Tensor], Copy]] = {
    "dr-jl": (inverse_weight, "none"),
    "mrdr": (variance_weight, "epoch"),
    "dr-bias": (bias_weight, "none"),
}
"""The weight and the copying of the imputers of methods that may be a host."""


class MeanWeight(State):
    """The number that divides the weights of an imputation loss."""

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
    ranges: ClassVar[Mapping[str, str]] = within(ratio="(0, inf)")

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
        """Return w of clicks; by default 1/p."""
        return inverse_weight(propensity)

    def clamped_weight(self, propensity: Tensor) -> Tensor:
        """Return w of clicks, at most ``weight_clamp``."""
        weight = self.imputation_weight(propensity)
        return weight if self.weight_clamp is None else weight.clamp(max=self.weight_clamp)

    def click_weight(self, setting: Setting, observed: Batch) -> Tensor:
        """Return w of clicks, at most ``weight_clamp``."""
        return self.clamped_weight(self.pseudo_propensity(observed))

    def copying(self) -> Copy:
        """Return when the prediction's weights are copied."""
        return self.copy

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Return a network each for the prediction and the imputer; nothing is shared."""
        return {name: (name,) for name in ("prediction", "imputation")}

    def weight_decays(self) -> Mapping[str, float]:
        """Return ``imputation_weight_decay``, or none where the loss is too flat to stand against any."""
        if self.imputation_weight_decay is not None:
            return {"imputation": self.imputation_weight_decay}
        return {"imputation": 0.0} if self.weight_decay == "auto" and self.imp_loss == "sq" else {}

    def plan(self) -> Plan:
        """Train the imputer in one pass over O, then the prediction in one over O and D."""
        imputation = Step("imputation", self.imputation_loss, ("imputation",))
        prediction = Step("prediction", self.loss, ("prediction",))
        return (
            Pass(clicks, (imputation,), self.before_imputation),
            Pass(ClicksAndCells(self.ratio), (prediction,), self.before_prediction),
        )

    def before_imputation(self, setting: Setting) -> None:
        """Copy weights if asked to; find the mean of w."""
        if self.copying() == "epoch":
            setting.copy_weights("prediction", "imputation")
        if self.normalise_weights:
            p = self.weighed(setting, setting.clicks).propensity
            mean = self.clamped_weight(p).mean(-1, keepdim=True)
            # Where every p is 1 all weights are 0 and there is nothing to divide by.
            setting.state(MeanWeight).write(mean=torch.where(mean > 0, mean, 1.0))

    def before_prediction(self, setting: Setting) -> None:
        """Prepare the pass of the prediction; subclasses extend it."""

    def weighed(self, setting: Setting, observed: Batch) -> Batch:
        """Return a batch of O with the propensities that become weights."""
        return observed

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_{B_D} ê + (|O|/|D|) · mean_{B_O} (e − ê)/p."""
        observed = self.weighed(setting, observed)
        return stratified(
            observed=self.correction(setting, observed, setting.logit(observed)),
            full=self.imputed_error(setting, full, setting.logit(full)),
            density=setting.density,
        )

    def imputer_output(self, setting: Setting, batch: Batch) -> Tensor:
        """Return b ``[R, B]``, without gradient and dropout."""
        return setting.predicted(batch, "imputation")

    def imputed_error(self, setting: Setting, batch: Batch, logit: Tensor) -> Tensor:
        """Return ê of a batch of O or D."""
        return imputed_error(self.imputer_output(setting, batch), logit, form=self.form)

    def correction(self, setting: Setting, observed: Batch, logit: Tensor) -> Tensor:
        """Return (e − ê)/p of clicks, with the effective target clipped."""
        output, p = self.imputer_output(setting, observed), observed.propensity
        return dr_correction(
            observed.conversion, logit, p, output, form=self.form, target_clip=self.target_clip
        )

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
        """Return what imputed errors of clicks are raised by, if anything."""
        return None

    def finish(self, setting: Setting) -> None:
        """Warn of far targets, once."""
        if self.form.has_label and self.target_clip is None and "imputation" in setting.networks:
            observed = self.weighed(setting, setting.clicks)
            label = self.form.label(self.imputer_output(setting, observed), setting.predicted(observed))
            warn_of_far_targets(self.name, setting, label)
        super().finish(setting)

    def _check(self) -> None:
        super()._check()
        require_target_clip(self.target_clip, self.imputation_form)
        has_label, copying = self.imputation_form == "P1", self.copying()
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

    host: Literal["mrdr", "dr-jl", "dr-bias"] = "mrdr"
    copy: Copy = "host"

    def imputation_weight(self, propensity: Tensor) -> Tensor:
        """Return w of the host."""
        return HOSTS[self.host][0](propensity)

    def copying(self) -> Copy:
        """Return the copy of the host, or as given."""
        return HOSTS[self.host][1] if self.copy == "host" else self.copy
