"""Venn-Abers: isotonic regression that says how far it can be trusted, as an interval for each score."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.base.registry import register
from unskew.calibration.calibrator import checked_chunks
from unskew.calibration.grouping import Vector, numeric
from unskew.calibration.step_calibrator import StepCalibrator

RAISED = (
    "leans towards 1/2, so that its propensities come out above the click rate (by 3 to 4 % with 700 clicks,"
    " 14 to 20 % with 75) and the weights 1/p too small; for weights use platt or beta"
)
"""What is said where Venn-Abers makes weights; measured in docs/calibrators/venn_abers.md."""


class RaisedWarning(UserWarning):
    """Propensities of Venn-Abers that become weights: too large in sum."""


def is_raised(calibrator: Any) -> bool:
    """Return whether a fitted calibrator is Venn-Abers, or a choice that fell on it."""
    return isinstance(getattr(calibrator, "choice_", calibrator), VennAbers)


def warn_if_raised(calibrators: Iterable[Any], stacklevel: int = 2) -> None:
    """Say once that weights made of these calibrators' propensities are too small."""
    if any(is_raised(calibrator) for calibrator in calibrators):
        warnings.warn(f"venn_abers {RAISED}", RaisedWarning, stacklevel=stacklevel + 1)


@register(order=80)
@dataclass(kw_only=True, eq=False, repr=False)
class VennAbers(StepCalibrator):
    r"""q(p̂) = p₁/(1 − p₀ + p₁), between two isotonic regressions that see the new row itself.

    p₀(s) and p₁(s) are the isotonic regressions of the calibration rows *and* one more row with score s
    and outcome 0 (or 1), at s. One of them is calibrated, whatever the data (Vovk, Petej and Fedorova
    2015): [p₀, p₁] is the interval, q the value in it of least regret in log loss. Inductive: fit on rows
    that trained nothing. ``lower_``, ``upper_`` and ``values_`` are p₀, p₁ and q of each step between
    ``edges_``.

    Use it where isotonic is wanted and its uncertainty too; it never answers 0 or 1. Not for ranking
    within a block, and not for weights: q is above the base rate on average, by 3 to 4 % with 700 positives.
    All sums are taken over grouped scores, O(groups): on skewed data of any size.

    Examples
    --------
    >>> calibrator = VennAbers().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])
    >>> low, high = calibrator.interval([0.25])
    >>> low.round(3), high.round(3)
    (array([0.333]), array([0.667]))
    """

    name: ClassVar[str] = "venn_abers"
    monotone: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("edges_", "values_", "lower_", "upper_")

    def _fit_points(self, score: Vector, total: Vector, positive: Vector) -> None:
        upper = _isotonic_with_one_more(total, positive)
        # Outcomes and order reversed, the row with outcome 0 is one with outcome 1.
        lower = 1 - _isotonic_with_one_more(total[::-1], (total - positive)[::-1])[::-1]
        # A new score is below the first, at the first, between first and second, at the second, …;
        # between two, p₀ is that of the lower and p₁ that of the higher neighbour.
        edges = np.column_stack([score, np.nextafter(score, 2.0)]).ravel()
        low = np.repeat(np.append(0.0, lower), 2)[1:]
        high = np.repeat(np.append(upper, 1.0), 2)[:-1]
        changes = (np.diff(low) != 0) | (np.diff(high) != 0)
        starts = np.append(True, changes)
        self.edges_, self.lower_, self.upper_ = edges[changes], low[starts], high[starts]
        self.values_ = self.upper_ / (1 - self.lower_ + self.upper_)

    def interval(self, score: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(p₀, p₁) of each score; p₀ may be 0 and p₁ may be 1."""
        self._require_fitted("edges_")
        scores = numeric(score, "score")
        low, high = np.empty(len(scores)), np.empty(len(scores))
        for rows, chunk in checked_chunks(scores):
            step = np.searchsorted(self.edges_, chunk, side="right")
            self.lower_.take(step, out=low[rows])
            self.upper_.take(step, out=high[rows])
        return low, high


def _isotonic_with_one_more(total: Vector, positive: Vector) -> Vector:
    """Return the isotonic regression at each group with one positive row of that group added.

    One sweep over the cumulative sums (Vovk, Petej and Fedorova 2015, Algorithms 1 and 2), O(groups).
    With the extra row at group i, the sums before i are P₀ … P_{i−1} and those from i on are moved by
    (1, 1); the value is the slope of the greatest convex minorant from the one set to the other. Going
    from i to i+1 moves one point only, so the part of the minorant to its right is kept on a stack.
    """
    # Point 0 is P₋₁ = (−1, −1), point 1 the origin: the extra row comes before every group at first.
    x: list[float] = [-1.0, 0.0, *np.cumsum(total).tolist()]
    y: list[float] = [-1.0, 0.0, *np.cumsum(positive).tolist()]

    def push(stack: list[int], new: int) -> None:
        """Put a point on the stack, without those that are no corners of the minorant any more."""
        while len(stack) > 1:
            b, c = stack[-1], stack[-2]
            if (x[b] - x[new]) * (y[c] - y[b]) > (y[b] - y[new]) * (x[c] - x[b]):
                break
            stack.pop()
        stack.append(new)

    stack: list[int] = []
    for point in range(len(x) - 1, -1, -1):
        push(stack, point)
    values = []
    for group in range(len(total)):
        top, after = stack[-1], stack[-2]
        # Beside weights of 16 decades more, a weight adds nothing to the sums: the added row is left.
        width = x[after] - x[top]
        values.append((y[after] - y[top]) / width if width > 0.0 else 1.0)
        new = group + 1
        x[new] = x[group] + x[group + 2] - x[new]
        y[new] = y[group] + y[group + 2] - y[new]
        if (y[new] - y[top]) * (x[after] - x[top]) < (y[after] - y[top]) * (x[new] - x[top]):
            stack.pop()
            push(stack, new)
    return np.array(values)
