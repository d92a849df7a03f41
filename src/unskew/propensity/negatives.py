"""Sampled negatives and the logit offset that undoes them."""

from __future__ import annotations

import math
from typing import Literal

from unskew.errors import ParameterError

Negatives = float | Literal["auto"] | None

MOST_CELLS = 50_000_000
"""Above so many cells of D, ``negatives="auto"`` samples (METHODS §5A, step 2)."""

AUTO_RATIO = 4.0
"""Negatives per click that ``"auto"`` then draws."""


def resolve_ratio(
    negatives: Negatives, population_size: int, *, most_cells: int = MOST_CELLS
) -> float | None:
    """Negatives per click to sample, or None to train over all of D."""
    if negatives == "auto":
        return AUTO_RATIO if population_size > most_cells else None
    if negatives is None:
        return None
    if not (isinstance(negatives, int | float) and negatives > 0):
        raise ParameterError(
            f"negatives must be None, 'auto' or a positive ratio, not {negatives!r}",
            remedy="give one of these",
        )
    return float(negatives)


def logit_offset(ratio: float, n_clicks: int, population_size: int) -> float:
    """log w with w = k·|O| / (|D| − |O|): z_D = z_sample + log w.

    Negatives are kept with probability w and clicks with probability 1, so the odds over D are w times
    those of the sample. ``ratio`` is k. On Coat at 1:1 the offset is −2.442.

    Examples
    --------
    >>> round(logit_offset(1, 6_960, 87_000), 3)
    -2.442
    """
    return math.log(ratio * n_clicks / (population_size - n_clicks))
