"""Weights that balance: kernel means (KB-IPS, KB-DR), imputed errors (StableDR)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from unskew.debias.losses.doubly_robust import dr, imputation_loss
from unskew.training.means import OnBoth, Space, cross_entropy, halves

if TYPE_CHECKING:
    from jaxtyping import Float

Kernel = Literal["gaussian", "exponential"]

SMALLEST_SCALE = 1e-12
"""Keeps a kernel defined where all embeddings coincide."""
CERTAIN = 1e-6
"""A propensity of 1 is taken for 1 minus this, so that it has a logit that can be shifted."""


def kb_ips(
    conversion: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    weight: Float[Tensor, "*#batches #B"],
) -> Float[Tensor, " *batches"]:
    """L = (1/|O|) Σ_O w·CE(r, r̂), w without gradient.

    Parameters
    ----------
    conversion, logit
        r and the logit of r̂, of clicks.
    weight
        w of :func:`balancing_weight`, whose network learns :func:`kernel_balance`.

    Examples
    --------
    >>> kb_ips(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0]), torch.tensor([0.5, 1.5]))
    tensor(0.6931)
    """
    return (weight.detach() * cross_entropy(conversion, logit)).mean(-1)


def kb_dr(
    conversion: Float[Tensor, "*#batches #O"],
    logit: tuple[Tensor, Tensor],
    weight: Float[Tensor, "*#batches #O"],
    imputation: tuple[Tensor, Tensor],
    **options: Any,
) -> Float[Tensor, " *batches"]:
    """L = (1/|D|) Σ_D ê + (1/|O|) Σ_O w·(e − ê), w and ê without gradient: :func:`dr` with w·|D|/|O| for 1/p.

    Parameters
    ----------
    conversion, weight
        r and w of clicks.
    logit, imputation
        Pairs, as in :func:`dr`.
    options
        ``form`` and ``target_clip`` of :func:`dr`; the latter clips r̃ + w·(r − r̃).

    Examples
    --------
    >>> one, zero = torch.ones(1), torch.zeros(1)
    >>> kb_dr(one, (2 * one, zero), one, (zero, zero))  # CE(½, ½) − (r − r̃)·a
    tensor(-0.3069)
    """
    return dr(conversion, logit, 1.0 / weight, imputation, density=1.0, **options)


def kb_dr_imputation(
    conversion: Float[Tensor, "*#batches #B"],
    imputation: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    weight: Float[Tensor, "*#batches #B"],
    **options: Any,
) -> Float[Tensor, " *batches"]:
    """L_imp = (1/|O|) Σ_O w·(e − ê)²; options as in :func:`imputation_loss`.

    Examples
    --------
    >>> one = torch.tensor([1.0])
    >>> kb_dr_imputation(one, 0 * one, 2 * one, 3 * one)
    tensor(3.)
    """
    return imputation_loss(conversion, imputation, logit, weight, **options)


def balancing_weight(
    weight_logit: Float[Tensor, "*#batches #B"], propensity: Float[Tensor, "*#batches #B"]
) -> Float[Tensor, "*batches B"]:
    """w = σ(weight_logit) / p, scaled to mean 1 over a batch of clicks.

    Examples
    --------
    >>> balancing_weight(torch.zeros(2), torch.tensor([0.1, 0.3]))
    tensor([1.5000, 0.5000])
    """
    weight = torch.sigmoid(weight_logit) / propensity
    return weight / weight.mean(-1, keepdim=True)


def kernel_balance(
    weight: Float[Tensor, "*#batches #O"],
    kernel_observed: Float[Tensor, "*#batches #O J"],
    kernel_full: Float[Tensor, "*#batches #D J"],
    *,
    tolerance: float = 0.01,
    gamma: float = 10.0,
) -> Float[Tensor, " *batches"]:
    """L_w = mean_O w·log w + γ Σ_j max(0, |mean_D K(x, x_j) − mean_O w·K(x, x_j)| − C).

    Parameters
    ----------
    weight
        w of :func:`balancing_weight`, on a batch of clicks, with its gradient.
    kernel_observed, kernel_full
        K of the clicks, and of a batch of D, with each of J anchors: from :func:`kernels`.
    tolerance, gamma
        C and γ.

    Examples
    --------
    >>> kernel_balance(torch.ones(2), torch.ones(2, 1), torch.ones(3, 1))
    tensor(0.)
    """
    balanced = (weight.unsqueeze(-1) * kernel_observed).mean(-2)
    excess = torch.relu((kernel_full.mean(-2) - balanced).abs() - tolerance)
    return (weight * weight.log()).mean(-1) + gamma * excess.sum(-1)


def kernels(
    observed: Float[Tensor, "*batches O F"],
    full: Float[Tensor, "*batches D F"],
    *,
    anchors: int = 3,
    kernel: Kernel = "gaussian",
) -> tuple[Float[Tensor, "*batches O J"], Float[Tensor, "*batches D J"]]:
    """K of the rows of both batches with each anchor; the first rows of D are the anchors x_j.

    exp(−‖x − x_j‖² / 2s²) or exp(−‖x − x_j‖ / s), s² the mean of ‖x − x_j‖² over the batch of D, so that
    kernels do not depend on the scale of x.

    Parameters
    ----------
    observed, full
        What describes a row, as the embeddings of the prediction network, on clicks and on a batch of D;
        read without gradient.

    Examples
    --------
    >>> x = torch.tensor([[0.0], [1.0]])
    >>> kernels(x, x, anchors=1)[0]
    tensor([[1.0000],
            [0.3679]])
    """
    observed, full = observed.detach(), full.detach()
    chosen = full[..., :anchors, :]
    # Embeddings start near zero, where distances by matrix products are rounding errors.
    exact = "donot_use_mm_for_euclid_dist"
    distances = [torch.cdist(x, chosen, compute_mode=exact) for x in (observed, full)]
    scale = distances[1].square().mean((-2, -1), keepdim=True).clamp_min(SMALLEST_SCALE)
    if kernel == "gaussian":
        values = [torch.exp(-distance.square() / (2.0 * scale)) for distance in distances]
    else:
        values = [torch.exp(-distance / scale.sqrt()) for distance in distances]
    return values[0], values[1]


def tilted_logit(
    propensity: Float[Tensor, "*#batches #B"],
    imputed: Float[Tensor, "*#batches #B"],
    shift: Float[Tensor, "*#batches #B"],
    tilt: Float[Tensor, "*#batches #B"],
    *,
    centre: float | Tensor = 0.0,
) -> Float[Tensor, "*batches B"]:
    """logit p = logit p̃ + s + t·(ê − Ē), the propensities of StableDR.

    Parameters
    ----------
    propensity, imputed
        p̃ and ê of rows.
    shift, tilt
        s and t.
    centre
        Ē, or any constant in its place, which s makes up for.

    Examples
    --------
    >>> tilted_logit(torch.tensor([0.5]), torch.tensor([2.0]), torch.tensor([0.1]), torch.tensor([0.2]))
    tensor([0.5000])
    """
    return torch.logit(propensity, eps=CERTAIN) + shift + tilt * (imputed - centre)


def stable_dr_propensity(
    propensity: OnBoth,
    imputed: OnBoth,
    shift: OnBoth,
    tilt: OnBoth,
    *,
    constraint: float = 100.0,
    centre: float | Tensor = 0.0,
    p_min: float | Tensor = 0.0,
    click: Tensor | None = None,
    density: float | None = None,
) -> Tensor:
    """L_p = (1/|D|) Σ_D CE(o, p) + η·C², C = (1/|D|) Σ_O (ê − Ē)/p, p by :func:`tilted_logit`.

    How StableDR learns s and t; the square is the product of two half-batches, and s has no gradient in it.
    Then the prediction learns :func:`snips` and the imputer :func:`dr_jl_imputation`, both with p.

    Parameters
    ----------
    propensity, imputed
        p̃ and ê = CE(r̃, r̂) (:func:`imputed_error`), on rows of D with ``click``; or pairs, with ``density``.
    shift, tilt
        s and t, spread over the rows as these are.
    constraint
        η.
    p_min
        What p is clipped at.

    Examples
    --------
    >>> half, zero = torch.full((4,), 0.5), torch.zeros(4)
    >>> stable_dr_propensity(half, zero, zero, zero, click=torch.tensor([1.0, 0.0, 1.0, 0.0]))
    tensor(0.6931)
    """
    space = Space(click, density)
    (given, given_full), (error, error_full) = space.both(propensity), space.both(imputed)
    (s, s_full), (t, t_full) = space.both(shift), space.both(tilt)
    error, error_full = error.detach(), error_full.detach()
    at_clicks = tilted_logit(given, error, s, t, centre=centre)
    at_cells = tilted_logit(given_full, error_full, s_full, t_full, centre=centre)
    # o = 0 everywhere, and then 1 on clicks: no row of the batch of D needs to be looked up.
    likelihood = space.mean(clicked=softplus(-at_clicks) - softplus(at_clicks), everywhere=softplus(at_cells))
    held = tilted_logit(given, error, s.detach(), t, centre=centre)
    p = torch.sigmoid(held).clamp(min=p_min)
    first, second = (
        imputed_imbalance(*parts, click=half.click, density=density)
        for half, *parts in zip(space.halves(), *map(halves, (error, error_full, p)), strict=True)
    )
    return likelihood + constraint * first * second


def imputed_imbalance(
    imputed: Float[Tensor, "*#batches #O"],
    imputed_full: Float[Tensor, "*#batches #D"],
    propensity: Float[Tensor, "*#batches #O"],
    *,
    click: Tensor | None = None,
    density: float | None = None,
) -> Float[Tensor, " *batches"]:
    """C = (1/|D|) Σ_O (ê − mean_D ê)/p.

    Parameters
    ----------
    imputed, propensity
        ê and p of clicks; or of rows of D, with ``click``.
    imputed_full
        ê on D.
    """
    centred = imputed - imputed_full.mean(-1, keepdim=True)
    return Space(click, density).over_clicks(centred / propensity)
