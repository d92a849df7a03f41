"""The losses that everything else is made of: cross-entropy on logits and the stratified estimator.

Means are over the last dimension; between replicas and rows there may be several batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float


def cross_entropy(
    target: Float[Tensor, "*#shape"], logit: Float[Tensor, "*#shape"]
) -> Float[Tensor, "*shape"]:
    """CE(t, σ(a)) = softplus(a) − t·a for each element; affine in t, which may leave [0, 1]."""
    return torch.addcmul(torch.nn.functional.softplus(logit), target, logit, value=-1.0)


def stratified(
    *,
    observed: Float[Tensor, "R *batches O"] | None = None,
    full: Float[Tensor, "R *batches D"] | None = None,
    density: float,
) -> Float[Tensor, " R *batches"]:
    """L̂ = mean_{B_D} f + (|O| / |D|) · mean_{B_O} g, the exact stratified estimator of METHODS §1.3.

    It is unbiased for (1/|D|) Σ_D f + (1/|D|) Σ_O g whatever the two batch sizes.

    Parameters
    ----------
    observed
        g on a batch of O, ``[R, B_O]``.
    full
        f on a batch drawn uniformly from D, ``[R, B_D]``.
    density
        |O| / |D|.

    Returns
    -------
    Tensor
        ``[R]``.
    """
    if observed is None and full is None:
        raise ValueError("stratified needs a term over O, over D, or both")
    total = 0.0 if full is None else full.mean(dim=-1)
    if observed is not None:
        total = total + density * observed.mean(dim=-1)
    assert isinstance(total, Tensor)
    return total


def halves(
    values: Float[Tensor, "R *batches B"],
) -> tuple[Float[Tensor, "R *batches first"], Float[Tensor, "R *batches second"]]:
    """The two halves of a batch ``[R, B]``, by place; a batch of one row is both.

    E[A·B] = (E m)² for the means A and B of independent halves, while E[m²] = (E m)² + Var m for the mean m
    of the whole batch: a product of halves estimates the square of an expectation, and its gradient, without
    bias. It may be negative.
    """
    middle = values.shape[-1] // 2
    return (values[..., :middle], values[..., middle:]) if middle else (values, values)


def over_population(
    *,
    clicked: Float[Tensor, "R *batches O"],
    unclicked_observed: Float[Tensor, "R *batches O"],
    unclicked_full: Float[Tensor, "R *batches D"],
    density: float,
) -> Float[Tensor, " R *batches"]:
    """(1/|D|) Σ_D [o·a + (1 − o)·b] = mean_{B_D} b + (|O|/|D|) · mean_{B_O} (a − b).

    The mean over D of a quantity that is a where clicked and b where not, without looking up which cells
    of the batch of D were clicked.

    Parameters
    ----------
    clicked
        a on a batch of O.
    unclicked_observed, unclicked_full
        b on the same batch of O, and on a batch drawn uniformly from D.

    Returns
    -------
    Tensor
        ``[R]``.
    """
    return stratified(observed=clicked - unclicked_observed, full=unclicked_full, density=density)
