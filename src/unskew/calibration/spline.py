"""A monotone cubic spline on the logit scale: Platt scaling that may bend where the data ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.base.estimator import require_above, require_at_least
from unskew.base.registry import register
from unskew.calibration import sql
from unskew.calibration.calibrator import LARGEST_LOGIT, Calibrator, inside, logits, sigmoid
from unskew.calibration.grouping import Grouped, Vector, both_classes, folds_of, log_loss
from unskew.calibration.logistic_fit import fit_logistic
from unskew.calibration.platt import FELL_BACK, Platt, worse_than_platt

SLOPE_DEGREE = 2
"""The slope is a quadratic spline, its integral a cubic one."""

PENALTIES = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
"""What cross-validation chooses from, in the penalty's unit: rows' worth of log-likelihood."""

TAIL = 0.01
"""Share of the data beyond the outer knots at each end, where the spline goes on as a straight line."""


@register(order=50)
@dataclass(kw_only=True, eq=False, repr=False)
class Spline(Calibrator):
    r"""q(p̂) = σ(η(z)), z = logit p̂, where η is a non-decreasing cubic spline with straight tails.

    .. math:: η(z) = c + ∫^z Σ_k β_k B_k(t)\,dt,\quad β_k ≥ 0, \qquad
              \min −\log L + \tfrac{λ}{2} Σ_k (β_{k+1} − β_k)^2

    B_k are ``pieces`` quadratic B-splines, which sum to 1: equal β are a straight line, so λ (``penalty``)
    shrinks towards Platt scaling and β ≥ 0 keeps the order of the scores. Knots are quantiles, half of
    all rows and half of the positives. The intercept is free: the mean prediction is the base rate.

    Use it from some thousand rows on where the reliability curve bends on the logit scale; smoother than
    isotonic, without ties, and sound beyond the data. Not for jumps.

    Parameters
    ----------
    pieces
        Number of B-splines, at least 3; with the penalty at work more of them change little.
    penalty
        λ; None chooses among 0.1 … 10⁴ by cross-validated log loss.
    folds, seed
        Of that cross-validation.

    Examples
    --------
    >>> score, outcome = [0.1, 0.1, 0.4, 0.4, 0.8, 0.8], [0, 0, 0, 1, 0, 1]
    >>> bool(abs(Spline(penalty=1.0).fit(score, outcome).predict(score).mean() - 1 / 3) < 1e-9)
    True
    """

    name: ClassVar[str] = "spline"
    monotone: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("penalty_", "breaks_", "coefficients_", "end_slopes_")

    pieces: int = 8
    penalty: float | None = None
    folds: int = 5
    seed: int = 0

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_at_least(SLOPE_DEGREE + 1, pieces=self.pieces)
        require_above(0, penalty=self.penalty)
        require_at_least(2, folds=self.folds)

    def _fit_grouped(self, points: Grouped) -> None:
        basis = SplineBasis.of(points, self.pieces)
        self.penalty_ = self.penalty if self.penalty is not None else self._choose(basis, points)
        platt = Platt()._fit_on(points)
        line = _straight(basis, platt)
        fitted = _fit(basis.features(logits(points.score)), points, self.penalty_, start=line)
        self._learn(basis, *(fitted or line))
        if fitted is None or worse_than_platt(self, platt, points):
            self._learn(basis, *line)
            self.message_ = FELL_BACK

    def _learn(self, basis: SplineBasis, slopes: Vector, intercept: float) -> None:
        self.breaks_ = basis.breaks
        self.coefficients_ = basis.cubics() @ slopes
        self.coefficients_[-1] += intercept
        self.end_slopes_ = slopes[[0, -1]]

    def _fit_points(self, score: Vector, total: Vector, positive: Vector) -> None:
        self._fit_grouped(Grouped.unweighted(score, total, positive))

    def _predict(self, score: Vector) -> Vector:
        z = logits(score)
        within = np.clip(z, self.breaks_[0], self.breaks_[-1])
        beyond = z - within
        eta = _evaluated(self.coefficients_, self.breaks_, within)
        eta += np.where(beyond < 0, self.end_slopes_[0], self.end_slopes_[1]) * beyond
        return sigmoid(eta)

    def _sql(self, score: str, safe: str, dialect: sql.Dialect) -> str:
        z = sql.logit(safe)
        first, last = (float(end) for end in self.breaks_[[0, -1]])
        pieces = []
        for start, powers in zip(self.breaks_[:-1], self.coefficients_.T, strict=True):
            beyond, cubic = f"({z} - {sql.double(start)})", sql.double(powers[0])
            for power in powers[1:]:
                cubic = f"({cubic} * {beyond} + {sql.double(power)})"
            pieces.append(cubic)
        start, end = _evaluated(self.coefficients_, self.breaks_, self.breaks_[[0, -1]]).tolist()
        low, high = (float(slope) for slope in self.end_slopes_)
        tails = [
            f"({sql.double(value)} + {sql.double(slope)} * ({z} - {sql.double(place)}))"
            for value, slope, place in ((start, low, first), (end, high, last))
        ]
        within = sql.steps(z, self.breaks_[1:-1].tolist(), pieces)
        cases = [(f"{z} < {sql.double(first)}", tails[0]), (f"{z} > {sql.double(last)}", tails[1])]
        return sql.sigmoid(sql.switch(cases, within), LARGEST_LOGIT)

    def _choose(self, basis: SplineBasis, points: Grouped) -> float:
        loss = np.zeros(len(PENALTIES))
        for training, held_out in folds_of(points, self.folds, self.seed):
            if not both_classes(training):
                continue
            fitted_on, features = (basis.features(logits(part.score)) for part in (training, held_out))
            line = start = _straight(basis, Platt()._fit_on(training))
            # From the straightest on, each begins where the last one ended.
            for i, penalty in reversed(list(enumerate(PENALTIES))):
                start = _fit(fitted_on, training, penalty, start=start) or line
                slopes, intercept = start
                loss[i] += log_loss(held_out, inside(sigmoid(features @ slopes + intercept)))
        return PENALTIES[int(np.argmin(loss))]


@dataclass(frozen=True)
class SplineBasis:
    """Quadratic B-splines for the slope on clamped knots, and their integrals with straight tails."""

    knots: Vector

    @classmethod
    def of(cls, points: Grouped, pieces: int) -> SplineBasis:
        """Place knots at quantiles of the logits, both classes counting the same."""
        z = logits(points.score)
        mass = points.total / points.total.sum() + points.positive / points.positive.sum()
        rank = (np.cumsum(mass) - mass / 2) / mass.sum()
        inner = np.unique(np.interp(np.linspace(TAIL, 1 - TAIL, pieces - SLOPE_DEGREE + 1), rank, z))
        if len(inner) == 1:
            inner = inner[0] + np.array([-0.5, 0.5])
        return cls(np.concatenate([[inner[0]] * SLOPE_DEGREE, inner, [inner[-1]] * SLOPE_DEGREE]))

    @property
    def breaks(self) -> Vector:
        """The distinct knots, between which the integrals are cubic."""
        return self.knots[SLOPE_DEGREE:-SLOPE_DEGREE]

    def cubics(self) -> Vector:
        """∫ B_k from the first knot on, ``[power from 3 to 0, piece, k]``, in the distance from its break.

        A quadratic is fixed by its values at both ends and the middle of a piece.
        """
        left, width = self.breaks[:-1], np.diff(self.breaks)
        at_left, at_middle, at_right = (self._values(left + share * width) for share in (0.0, 0.5, 1.0))
        width = width[:, None]
        second = 2 * (at_left - 2 * at_middle + at_right) / width**2
        first = (at_right - at_left) / width - second * width
        whole = ((second * width / 3 + first / 2) * width + at_left) * width
        before = np.cumsum(whole, axis=0) - whole
        return np.stack([second / 3, first / 2, at_left, before])

    def _values(self, position: Vector) -> Vector:
        """B_k at one place in each piece of the axis, ``[piece, k]`` (Cox and de Boor)."""
        piece = np.arange(len(position))
        span = piece + SLOPE_DEGREE
        values = [np.ones(len(position))]
        for degree in range(1, SLOPE_DEGREE + 1):
            higher = [np.zeros(len(position)) for _ in range(degree + 1)]
            for j, value in enumerate(values):
                low, high = self.knots[span + j + 1 - degree], self.knots[span + j + 1]
                share = value / (high - low)
                higher[j] += (high - position) * share
                higher[j + 1] += (position - low) * share
            values = higher
        result = np.zeros((len(position), len(position) + SLOPE_DEGREE))
        for j, value in enumerate(values):
            result[piece, piece + j] = value
        return result

    def features(self, z: Vector) -> Vector:
        """∫ B_k up to z, ``[row, k]``, with straight tails."""
        low, high = self.knots[0], self.knots[-1]
        features = _evaluated(self.cubics(), self.breaks, np.clip(z, low, high))
        features[:, 0] += np.minimum(z - low, 0.0)
        features[:, -1] += np.maximum(z - high, 0.0)
        return features


def _evaluated(coefficients: Vector, breaks: Vector, position: Vector) -> Vector:
    """Evaluate piecewise cubics ``[power, piece, ...]`` at places between the first break and the last."""
    piece = np.searchsorted(breaks[1:-1], position, side="right")
    beyond = position - breaks[piece]
    beyond = beyond.reshape(-1, *[1] * (coefficients.ndim - 2))
    value: NDArray[np.float64] = coefficients[0].take(piece, axis=0)
    for of_power in coefficients[1:]:
        value *= beyond
        value += of_power.take(piece, axis=0)
    return value


def _straight(basis: SplineBasis, platt: Platt) -> tuple[Vector, float]:
    """Return the slopes and the intercept of the spline that is Platt's straight line: equal slopes."""
    slopes = np.full(len(basis.knots) - SLOPE_DEGREE - 1, platt.slope_)
    return slopes, platt.intercept_ + platt.slope_ * float(basis.knots[0])


def _fit(
    features: Vector, points: Grouped, penalty: float, *, start: tuple[Vector, float]
) -> tuple[Vector, float] | None:
    """Fit slopes and intercept by steps that only go down from ``start``; None if they did not converge."""
    count = points.total.sum()
    middle = points.total @ features / count
    pieces = features.shape[1]
    difference = np.diff(np.eye(pieces), axis=0)
    ridge = np.zeros((pieces + 1, pieces + 1))
    ridge[:pieces, :pieces] = penalty / count * difference.T @ difference
    slopes, intercept = start
    fit = fit_logistic(
        np.column_stack([features - middle, np.ones(len(features))]),
        points.total,
        points.positive,
        start=np.append(slopes, intercept + middle @ slopes),
        lower=np.append(np.zeros(pieces), -np.inf),
        penalty=ridge,
    )
    if not fit.converged:
        return None
    slopes = fit.coefficients[:-1]
    return slopes, float(fit.coefficients[-1] - middle @ slopes)
