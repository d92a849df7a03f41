"""Losses of clicks and conversions over D, held to propensities that balance predictions (IPS-V2, DR-V2).

Rows and batches as in :mod:`unskew.debias.losses.tasks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from unskew.debias.losses.doubly_robust import dr
from unskew.debias.losses.forms import FORMS, ImputationForm, SquaredPseudoLabel
from unskew.debias.losses.tasks import click_conversion_loss, click_loss, only_clicks
from unskew.debias.losses.weighted import Errors, ips
from unskew.training.means import OnBoth, Space, halves

if TYPE_CHECKING:
    from jaxtyping import Float

FORM_OF_ERRORS: dict[Errors, ImputationForm] = {"ce": FORMS["P1"], "squared": SquaredPseudoLabel()}
"""How a pseudo-label imputes errors of a kind."""


def ips_v2(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: Float[Tensor, "*#batches #B"],
    click_logit: OnBoth,
    *,
    click_conversion_weight: float = 1.0,
    conversion_weight: float = 1.0,
    balance_weight: float = 0.01,
    errors: Errors = "squared",
    p_min: float | Tensor = 0.0,
    **space: Any,
) -> Tensor:
    """L = mean_D (p − o)² + α · mean_D (p·r̂ − o·r)² + β · (1/|D|) Σ_O e/p + γ · (imbalance)².

    Parameters
    ----------
    conversion, logit, propensity, click_logit, space
        As in :func:`escm2_ips`.
    click_conversion_weight, conversion_weight, balance_weight
        α, β and γ.
    errors
        e = (r − r̂)², or ``"ce"`` for cross-entropies in the place of all squares but the last.
    p_min
        What p and 1 − p are clipped at in the imbalance (:func:`squared_imbalance`).

    Examples
    --------
    >>> zero, click = torch.zeros(4), torch.tensor([1.0, 0.0, 1.0, 0.0])
    >>> ips_v2(click, zero, torch.full((4,), 0.5), zero, click=click)
    tensor(0.8125)
    """
    at_clicks = Space(space.get("click")).both(logit)[0]
    conversions = ips(conversion, at_clicks, propensity, errors=errors, **only_clicks(space))
    balance = squared_imbalance(logit, click_logit, p_min=p_min, **space)
    return (
        click_loss(click_logit, errors=errors, **space)
        + click_conversion_weight
        * click_conversion_loss(conversion, logit, click_logit, errors=errors, **space)
        + conversion_weight * conversions
        + balance_weight * balance
    )


def dr_v2(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: Float[Tensor, "*#batches #B"],
    imputation: OnBoth,
    click_logit: OnBoth,
    *,
    click_conversion_weight: float = 1.0,
    conversion_weight: float = 2.0,
    imputation_weight: float = 1.0,
    balance_weight: float = 0.1,
    errors: Errors = "squared",
    p_min: float | Tensor = 0.0,
    **space: Any,
) -> Tensor:
    """L = mean_D (p − o)² + α · mean_D (p·r̂ − o·r)² + β · L_cvr + κ · L_imp + γ · (imbalance)².

    L_cvr is :func:`dr` with errors as here, L_imp :func:`dr_v2_imputation`.

    Parameters
    ----------
    imputation
        Logit of r̃, as in :func:`dr`.
    imputation_weight
        κ; the others as in :func:`ips_v2`.

    Examples
    --------
    >>> zero, click = torch.zeros(4), torch.tensor([1.0, 0.0, 1.0, 0.0])
    >>> dr_v2(click, zero, torch.full((4,), 0.5), zero, zero, click=click)
    tensor(1.3125)
    """
    rest = ips_v2(
        conversion,
        logit,
        propensity,
        click_logit,
        click_conversion_weight=click_conversion_weight,
        conversion_weight=0.0,
        balance_weight=balance_weight,
        errors=errors,
        p_min=p_min,
        **space,
    )
    of_clicks = only_clicks(space)
    whole = Space(**of_clicks)
    imputing = dr_v2_imputation(
        conversion, whole.both(imputation)[0], whole.both(logit)[0], propensity, errors=errors, **of_clicks
    )
    error = dr(conversion, logit, propensity, imputation, form=FORM_OF_ERRORS[errors], **of_clicks)
    return rest + conversion_weight * error + imputation_weight * imputing


def dr_v2_imputation(
    conversion: Float[Tensor, "*#batches #B"],
    imputation: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    propensity: Float[Tensor, "*#batches #B"],
    *,
    click: Tensor | None = None,
    density: float | None = None,
    loss: Literal["residual", "sq"] = "residual",
    errors: Errors = "squared",
    detach_prediction: bool = True,
    detach_propensity: bool = True,
) -> Float[Tensor, " *batches"]:
    """L_imp = (1/|D|) Σ_O (r − r̃)²/p, or as published (1/|D|) Σ_O (e − ê)²/p.

    Parameters
    ----------
    conversion, imputation, logit, propensity, click, density
        As in :func:`dr_jl_imputation`.
    loss
        ``"residual"``, least where r̃ is the rate of conversions; ``"sq"``, as published, least at
        r̃ = r̂ ± √E[e].

    Examples
    --------
    >>> dr_v2_imputation(torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([3.0]), torch.tensor([0.5]))
    tensor(0.5000)
    """
    space, form = Space(click, density), FORM_OF_ERRORS[errors]
    conversion, p = space.known(conversion), space.known(propensity)
    if loss == "residual":
        deviation = conversion - form.label(imputation, logit)
    else:
        deviation = form.deviation(conversion, imputation, logit.detach() if detach_prediction else logit)
    return space.over_clicks(deviation.square() / (p.detach() if detach_propensity else p))


def imbalance(
    logit: OnBoth,
    click_logit: OnBoth,
    *,
    click: Tensor | None = None,
    density: float | None = None,
    unclicked: Tensor | None = None,
    p_min: float | Tensor = 0.0,
) -> Tensor:
    """mean_D [(o/p − (1 − o)/(1 − p)) · r̂], which is 0 for true propensities.

    Examples
    --------
    >>> zero = torch.zeros(2)
    >>> imbalance(zero, zero, click=torch.tensor([1.0, 0.0]))
    tensor(0.)
    """
    space = Space(click, density, unclicked)
    clicked, others = (torch.sigmoid(each) for each in space.both(logit))
    at_clicks, at_cells = space.both(click_logit)
    p, not_p = torch.sigmoid(at_clicks).clamp(min=p_min), torch.sigmoid(-at_cells).clamp(min=p_min)
    return space.over_cells(clicked=clicked / p, unclicked=-others / not_p)


def squared_imbalance(
    logit: OnBoth, click_logit: OnBoth, *, p_min: float | Tensor = 0.0, **space: Any
) -> Tensor:
    """The square of :func:`imbalance`, as the product of two half-batches: a batch's own counts its noise."""
    parts = []
    for part, half in enumerate(Space(**space).halves()):
        at = [_half(each, part) for each in (logit, click_logit)]
        how = {"click": half.click, "density": half.density, "unclicked": half.unclicked}
        parts.append(imbalance(*at, p_min=p_min, **how))  # type: ignore[arg-type]
    return parts[0] * parts[1]


def _half(values: OnBoth, part: int) -> OnBoth:
    if isinstance(values, tuple):
        return halves(values[0])[part], halves(values[1])[part]
    return halves(values)[part]
