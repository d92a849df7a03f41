"""Imputed errors: what the output of an imputer says about the error of a prediction (METHODS §1.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from unskew.training.means import Space, cross_entropy, squared_error

if TYPE_CHECKING:
    from jaxtyping import Float


FormName = Literal["P1", "P2", "P3"]
"""Pseudo-label, direct error, residual."""


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
    """A form by name, or the one given."""
    return form if isinstance(form, ImputationForm) else FORMS[form]


def imputed_error(
    imputation: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    *,
    form: FormName | ImputationForm = "P1",
) -> Float[Tensor, "*batches B"]:
    """ê of each row, from the output of the imputer and the logit of the prediction; forms as in :func:`dr`.

    Examples
    --------
    >>> import torch
    >>> imputed_error(torch.tensor([0.0]), torch.tensor([2.0]))  # CE(0.5, σ(2))
    tensor([1.1269])
    """
    return form_of(form).imputed(imputation, logit)


def effective_target(
    conversion: Float[Tensor, "*#batches #B"],
    propensity: Float[Tensor, "*#batches #B"],
    label: Float[Tensor, "*#batches #B"],
    *,
    target_clip: float | None = None,
) -> Float[Tensor, "*batches B"]:
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
    conversion: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    propensity: Float[Tensor, "*#batches #B"],
    imputation: Float[Tensor, "*#batches #B"],
    *,
    form: FormName | ImputationForm = "P1",
    target_clip: float | None = None,
) -> Float[Tensor, "*batches B"]:
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
    conversion: Float[Tensor, "*#batches #B"],
    imputation: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    weight: Float[Tensor, "*#batches #B"],
    *,
    click: Tensor | None = None,
    density: float | None = None,
    loss: Literal["sq", "ce"] = "sq",
    form: FormName | ImputationForm = "P1",
    targeting: Float[Tensor, "*#batches #B"] | None = None,
    mean_weight: Tensor | None = None,
    detach_prediction: bool = True,
) -> Float[Tensor, " *batches"]:
    """L_imp = (1/|D|) Σ_O w·(e − ê)², or (1/|D|) Σ_O w·CE(r, r̃).

    Parameters
    ----------
    conversion, imputation, logit, weight
        r, the imputer's output, the logit of the prediction and w: of clicks; or of rows of D, with
        ``click``, where conversion and weight are not read without one.
    loss
        ``"sq"`` as the papers have it, or ``"ce"`` as public code, for ``"P1"`` alone: with P1 the former is
        w·a²·(r − r̃)², which has no gradient where the prediction is undecided (a = 0).
    targeting
        ε·(1/p − 1), which ê is raised by (:func:`tdr_targeting`).
    mean_weight
        The mean of w over all clicks: weights are divided by it, and the loss is a mean over O. (1 − p)²/p³
        is 10⁵ at p = 0.02.
    detach_prediction
        False lets the loss move the prediction too.

    Examples
    --------
    >>> import torch
    >>> one = torch.tensor([1.0])
    >>> imputation_loss(one, torch.tensor([0.0]), torch.tensor([2.0]), one)  # (−(r − r̃)·a)²
    tensor(1.)
    """
    space = Space(click, density)
    conversion, weight = space.known(conversion), space.known(weight).detach()
    if loss == "ce":
        each = cross_entropy(conversion, imputation)
    else:
        fixed = logit.detach() if detach_prediction else logit
        deviation = form_of(form).deviation(conversion, imputation, fixed)
        each = (deviation if targeting is None else deviation - space.known(targeting)).square()
    if mean_weight is not None:
        return space.mean_of_clicks(weight * each / mean_weight)
    return space.over_clicks(weight * each)
