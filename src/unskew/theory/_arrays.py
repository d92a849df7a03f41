"""Checked arrays over the population, and its grouping by propensity; the formulas are left to the others."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.estimator import require_at_least
from unskew.base.numbers import without_mask

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NumberRecord:
    """The base of dataclasses of numbers, which convert to a dictionary."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        return asdict(self)


def numbers(values: Any, name: str) -> Floats:
    """Return finite numbers, flattened."""
    array = np.asarray(without_mask(values), dtype=np.float64).ravel()
    if len(array) == 0:
        raise DataError(f"{name} is empty", remedy="give one value for each pair of the population")
    _reject(~np.isfinite(array), array, name, "is NaN or infinite", "give a value for every pair")
    return array


def true_propensity(values: Any) -> Floats:
    """Check that probabilities lie in [0, 1]."""
    array = numbers(values, "propensity_true")
    wrong = (array < 0) | (array > 1)
    _reject(wrong, array, "propensity_true", "does not lie in [0, 1]", "give probabilities of a click")
    return array


def used_propensity(values: Any, name: str = "propensity_used") -> Floats:
    """Check that probabilities lie in (0, 1]: their inverses are weights."""
    array = numbers(values, name)
    wrong = (array <= 0) | (array > 1)
    _reject(wrong, array, name, "does not lie in (0, 1]", "clip propensities from below (p_min)")
    return array


def clicks(values: Any) -> NDArray[np.bool_]:
    """Return clicks as truth values."""
    array = np.asarray(without_mask(values)).ravel()
    _reject(~((array == 0) | (array == 1)), array, "click", "is not 0 or 1", "encode clicks as 0 and 1")
    clicked: NDArray[np.bool_] = array == 1
    return clicked


def same_length(**arrays: NDArray[Any]) -> None:
    """Check that every array covers the same pairs."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(
            f"arrays cover different numbers of pairs: {shown}",
            remedy="give every array over the same pairs, in the same order",
        )


@dataclass(frozen=True, eq=False)
class Groups:
    """Pairs grouped by the propensity used: level sets, or equal-mass bins of it.

    Attributes
    ----------
    code
        The group of each pair; groups are numbered by rising propensity.
    rows
        Pairs in each group.
    exact
        Whether all pairs of a group have the same propensity.
    """

    code: NDArray[np.int64]
    rows: NDArray[np.int64]
    exact: bool

    @classmethod
    def of(cls, propensity: Floats, bins: int | None) -> Groups:
        """Group by level sets if there are at most ``bins`` (or ``bins`` is None), else by equal-mass bins.

        Equal propensities are never split: a value goes to the bin of its middle rank.
        """
        require_at_least(1, bins=bins)
        levels, code, rows = np.unique(propensity, return_inverse=True, return_counts=True)
        if bins is None or len(levels) <= bins:
            return cls(code=code, rows=rows, exact=True)
        middle = np.cumsum(rows) - rows / 2
        bin_of_level = np.floor(middle / len(propensity) * bins).astype(np.int64)
        _, compact = np.unique(bin_of_level, return_inverse=True)
        binned = compact[code]
        rows = np.bincount(binned)
        return cls(code=binned, rows=rows, exact=len(rows) == len(levels))

    @property
    def share(self) -> Floats:
        """The part of the population in each group."""
        return self.rows / len(self.code)

    def mean(self, values: Floats) -> Floats:
        """Return the mean of each group."""
        return np.asarray(np.bincount(self.code, weights=values) / self.rows)

    def covariance(self, a: Floats, b: Floats) -> Floats:
        """Return Cov(a, b) within each group (dividing by its size)."""
        return self.mean((a - self.mean(a)[self.code]) * (b - self.mean(b)[self.code]))


def _reject(wrong: NDArray[np.bool_], array: NDArray[Any], name: str, problem: str, remedy: str) -> None:
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"value {array[row]} {problem} ({int(wrong.sum())} such pairs)",
            where=f"{name}, pair {row}",
            remedy=remedy,
        )
