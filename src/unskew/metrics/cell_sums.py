"""The sums that a sketch keeps for each of its cells."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray


def both(by_outcome: NDArray[Any]) -> NDArray[Any]:
    """Values ``[cell, outcome]`` summed over outcomes: ten times as fast as ``sum`` over so short an axis."""
    return np.asarray(by_outcome[:, 0] + by_outcome[:, 1])


@dataclass(frozen=True, eq=False)
class CellSums:
    """Sums of cells: ``rows, weight, score, square`` are n, Σw, Σwp, Σw² by ``[cell, outcome]``.

    ``inverse`` is Σ wo/p by ``[cell]``, ``totals`` is (Σ w(o − p)², −Σ w log-likelihood) of all rows.
    """

    rows: NDArray[np.int64]
    weight: NDArray[np.float64]
    score: NDArray[np.float64]
    square: NDArray[np.float64]
    inverse: NDArray[np.float64]
    totals: NDArray[np.float64]

    @classmethod
    def empty(cls, size: int) -> CellSums:
        """Sums of no rows."""
        by_outcome = (size, 2)
        return cls(
            rows=np.zeros(by_outcome, dtype=np.int64),
            weight=np.zeros(by_outcome),
            score=np.zeros(by_outcome),
            square=np.zeros(by_outcome),
            inverse=np.zeros(size),
            totals=np.zeros(2),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def add(self, other: CellSums) -> None:
        """Add other sums of the same cells."""
        for name, values in self.arrays().items():
            values += getattr(other, name)

    def take(self, ids: NDArray[np.int64]) -> CellSums:
        """Some of the cells."""
        # `take` is ten times as fast as an index where rows are two numbers long.
        arrays = self.arrays().items()
        return CellSums(**{name: v if name == "totals" else v.take(ids, axis=0) for name, v in arrays})
