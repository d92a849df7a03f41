"""Smooth ECE on the logit scale: calibration error without bins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from unskew.base.errors import ParameterError
from unskew.metrics.score_cells import cells_of

Array = NDArray[np.float64]

LOGIT_CLIP = 1e-12
"""Scores are clipped here before the logit."""

NARROWEST, WIDEST = 1e-3, 1.0
"""Bandwidths between which the self-consistent one is sought; cells of a sketch are 0.004 to 0.008 wide."""

POINTS_PER_BANDWIDTH = 5
REACH = 6.0
"""The kernel ends after so many bandwidths: the rest of its mass is 2e-9."""

_STEPS = 18


def smooth_ece(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    bandwidth: float | None = None,
) -> float:
    r"""Smooth calibration error on the logit scale (Błasiok and Nakkiran, 2024).

    .. math::
        \mathrm{smECE}_\sigma = \int \Big| \frac1n \sum_i (o_i - p_i)\,
        \varphi_\sigma\big(t - \operatorname{logit} p_i\big) \Big| \, dt, \qquad
        \sigma^*: \ \mathrm{smECE}_{\sigma^*} = \sigma^*

    φ_σ is the normal density with standard deviation ``bandwidth``. Without one, the self-consistent σ*
    is taken, at which the error is as large as the smoothing that reveals it. It has no bins to choose,
    changes continuously with the scores, and on the logit scale treats 0.001 and 0.002 as being as far
    apart as 0.3 and 0.46. From a sketch, scores of one cell (0.4 to 0.8 % wide) count as one.

    Examples
    --------
    >>> import numpy as np
    >>> round(smooth_ece(score=np.full(100, 0.2), outcome=np.arange(100) < 30), 4)
    0.1
    """
    if bandwidth is not None and not 0 < bandwidth < np.inf:
        raise ParameterError(
            f"bandwidth must be a positive number, not {bandwidth!r}", remedy="give a number above 0"
        )
    cells = cells_of(score, outcome, weight)
    place = logit(np.clip(cells.score, LOGIT_CLIP, 1 - LOGIT_CLIP))
    mass = cells.gap / cells.total.sum()
    if bandwidth is not None:
        return smoothed_mass(place, mass, bandwidth)
    low, high = np.log(NARROWEST), np.log(WIDEST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if smoothed_mass(place, mass, float(np.exp(middle))) > np.exp(middle):
            low = middle
        else:
            high = middle
    return smoothed_mass(place, mass, float(np.exp((low + high) / 2)))


def smoothed_mass(place: Array, mass: Array, bandwidth: float) -> float:
    """∫ |Σ mass · φ(t − place)| dt, on a grid of a fifth of the bandwidth.

    Each mass is shared between its two neighbours on the grid. That widens it by a variance of step²/6 on
    average, which the kernel gives back.
    """
    step = bandwidth / POINTS_PER_BANDWIDTH
    margin = int(np.ceil(REACH * POINTS_PER_BANDWIDTH)) + 1
    position = (place - place[0]) / step
    below = np.floor(position).astype(np.int64)
    upper = position - below
    size = int(below[-1]) + 2
    deposited = np.bincount(below, weights=mass * (1 - upper), minlength=size)
    deposited += np.bincount(below + 1, weights=mass * upper, minlength=size)
    offsets = np.arange(-margin, margin + 1) * step
    kernel = np.exp(-(offsets**2) / (2 * (bandwidth**2 - step**2 / 6)))
    kernel /= kernel.sum()
    length = 1 << (size + 2 * margin).bit_length()
    smoothed = np.fft.irfft(np.fft.rfft(deposited, length) * np.fft.rfft(kernel, length), length)
    return float(np.abs(smoothed).sum())
