"""Doubly robust losses: of predictions, of imputers, and the weights by which these differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from unskew.debias.losses.forms import FormName, ImputationForm, form_of
from unskew.metrics.sample_weight import bias_weight, error_weight, inverse_weight, variance_weight
from unskew.training.means import OnBoth, Space, cross_entropy

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


def dr(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: Float[Tensor, "*#batches #B"],
    imputation: OnBoth,
    *,
    click: Tensor | None = None,
    density: float | None = None,
    form: FormName | ImputationForm = "P1",
    target_clip: float | None = None,
    detach_propensity: bool = True,
    detach_imputation: bool = True,
) -> Float[Tensor, " *batches"]:
    """L = (1/|D|) Σ_D [ê + o·(e − ê)/p], e = CE(r, r̂), ê = CE(r̃, r̂).

    Unbiased for the ideal loss if either p or ê is true. :func:`constant_imputation` gives an imputation
    without a model (``dr``); ``dr_jl``, ``mrdr``, ``dr_bias`` and ``dr_mse`` learn one, each by its own loss
    (:func:`dr_jl_imputation` and so on), in turn with this one.

    Parameters
    ----------
    conversion, propensity
        r and p of clicks; or of rows of D, with ``click``, where neither is read without one.
    logit, imputation
        The logit of r̂, and the output b of the imputer (for ``"P1"`` the logit of r̃): on rows of D, with
        ``click``; or each a pair, on the batch of clicks and on a batch drawn uniformly from D.
    density
        |O| / |D|, with pairs.
    form
        What b says: ``"P1"`` r̃ = σ(b); ``"P2"`` ê = softplus(b); ``"P3"`` r − r̂ is b, and errors are squared.
    target_clip
        τ: effective targets r̃ + (r − r̃)/p are clipped to [−τ, 1 + τ].
    detach_propensity, detach_imputation
        False lets the loss move p, or the imputer.

    Examples
    --------
    An imputation that is right where nothing was clicked leaves the loss as it would be if all were known:

    >>> click, conversion = torch.tensor([1.0, 0.0]), torch.tensor([1.0, float("nan")])
    >>> logit, p = torch.tensor([0.5, -0.5]), torch.tensor([0.5, 0.5])
    >>> dr(conversion, logit, p, torch.tensor([30.0, -30.0]), click=click)
    tensor(0.4741)
    """
    space = Space(click, density)
    (logit, everywhere), (output, imputed) = space.both(logit), space.both(imputation)
    if detach_imputation:
        output, imputed = output.detach(), imputed.detach()
    propensity = space.known(propensity)
    each = dr_correction(
        space.known(conversion),
        logit,
        propensity.detach() if detach_propensity else propensity,
        output,
        form=form,
        target_clip=target_clip,
    )
    return space.mean(clicked=each, everywhere=imputed_error(imputed, everywhere, form=form))


def eib(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    imputation: OnBoth,
    *,
    click: Tensor | None = None,
    density: float | None = None,
    form: FormName | ImputationForm = "P1",
) -> Float[Tensor, " *batches"]:
    """L = (1/|D|) Σ_D [o·e + (1 − o)·ê]: :func:`dr` with p = 1.

    Its imputer learns mean_O CE(r, r̃): :func:`imputation_loss` with weights of 1 and ``loss="ce"``.

    Parameters
    ----------
    conversion, logit, imputation, click, density, form
        As in :func:`dr`.

    Examples
    --------
    >>> click, conversion = torch.tensor([1.0, 0.0]), torch.tensor([1.0, float("nan")])
    >>> eib(conversion, torch.tensor([0.5, -0.5]), torch.tensor([0.0, -30.0]), click=click)
    tensor(0.4741)
    """
    return dr(
        conversion, logit, torch.ones_like(conversion), imputation, click=click, density=density, form=form
    )


def cdr(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: Float[Tensor, "*#batches #B"],
    imputation: OnBoth,
    trusted: OnBoth,
    *,
    click: Tensor | None = None,
    density: float | None = None,
    form: FormName | ImputationForm = "P1",
    target_clip: float | None = None,
) -> Float[Tensor, " *batches"]:
    """L = (1/|D|) Σ_D [o·e/p + γ·ê·(1 − o/p)].

    :func:`dr` where the imputer is trusted, :func:`ips` where it is not. The imputer learns the loss of
    MRDR, DR-JL or DR-BIAS.

    Parameters
    ----------
    conversion, logit, propensity, imputation, click, density, form, target_clip
        As in :func:`dr`.
    trusted
        γ as truth values, from :func:`cdr_trusted`; a pair where ``logit`` is one.

    Examples
    --------
    >>> one, zero = torch.ones(1), torch.zeros(1)  # A click, as in IPS: CE(1, σ(2)) / 0.5
    >>> cdr(one, 2 * one, one / 2, zero, torch.tensor([False]), click=one)
    tensor(0.2539)
    """
    space = Space(click, density)
    (logit, everywhere), (output, imputed) = space.both(logit), space.both(imputation)
    known = space.known(conversion), logit, space.known(propensity).detach(), output.detach()
    sure, sure_everywhere = space.both(trusted)
    return space.mean(
        clicked=cdr_correction(*known, sure, form=form, target_clip=target_clip),
        everywhere=imputed_error(imputed.detach(), everywhere, form=form) * sure_everywhere,
    )


def cdr_trusted(imputed: Float[Tensor, "M *batches B"], *, threshold: float) -> Bool[Tensor, "*batches B"]:
    """γ = 1[σ̂/μ̂ < η]: where imputed errors of M thinned imputers agree.

    Parameters
    ----------
    imputed
        ê (:func:`imputed_error`) of each, as with M dropout masks on the imputer's embeddings.
    threshold
        η.

    Examples
    --------
    >>> cdr_trusted(torch.tensor([[1.0, 1.0], [1.1, 3.0]]), threshold=0.1)
    tensor([ True, False])
    """
    deviation, mean = torch.std_mean(imputed.detach(), dim=0)
    return deviation < threshold * mean


def imputed_error(
    imputation: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    *,
    form: FormName | ImputationForm = "P1",
) -> Float[Tensor, "*batches B"]:
    """ê of each row, from the output of the imputer and the logit of the prediction; forms as in :func:`dr`.

    Examples
    --------
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
    >>> dr_correction(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([0.5]), torch.tensor([0.0]))
    tensor([-2.])
    """
    form = form_of(form)
    if not form.has_label:
        return form.deviation(conversion, imputation, logit) / propensity
    label = form.label(imputation, logit)
    target = effective_target(conversion, propensity, label, target_clip=target_clip)
    return form.shifted(conversion, imputation, logit, target - label)


def cdr_correction(
    conversion: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    propensity: Float[Tensor, "*#batches #B"],
    imputation: Float[Tensor, "*#batches #B"],
    trusted: Bool[Tensor, "*#batches #B"],
    *,
    form: FormName | ImputationForm = "P1",
    target_clip: float | None = None,
) -> Float[Tensor, "*batches B"]:
    """(e − γ·ê)/p of each click; parameters as in :func:`cdr`."""
    doubly_robust = dr_correction(
        conversion, logit, propensity, imputation, form=form, target_clip=target_clip
    )
    return torch.where(trusted, doubly_robust, form_of(form).error(conversion, logit) / propensity)


def constant_imputation(
    conversion: Float[Tensor, "*#batches #B"],
    propensity: Float[Tensor, "*#batches #B"],
    *,
    click: Tensor | None = None,
) -> Float[Tensor, "*batches 1"]:
    """logit r̃ with r̃ = Σ_O r/p / Σ_O 1/p, the conversion rate over D: for :func:`dr` without an imputer.

    Parameters
    ----------
    conversion, propensity
        r and p of all training clicks; or of rows of D, with ``click``.

    Examples
    --------
    >>> constant_imputation(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))
    tensor([0.])
    """
    space = Space(click)
    rate = space.normalised(space.known(conversion), 1.0 / space.known(propensity))
    # A log in which every click converted, or none, has no finite logit.
    return torch.logit(rate.unsqueeze(-1), eps=torch.finfo(torch.float32).eps)


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


def dr_jl_imputation(
    conversion: Tensor, imputation: Tensor, logit: Tensor, propensity: Tensor, **options: Any
) -> Tensor:
    """L_imp = (1/|D|) Σ_O (e − ê)²/p.

    Parameters
    ----------
    conversion, imputation, logit, propensity
        r, the imputer's output, the logit of the prediction (held fixed) and p, ``[..., B]``: of clicks; or
        of rows of D, with ``click``.
    options
        ``click``, ``density``, ``loss``, ``form``, ``targeting``, ``mean_weight`` and ``detach_prediction``
        of :func:`imputation_loss`.

    Examples
    --------
    >>> one = torch.tensor([1.0])
    >>> dr_jl_imputation(one, 0 * one, 2 * one, one / 4)
    tensor(4.)
    """
    return imputation_loss(conversion, imputation, logit, inverse_weight(propensity), **options)


def mrdr_imputation(
    conversion: Tensor, imputation: Tensor, logit: Tensor, propensity: Tensor, **options: Any
) -> Tensor:
    """L_imp = (1/|D|) Σ_O (1 − p)/p² · (e − ê)²; parameters as in :func:`dr_jl_imputation`.

    Examples
    --------
    >>> one = torch.tensor([1.0])
    >>> mrdr_imputation(one, 0 * one, 2 * one, one / 2)
    tensor(2.)
    """
    return imputation_loss(conversion, imputation, logit, variance_weight(propensity), **options)


def dr_bias_imputation(
    conversion: Tensor, imputation: Tensor, logit: Tensor, propensity: Tensor, **options: Any
) -> Tensor:
    """L_imp = (1/|D|) Σ_O (1 − p)²/p³ · (e − ê)²; parameters as in :func:`dr_jl_imputation`.

    Examples
    --------
    >>> one = torch.tensor([1.0])
    >>> dr_bias_imputation(one, 0 * one, 2 * one, one / 4)
    tensor(36.)
    """
    return imputation_loss(conversion, imputation, logit, bias_weight(propensity), **options)


def dr_mse_imputation(
    conversion: Tensor,
    imputation: Tensor,
    logit: Tensor,
    propensity: Tensor,
    *,
    bias_share: float = 0.5,
    **options: Any,
) -> Tensor:
    """L_imp = (1/|D|) Σ_O [λ·(1 − p)²/p³ + (1 − λ)·(1 − p)/p²] · (e − ê)²; as :func:`dr_jl_imputation`.

    Parameters
    ----------
    bias_share
        λ.

    Examples
    --------
    >>> one = torch.tensor([1.0])
    >>> dr_mse_imputation(one, 0 * one, 2 * one, one / 4)
    tensor(24.)
    """
    weight = error_weight(propensity, bias_share=bias_share)
    return imputation_loss(conversion, imputation, logit, weight, **options)


def tdr_epsilon(
    conversion: Float[Tensor, "*#batches #B"],
    imputation: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    propensity: Float[Tensor, "*#batches #B"],
    *,
    form: FormName | ImputationForm = "P1",
) -> Float[Tensor, "*batches 1"]:
    """ε = Σ_O (e − ê)(1/p − 1) / Σ_O (1/p − 1)², over all clicks and without gradient.

    TDR trains its prediction by :func:`dr` and its imputer by its host's loss with
    ``targeting=tdr_targeting(epsilon, propensity)``.

    Examples
    --------
    >>> one = torch.tensor([1.0])
    >>> tdr_epsilon(one, 0 * one, 2 * one, one / 4)  # (e − ê) = −1, 1/p − 1 = 3
    tensor([-0.3333])
    """
    deviation = form_of(form).deviation(conversion, imputation, logit).detach()
    odds = 1.0 / propensity - 1.0
    square = odds.square().sum(-1, keepdim=True)
    # Where every p is 1 there is nothing to target.
    return (deviation * odds).sum(-1, keepdim=True) / torch.where(square > 0, square, 1.0)


def tdr_targeting(
    epsilon: Float[Tensor, "*#batches 1"], propensity: Float[Tensor, "*#batches #B"]
) -> Float[Tensor, "*batches B"]:
    """ε·(1/p − 1): what TDR adds to imputed errors of clicks.

    Examples
    --------
    >>> tdr_targeting(torch.tensor([0.5]), torch.tensor([0.25, 1.0]))
    tensor([1.5000, 0.0000])
    """
    return epsilon * (1.0 / propensity - 1.0)
