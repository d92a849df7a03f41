"""Losses of several tasks over D: clicks, conversions, and clicks that convert.

Every function takes rows of D with ``click``; or pairs, on a batch of clicks and on a batch drawn uniformly
from D, with ``density`` = |O| / |D| and ``unclicked``, 1 on the rows of the latter that have no click.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unskew.debias.losses.doubly_robust import dr, dr_jl_imputation
from unskew.debias.losses.forms import FormName
from unskew.debias.losses.weighted import Errors, ips
from unskew.training.means import OnBoth, Space, cross_entropy, weighted_mean

if TYPE_CHECKING:
    from jaxtyping import Float

LEAST_UNCLICKED = 1e-6
"""Least 1 − p in a weight, as DDPO has it published."""
LEAST_PENALISED = 1e-4
"""Least p in the penalties of GPL, as published."""

logsigmoid = torch.nn.functional.logsigmoid


def click_loss(
    click_logit: OnBoth,
    *,
    click: Tensor | None = None,
    density: float | None = None,
    unclicked: Tensor | None = None,
    errors: Errors = "ce",
) -> Tensor:
    """L = (1/|D|) Σ_D CE(o, p), or mean_D (o − p)².

    Parameters
    ----------
    click_logit
        Logit of p ``[..., B]``; or a pair.

    Examples
    --------
    >>> click_loss(torch.tensor([0.0, 2.0]), click=torch.tensor([1.0, 0.0]))
    tensor(1.4100)
    """
    space = Space(click, density, unclicked)
    observed, full = space.both(click_logit)
    if errors == "squared":
        return space.over_cells(
            clicked=(1.0 - torch.sigmoid(observed)).square(), unclicked=torch.sigmoid(full).square()
        )
    return space.over_cells(clicked=-logsigmoid(observed), unclicked=-logsigmoid(-full))


def click_conversion_loss(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    click_logit: OnBoth,
    *,
    click: Tensor | None = None,
    density: float | None = None,
    unclicked: Tensor | None = None,
    errors: Errors = "ce",
) -> Tensor:
    """L = (1/|D|) Σ_D CE(o·r, p·r̂), the CTCVR loss; or mean_D (o·r − p·r̂)².

    Parameters
    ----------
    conversion
        r of clicks; or of rows of D, with ``click``.
    logit, click_logit
        Logits of r̂ and p ``[..., B]``; or pairs.

    Examples
    --------
    >>> zero = torch.zeros(2)  # p·r̂ = 1/4
    >>> click_conversion_loss(torch.tensor([1.0, 0.0]), zero, zero, click=torch.tensor([1.0, 0.0]))
    tensor(0.8370)
    """
    space = Space(click, density, unclicked)
    conversion = space.known(conversion)
    (at_clicks, at_cells), (p_clicks, p_cells) = space.both(logit), space.both(click_logit)
    if errors == "squared":
        both, both_cells = (
            torch.sigmoid(p) * torch.sigmoid(r) for p, r in ((p_clicks, at_clicks), (p_cells, at_cells))
        )
        return space.over_cells(clicked=(both - conversion).square(), unclicked=both_cells.square())
    both = logsigmoid(p_clicks) + logsigmoid(at_clicks)
    return space.over_cells(
        clicked=-(conversion * both + (1.0 - conversion) * log_not_both(at_clicks, p_clicks)),
        unclicked=-log_not_both(at_cells, p_cells),
    )


def log_not_both(
    logit: Float[Tensor, "*#shape"], click_logit: Float[Tensor, "*#shape"]
) -> Float[Tensor, "*shape"]:
    """log(1 − p·r̂) = log[(1 − p) + p·(1 − r̂)], finite for all logits, also where p·r̂ rounds to 1."""
    return torch.logaddexp(logsigmoid(-click_logit), logsigmoid(click_logit) + logsigmoid(-logit))


def esmm(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    click_logit: OnBoth,
    *,
    click_conversion_weight: float = 1.0,
    **space: Any,
) -> Tensor:
    """L = (1/|D|) Σ_D CE(o, p) + α · (1/|D|) Σ_D CE(o·r, p·r̂).

    Parameters
    ----------
    conversion, logit, click_logit
        As in :func:`click_conversion_loss`.
    click_conversion_weight
        α.
    space
        ``click``; or ``density`` and ``unclicked``, with pairs.

    Examples
    --------
    >>> zero, click = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> esmm(torch.tensor([1.0, 0.0]), zero, zero, click=click)
    tensor(1.5301)
    """
    loss = click_loss(click_logit, **space)
    if click_conversion_weight:
        both = click_conversion_loss(conversion, logit, click_logit, **space)
        loss = loss + click_conversion_weight * both
    return loss


def escm2_ips(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: Float[Tensor, "*#batches #B"],
    click_logit: OnBoth,
    *,
    conversion_weight: float = 1.0,
    click_conversion_weight: float = 1.0,
    **space: Any,
) -> Tensor:
    """L = (1/|D|) Σ_D CE(o, p) + λ_c · (1/|D|) Σ_O CE(r, r̂)/sg(p) + λ_g · (1/|D|) Σ_D CE(o·r, p·r̂).

    Parameters
    ----------
    conversion, logit, click_logit
        As in :func:`click_conversion_loss`.
    propensity
        The p that is a weight, as in :func:`ips`: calibrated, clipped; or σ(click_logit), clipped. It is read
        without gradient.
    conversion_weight, click_conversion_weight
        λ_c and λ_g.
    space
        ``click``; or ``density`` and ``unclicked``, with pairs.

    Examples
    --------
    >>> zero, click = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> escm2_ips(torch.tensor([1.0, 0.0]), zero, torch.tensor([0.5, 0.5]), zero, click=click)
    tensor(2.2233)
    """
    tasks = esmm(conversion, logit, click_logit, click_conversion_weight=click_conversion_weight, **space)
    at_clicks = Space(space.get("click")).both(logit)[0]
    return tasks + conversion_weight * ips(conversion, at_clicks, propensity, **only_clicks(space))


def dr_with_imputation(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: Float[Tensor, "*#batches #B"],
    imputation: OnBoth,
    *,
    form: FormName = "P2",
    detach_prediction: bool = True,
    **space: Any,
) -> Tensor:
    """L_err + L_imp = (1/|D|) Σ_D [ê + o·(e − ê)/sg(p)] + (1/|D|) Σ_O (e − ê)²/sg(p).

    Of towers that share embeddings: apart, P2 would train the prediction exactly as IPS does.

    Parameters
    ----------
    conversion, logit, propensity, imputation
        As in :func:`dr`; the imputation has its gradient in both terms.
    form
        As in :func:`dr`.
    detach_prediction
        False, as published, lets L_imp draw r̂ to where its error is easy to predict.
    space
        ``click``; or ``density``, with pairs.
    """
    of_clicks = only_clicks(space)
    whole = Space(**of_clicks)
    at_clicks, output = whole.both(logit)[0], whole.both(imputation)[0]
    return dr(
        conversion, logit, propensity, imputation, form=form, detach_imputation=False, **of_clicks
    ) + dr_jl_imputation(
        conversion,
        output,
        at_clicks,
        propensity,
        form=form,
        detach_prediction=detach_prediction,
        **of_clicks,
    )


def escm2_dr(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: Float[Tensor, "*#batches #B"],
    imputation: OnBoth,
    click_logit: OnBoth,
    *,
    conversion_weight: float = 1.0,
    click_conversion_weight: float = 1.0,
    form: FormName = "P2",
    detach_prediction: bool = True,
    **space: Any,
) -> Tensor:
    """L = (1/|D|) Σ_D CE(o, p) + λ_c · (L_err + L_imp) + λ_g · (1/|D|) Σ_D CE(o·r, p·r̂).

    Parameters
    ----------
    conversion, logit, propensity, click_logit, conversion_weight, click_conversion_weight, space
        As in :func:`escm2_ips`.
    imputation, form, detach_prediction
        As in :func:`dr_with_imputation`, which is L_err + L_imp.

    Examples
    --------
    >>> zero, click = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> escm2_dr(torch.tensor([1.0, 0.0]), zero, torch.tensor([0.5, 0.5]), zero, zero, click=click)
    tensor(2.2233)
    """
    tasks = esmm(conversion, logit, click_logit, click_conversion_weight=click_conversion_weight, **space)
    conversions = dr_with_imputation(
        conversion, logit, propensity, imputation, form=form, detach_prediction=detach_prediction, **space
    )
    return tasks + conversion_weight * conversions


def ddpo(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: OnBoth,
    soft_label: OnBoth,
    click_logit: OnBoth,
    *,
    conversion_weight: float = 1.0,
    click_conversion_weight: float = 1.0,
    soft_label_weight: float = 1.0,
    soften_clicks: bool = True,
    **space: Any,
) -> Tensor:
    """L = mean_D CE(o, p) + λ_c · mean_D [o·CE(r, c)] + λ_g · mean_D CE(o·r, p·r̂) + λ_r · (L_click + L_non).

    Parameters
    ----------
    conversion, logit, click_logit, space
        As in :func:`escm2_ips`.
    propensity
        The p of weights, on all rows.
    soft_label
        Logit of c ``[..., B]``; or a pair.
    conversion_weight, click_conversion_weight, soft_label_weight
        λ_r, λ_g and λ_c.
    soften_clicks
        As in :func:`ddpo_conversion`, which is L_click + L_non.

    Examples
    --------
    >>> zero, click = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> ddpo(torch.tensor([1.0, 0.0]), zero, torch.tensor([0.5, 0.5]), zero, zero, click=click)
    tensor(3.2630)
    """
    tasks = esmm(conversion, logit, click_logit, click_conversion_weight=click_conversion_weight, **space)
    conversions = ddpo_conversion(
        conversion, logit, propensity, soft_label, soften_clicks=soften_clicks, **space
    )
    learned = ddpo_soft_label(conversion, Space(space.get("click")).both(soft_label)[0], **only_clicks(space))
    return tasks + conversion_weight * conversions + soft_label_weight * learned


def ddpo_conversion(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: OnBoth,
    soft_label: OnBoth,
    *,
    click: Tensor | None = None,
    density: float | None = None,
    unclicked: Tensor | None = None,
    soften_clicks: bool = True,
) -> Tensor:
    """L_click + L_non of :func:`ddpo`, whose parameters these are.

    L_click = Σ_O CE(min(r + sg(c), 1), r̂)/p ÷ Σ_O 1/p,
    L_non = Σ_{D∖O} CE(sg(c), r̂)/(1 − p) ÷ Σ_{D∖O} 1/(1 − p).

    Parameters
    ----------
    soften_clicks
        False takes r itself as the label of a click, which does not make rates too high.
    """
    space = Space(click, density, unclicked)
    conversion = space.known(conversion)
    (at_clicks, at_cells), (p, p_cells) = space.both(logit), space.both(propensity)
    soft, soft_cells = (torch.sigmoid(each).detach() for each in space.both(soft_label))
    label = (conversion + soft).clamp(max=1.0) if soften_clicks else conversion
    clicks = space.normalised(cross_entropy(label, at_clicks), 1.0 / p.detach())
    is_unclicked = unclicked if click is None else (click <= 0).to(p.dtype)
    assert is_unclicked is not None
    others = weighted_mean(
        cross_entropy(soft_cells, at_cells),
        is_unclicked / (1.0 - p_cells.detach()).clamp(min=LEAST_UNCLICKED),
        least=LEAST_UNCLICKED,
    )
    return clicks + others


def ddpo_soft_label(
    conversion: Float[Tensor, "*#batches #B"],
    soft_label: Float[Tensor, "*#batches #B"],
    *,
    click: Tensor | None = None,
    density: float | None = None,
) -> Float[Tensor, " *batches"]:
    """L = (1/|D|) Σ_O CE(r, c): how the third tower of :func:`ddpo` learns, from clicks."""
    space = Space(click, density)
    return space.over_clicks(cross_entropy(space.known(conversion), soft_label))


def dcmt(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: OnBoth,
    counterfactual: OnBoth,
    click_logit: OnBoth,
    *,
    conversion_weight: float = 1.0,
    click_conversion_weight: float = 1.0,
    sum_weight: float = 0.01,
    p_min: float | Tensor = LEAST_UNCLICKED,
    **space: Any,
) -> Tensor:
    """L = mean_D CE(o, p) + λ_c · L_cvr + λ_g · mean_D CE(o·r, p·r̂), L_cvr from :func:`dcmt_conversion`.

    Parameters
    ----------
    conversion, logit, click_logit, space
        As in :func:`escm2_ips`.
    propensity
        The p of weights, on all rows.
    counterfactual
        Logit of r̂* ``[..., B]``; or a pair.
    conversion_weight, click_conversion_weight, sum_weight
        λ_c, λ_g and λ.
    p_min
        What 1 − p is clipped at.

    Examples
    --------
    >>> zero, click = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> dcmt(torch.tensor([1.0, 0.0]), zero, torch.tensor([0.5, 0.5]), zero, zero, click=click)
    tensor(2.9164)
    """
    tasks = esmm(conversion, logit, click_logit, click_conversion_weight=click_conversion_weight, **space)
    conversions = dcmt_conversion(
        conversion, logit, propensity, counterfactual, sum_weight=sum_weight, p_min=p_min, **space
    )
    return tasks + conversion_weight * conversions


def dcmt_conversion(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: OnBoth,
    counterfactual: OnBoth,
    *,
    sum_weight: float = 0.01,
    p_min: float | Tensor = LEAST_UNCLICKED,
    **space: Any,
) -> Tensor:
    """L_cvr = (1/|D|) [Σ_O CE(r, r̂)/p + Σ_{D∖O} CE(1, r̂*)/(1 − p)] + λ · mean_D |1 − (r̂ + r̂*)|.

    p and 1 − p are read without gradient; parameters are those of :func:`dcmt`.
    """
    whole = Space(**space)
    (factual, factual_cells), (other, other_cells) = whole.both(logit), whole.both(counterfactual)
    p, p_cells = (each.detach() for each in whole.both(propensity))
    errors = whole.over_cells(
        clicked=cross_entropy(whole.known(conversion), factual) / whole.known(p),
        unclicked=-logsigmoid(other_cells) / (1.0 - p_cells).clamp(min=p_min),
    )
    off = whole.over_cells(clicked=_off_one(factual, other), unclicked=_off_one(factual_cells, other_cells))
    return errors + sum_weight * off


def _off_one(logit: Tensor, other: Tensor) -> Tensor:
    """|1 − (r̂ + r̂*)| = |σ(−a) − σ(a*)|."""
    return (torch.sigmoid(-logit) - torch.sigmoid(other)).abs()


def gpl_propensity(
    deviation: Float[Tensor, "*#batches #B"],
    click_logit: OnBoth,
    *,
    penalty: float = 0.7,
    bias_share: float = 0.7,
    count: float,
    **space: Any,
) -> Tensor:
    """L_g = mean_D CE(o, p) + α · [β · mean_D (o − p)²·(δ/p)² + (1 − β) · mean_D o·(δ/p)² / n].

    How GPL learns propensities: δ is 0 where nothing was clicked, so both penalties are sums over clicks.
    Its prediction learns :func:`dr`, its imputer :func:`mrdr_imputation`.

    Parameters
    ----------
    deviation
        δ = e − ê of clicks, read without gradient; or of rows of D, with ``click``.
    click_logit
        Logit of p, which has its gradient everywhere ``[..., B]``; or a pair.
    penalty, bias_share, count
        α, β and n: the rows of a batch (published code), or of D (its erratum).
    space
        ``click``; or ``density`` and ``unclicked``, with pairs.

    Examples
    --------
    >>> zero, click = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> gpl_propensity(torch.tensor([1.0, 0.0]), zero, count=2, click=click)
    tensor(1.1481)
    """
    whole = Space(**only_clicks(space))
    p = torch.sigmoid(whole.both(click_logit)[0]).clamp(min=LEAST_PENALISED)
    ratio = (whole.known(deviation).detach() / p).square()
    bias, variance = whole.over_clicks((1.0 - p).square() * ratio), whole.over_clicks(ratio)
    penalties = bias_share * bias + (1.0 - bias_share) * variance / count
    return click_loss(click_logit, **space) + penalty * penalties


def only_clicks(space: dict[str, Any]) -> dict[str, Any]:
    """Without what only a loss of unclicked rows needs."""
    return {name: value for name, value in space.items() if name != "unclicked"}
