"""Isotonic calibrated inverse weights: calibrates 1/p̂ itself, which is what an IPS estimate divides by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.base.registry import register
from unskew.calibration.grouping import Vector
from unskew.calibration.isotonic import pool_adjacent_violators
from unskew.calibration.step_calibrator import StepCalibrator, edges_between


@register(order=100)
@dataclass(kw_only=True, eq=False, repr=False)
class ICIPW(StepCalibrator):
    r"""The weight α(p̂), non-increasing in p̂, of least error as an inverse propensity; q = 1/α.

    .. math:: \min_{α_1 ≥ … ≥ α_J} Σ_j w_j (o_j α_j^2 − 2 α_j)
              \quad⇒\quad α = \frac{Σ_{block} w}{Σ_{block} w·o}

    (van der Laan, Lin, Carone and Luedtke, arXiv 2411.06342.) Up to a constant the criterion is
    E[o·(α − 1/p)²], the squared error of the weights where they are used. Its block optimum is one over
    the block's frequency, a monotone function of it, so pooling adjacent violators gives the blocks of
    isotonic regression. Blocks without a positive would have an infinite weight; they are pooled with
    the next until there is one. Hence in every block Σ w·o·α = Σ w: the weights of the clicked rows add
    up to the population, Σ_O 1/q = |D|, exactly on the calibration rows.

    Use it where the probabilities become IPS weights. Not where the lowest scores have to be ranked:
    all of them share the first block.

    Examples
    --------
    >>> calibrator = ICIPW().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])
    >>> calibrator.weight([0.1, 0.4])
    array([3., 1.])
    """

    name: ClassVar[str] = "ic_ipw"
    monotone: ClassVar[bool] = True

    def _fit_points(self, score: Vector, total: Vector, positive: Vector) -> None:
        blocks = pool_adjacent_violators(score, total, positive)
        pooled = 2 if blocks.positive[0] == 0 else 1
        starts = np.append(0, np.arange(pooled, len(blocks.total)))
        edges = edges_between(blocks.last[starts[1:] - 1], blocks.first[starts[1:]])
        self._set_steps(
            edges, np.add.reduceat(blocks.positive, starts) / np.add.reduceat(blocks.total, starts)
        )

    def weight(self, score: Any) -> NDArray[np.float64]:
        """α, the calibrated inverse propensity of each score."""
        return 1 / self.predict(score)
