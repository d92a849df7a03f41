"""Calibration error as a loss: binned, with a gradient in the probabilities of each bin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unskew.debias.losses.tasks import click_loss
from unskew.training.means import OnBoth, Space

if TYPE_CHECKING:
    from jaxtyping import Float


def acdr_propensity(
    click_logit: OnBoth,
    edges: Float[Tensor, "*#batches M"],
    *,
    penalty: float = 1.0,
    counts: OnBoth | None = None,
    **space: Any,
) -> Tensor:
    """L_g = mean_D CE(o, p) + λ · ECE, with ECE from :func:`calibration_error`.

    How ACDR learns propensities. Its prediction learns :func:`dr`, its imputer :func:`dr_jl_imputation`.

    Parameters
    ----------
    click_logit
        Logit of p, which has its gradient everywhere ``[..., B]``; or a pair.
    edges, counts
        As in :func:`calibration_error`.
    penalty
        λ.
    space
        ``click``; or ``density`` and ``unclicked``, with pairs.

    Examples
    --------
    >>> acdr_propensity(torch.zeros(2), torch.tensor([0.7]), click=torch.tensor([1.0, 1.0]))
    tensor(1.1931)
    """
    error = calibration_error(click_logit, edges, counts=counts, **space)
    return click_loss(click_logit, **space) + penalty * error


def calibration_error(
    click_logit: OnBoth,
    edges: Float[Tensor, "*#batches M"],
    *,
    counts: OnBoth | None = None,
    **space: Any,
) -> Tensor:
    """L = Σ_m |mean_D 1[p in bin m]·(o − p)|: ECE, whose gradient moves the p of a bin but not its bin.

    Parameters
    ----------
    click_logit
        Logit of p ``[..., B]``; or a pair.
    edges
        Between M + 1 bins, in rising order; from :func:`equal_mass_edges`, for example.
    counts
        1 (or true) on the rows that it is of; all by default.
    space
        ``click``; or ``density`` and ``unclicked``, with pairs.

    Examples
    --------
    >>> calibration_error(torch.zeros(2), torch.tensor([0.7]), click=torch.tensor([1.0, 0.0]))
    tensor(0.)
    """
    whole = Space(**space)
    clicked, full = (torch.sigmoid(each) for each in whole.both(click_logit))
    bins = [
        torch.searchsorted(edges.contiguous(), p.detach().contiguous(), right=True) for p in (clicked, full)
    ]
    counted = (1.0, 1.0) if counts is None else whole.both(counts)
    missing, found = (1.0 - clicked) * counted[0], -full * counted[1]
    total = torch.zeros_like(full[..., 0])
    for each in range(edges.shape[-1] + 1):
        gap = whole.over_cells(clicked=missing * (bins[0] == each), unclicked=found * (bins[1] == each))
        total = total + gap.abs()
    return total


def equal_mass_edges(
    probability: Float[Tensor, "*batches n"], weight: Float[Tensor, "*batches n"], *, bins: int
) -> Float[Tensor, "*batches M"]:
    """Edges between ``bins`` bins of equal weight.

    Examples
    --------
    >>> equal_mass_edges(torch.tensor([0.1, 0.4, 0.2, 0.3]), torch.ones(4), bins=2)
    tensor([0.2000])
    """
    rising, order = probability.sort(dim=-1)
    below = weight.gather(-1, order).cumsum(-1)
    share = torch.arange(1, bins, dtype=below.dtype, device=below.device) / bins
    place = torch.searchsorted(below, (share * below[..., -1:]).contiguous())
    return rising.gather(-1, place.clamp(max=rising.shape[-1] - 1))
