"""How much a click counts in training an imputer: what part of bias or variance it answers for."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Numbers = TypeVar("Numbers", Tensor, NDArray[np.float64])


def inverse_weight(propensity: Numbers) -> Numbers:
    """1/p: every pair of D counts the same (DR-JL)."""
    return 1.0 / propensity


def variance_weight(propensity: Numbers) -> Numbers:
    """(1 − p)/p²: the share of a click in Var_DR, with o in the place of the unknown p (MRDR)."""
    return (1.0 - propensity) / propensity**2


def bias_weight(propensity: Numbers) -> Numbers:
    """(1 − p)²/p³: the share of a click in the squared bias of DR (DR-BIAS)."""
    return (1.0 - propensity) ** 2 / propensity**3
