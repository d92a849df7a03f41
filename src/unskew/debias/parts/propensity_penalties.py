"""What a propensity costs a doubly robust estimate: squared bias and variance, as penalties to learn by."""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.training import stratified

FLOOR = 1e-4
"""Least p in the penalties, as published."""


def penalties(click: Tensor, propensity: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
    """(o − p)²·(δ/p)² and o·(δ/p)² of each pair."""
    ratio = (deviation / propensity).square()
    return (click - propensity).square() * ratio, click * ratio


def mean_penalties(click_logit: Tensor, deviation: Tensor, density: float) -> tuple[Tensor, Tensor]:
    """Means over D of both penalties ``[R]``; δ is 0 where nothing was clicked, so a batch of O is enough.

    Parameters
    ----------
    click_logit, deviation
        logit p, with its gradient, and δ = e − ê, without one, on a batch of O.
    density
        |O| / |D|.
    """
    p = torch.sigmoid(click_logit).clamp(min=FLOOR)
    bias, variance = (
        stratified(observed=each, density=density) for each in penalties(torch.ones_like(p), p, deviation)
    )
    return bias, variance
