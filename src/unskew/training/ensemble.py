"""What the members of an ensemble make together.

Their mean logit is the model; how far they disagree tells where another would predict.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, stdtrit

from unskew.base.estimator import require

LEAST = 1e-15
"""Probabilities of members are kept so far from 0 and 1, where logits would be infinite."""

MOST_MEMBERS = 1000
"""Members of a seed; more are a mistake."""

Floats = NDArray[np.float64]


def combined(members: Floats) -> Floats:
    """σ of the mean logit of members: probabilities ``[…, members, n]`` → ``[…, n]``; those of one stay."""
    if members.shape[-2] == 1:
        return members[..., 0, :]
    return np.asarray(expit(_logits(members).mean(axis=-2)))


def spread(members: Floats) -> Floats:
    """Return the standard deviation ``[n]`` of probabilities ``[K, n]``."""
    return np.asarray(members.std(axis=0, ddof=1))


def interval(members: Floats, level: float) -> Floats:
    r"""Limits ``[2, n]`` between which another member of as many, ``[K, n]``, would predict.

    .. math:: \sigma\left(\bar z \pm t_{K-1} \, s \, \sqrt{1 + 1/K}\right)
    """
    z, count = _logits(members), len(members)
    half = stdtrit(count - 1, (1.0 + level) / 2.0) * z.std(axis=0, ddof=1) * math.sqrt(1.0 + 1.0 / count)
    return np.stack([expit(z.mean(axis=0) - half), expit(z.mean(axis=0) + half)])


def require_several(members: int, name: str) -> None:
    """Raise an error for a model of one network, by the name of its method."""
    require(
        members > 1,
        f"one network of {name} does not tell how far its predictions may be off",
        "fit it with members=5",
    )


def _logits(members: Floats) -> Floats:
    return np.asarray(logit(np.clip(members, LEAST, 1.0 - LEAST)))
