"""Complete matrices of conversion rates for semi-synthetic studies, and five predictions of them.

Rates come from the synthetic world, or from MovieLens-100K completed by matrix factorisation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.datasets import load
from unskew.errors import DataError

Floats = NDArray[np.float64]

RATES = (0.1, 0.3, 0.5, 0.7, 0.9)
SHARES = (0.53, 0.24, 0.14, 0.07, 0.02)
"""Conversion rates of a complete matrix and how many pairs have each, as in MRDR's study: about the
distribution of ratings in the randomly shown part of Yahoo! R3."""

PREDICTIONS = ("ONE", "THREE", "FIVE", "SKEW", "CRS")

MOVIELENS = "u.data"
FACTORS, PENALTY, SWEEPS = 16, 5.0, 15
"""Alternating least squares that completes MovieLens: dimension, ridge penalty, sweeps."""


def conversion_rates(root: str | Path | None, seed: int, **world: Any) -> Floats:
    """One of :data:`RATES` for every pair ``[|D|]``, by rank of a score: the synthetic world's conversion
    probability, or the completed rating where ``root`` has MovieLens-100K."""
    if root is None:
        truth = load("synthetic", **{"seed": seed, **world}).truth
        assert truth is not None
        score = truth.conversion.ravel()
    else:
        score = _completed_ratings(Path(root), seed)
    bounds = np.floor(len(score) * np.cumsum((0.0, *SHARES)) + 1e-9).astype(np.int64)
    rates = np.empty(len(score))
    rates[np.argsort(score, kind="stable")] = np.repeat(RATES, np.diff(bounds))
    return rates


def predictions_of(rates: Floats, random: np.random.Generator) -> dict[str, Floats]:
    """Five flawed predictions of the rates, with the names of the study they come from.

    ONE, THREE, FIVE: as many pairs of rate 0.1 (0.3, 0.5) as there are of 0.9 are taken for 0.9. SKEW: normal
    around the rate with deviation (1 − rate)/2, clipped to [0.1, 0.9]. CRS: 0.1 where the rate is at least
    0.7, else 0.5.
    """
    highest = int((rates == RATES[-1]).sum())
    result = {}
    for name, rate in zip(PREDICTIONS[:3], RATES, strict=False):
        flipped = rates.copy()
        flipped[random.choice(np.flatnonzero(rates == rate), highest, replace=False)] = RATES[-1]
        result[name] = flipped
    result["SKEW"] = np.clip(random.normal(rates, (1 - rates) / 2), RATES[0], RATES[-1])
    result["CRS"] = np.where(rates >= 0.7, 0.1, 0.5)
    return result


def _completed_ratings(root: Path, seed: int) -> Floats:
    path = root / MOVIELENS if root.is_dir() else root
    if not path.is_file():
        raise DataError(
            f"{MOVIELENS} of MovieLens-100K is not there",
            where=str(root),
            remedy="download ml-100k.zip from https://grouplens.org/datasets/movielens/100k/ and unpack it",
        )
    try:
        table = np.loadtxt(path, usecols=(0, 1, 2), dtype=np.float64, ndmin=2)
    except ValueError as error:
        raise DataError(
            f"is not MovieLens-100K: {error}", where=str(path), remedy="give ml-100k/u.data as it comes"
        ) from error
    (users, user), (items, item) = (np.unique(table[:, k], return_inverse=True) for k in (0, 1))
    centre = table[:, 2].mean()
    return _factorised(user, item, table[:, 2] - centre, (len(users), len(items)), seed).ravel()


def _factorised(
    user: NDArray[np.int64], item: NDArray[np.int64], rating: Floats, shape: tuple[int, int], seed: int
) -> Floats:
    """Ratings of all pairs by alternating least squares; a constant factor on each side is its bias."""
    random = np.random.default_rng([seed, 5])
    sides = [0.1 * random.standard_normal((size, FACTORS + 2)) for size in shape]
    sides[0][:, 0], sides[1][:, 1] = 1.0, 1.0
    codes = (user, item)
    orders = [np.argsort(code, kind="stable") for code in codes]
    for _ in range(SWEEPS):
        for this, other in ((0, 1), (1, 0)):
            bounds = np.searchsorted(codes[this][orders[this]], np.arange(shape[this] + 1))
            free = np.arange(FACTORS + 2) != this
            for row in range(shape[this]):
                seen = orders[this][bounds[row] : bounds[row + 1]]
                design = sides[other][codes[other][seen]]
                left = rating[seen] - design[:, this]
                design = design[:, free]
                square = design.T @ design + PENALTY * np.eye(FACTORS + 1)
                sides[this][row, free] = np.linalg.solve(square, design.T @ left)
    return np.asarray(sides[0] @ sides[1].T)
