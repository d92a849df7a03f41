"""Losses of clicks, and of clicks that convert, over D.

Every function takes rows of D with ``click``; or pairs, on a batch of clicks and on a batch drawn uniformly
from D, with ``density`` = |O| / |D| and ``unclicked``, 1 on the rows of the latter that have no click.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from unskew.debias.ips import Errors
from unskew.training.means import (
    OnBoth,
    Space,
)

if TYPE_CHECKING:
    from jaxtyping import Float


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
    >>> import torch
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
    >>> import torch
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


def only_clicks(space: dict[str, Any]) -> dict[str, Any]:
    """Without what only a loss of unclicked rows needs."""
    return {name: value for name, value in space.items() if name != "unclicked"}
