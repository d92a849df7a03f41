"""What a place in the whole ranking is worth on a short random slate; evidence.py has the places."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Floats = NDArray[np.float64]
Gain = Literal["dcg", "hits"]


def expected_gain(
    *, above: NDArray[np.int64], others: NDArray[np.int64], slate: int, k: int, gain: Gain
) -> Floats:
    r"""The gain of an item on a slate of other items drawn at random beside it.

    .. math::
        g = \sum_{j < K} \frac{1}{\log_2(j + 2)} \, P(J = j), \qquad
        J \sim \mathrm{Hypergeometric}(C, a, \min(m - 1, C))

    J counts the items of the slate that rank above it when the m − 1 others are drawn from C candidates
    (``others``) of which a (``above``) have a higher score; ``gain="hits"`` puts 1 for the discount.
    A test set of m randomly shown items per user is such a slate, so nothing has to be drawn to know what
    it would give on average.

    Examples
    --------
    >>> expected_gain(above=np.array([0, 1, 5]), others=np.array([9, 9, 9]), slate=10, k=2, gain="hits")
    array([1., 1., 0.])
    """
    span = int(others.max(initial=0)) + 1
    cases, of_case = np.unique(others * span + above, return_inverse=True)
    total, higher = (part[:, None].astype(np.float64) for part in np.divmod(cases, span))
    size = np.minimum(slate - 1.0, total)
    j = np.arange(min(k, slate), dtype=np.float64)
    lower = size - j
    possible = (j <= higher) & (lower >= 0) & (lower <= total - higher)
    log_chance = (
        _log_choose(higher, np.minimum(j, higher))
        + _log_choose(total - higher, np.clip(lower, 0.0, total - higher))
        - _log_choose(total, size)
    )
    worth = 1.0 / np.log2(j + 2.0) if gain == "dcg" else np.ones(len(j))
    value: Floats = (np.where(possible, np.exp(log_chance), 0.0) * worth).sum(axis=1)
    return value[of_case]


def _log_choose(n: Floats, k: Floats) -> Floats:
    result: Floats = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    return result
