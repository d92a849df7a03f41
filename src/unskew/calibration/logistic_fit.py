"""Logistic regression on grouped points by damped Newton steps; shared by Platt, beta and similar maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

TINY = float(np.finfo(np.float64).tiny)
MOST_STEPS = 200
LEAST_DAMPING = 1e-4
GREATEST_DAMPING = 1e4
"""In units of the greatest curvature that there can be, of which a step lowers the loss at any point."""

TOLERANCE = 1e-12
"""Stop when no free component of the gradient exceeds this share of the rarer class's rate (times the
feature's scale): far inside the 1e-6 of the base rate that calibrators promise."""

ROUNDING = 1e-14
"""A Newton step that promises to lower the loss by less than this share of it is lost in rounding."""


@dataclass(frozen=True)
class LogisticFit:
    """Coefficients, and the information (Hessian of the mean negative log-likelihood) there.

    ``converged`` is False where the steps ended before the optimum.
    """

    coefficients: Vector
    information: Matrix
    loss: float
    converged: bool


def fit_logistic(
    features: Matrix,
    total: Vector,
    positive: Vector,
    *,
    offset: Vector | float = 0.0,
    start: Vector | None = None,
    lower: Vector | None = None,
    penalty: Matrix | None = None,
) -> LogisticFit:
    r"""Minimise the mean negative log-likelihood of grouped outcomes.

    .. math:: f(θ) = \frac1N Σ_j [n_j \log(1 + e^{η_j}) − y_j η_j] + ½ θᵀΛθ,
              \quad η = Xθ + \text{offset}, \quad θ ≥ \text{lower}

    ``features`` X, ``total`` n, ``positive`` y, N = Σn, ``penalty`` Λ. Projected Newton steps (Bertsekas
    1982), damped by the curvature at probability ½. That is the largest there is (Böhning 1992), so enough
    damping lowers the loss from any start, even where every probability is 0 or 1 and the curvature is gone.
    The loss never rises above the loss at ``start``.
    """
    count = float(total.sum())
    width = features.shape[1]
    bound = np.full(width, -np.inf) if lower is None else lower
    theta = np.maximum(np.zeros(width) if start is None else start, bound)
    ridge = np.zeros((width, width)) if penalty is None else penalty
    rate = float(positive.sum()) / count
    scale = np.maximum(np.abs(features).T @ total / count, TINY)
    small = TOLERANCE * max(min(rate, 1 - rate), 1e-12) * scale

    greatest = (np.square(features).T @ total) / (4 * count) + np.diag(ridge)
    negative = total - positive

    def at(point: Vector) -> tuple[float, Vector]:
        """Return the loss and probabilities; from e^−|η|, which cannot overflow and serves both."""
        eta = features @ point + offset
        small_one = np.exp(-np.abs(eta))
        wrong = negative @ np.maximum(eta, 0.0) - positive @ np.minimum(eta, 0.0)
        loss = float((total @ np.log1p(small_one) + wrong) / count + 0.5 * point @ ridge @ point)
        return loss, np.where(eta < 0, small_one, 1.0) / (1.0 + small_one)

    damping = 0.0
    loss, probability = at(theta)
    for _ in range(MOST_STEPS):
        gradient = features.T @ (total * probability - positive) / count + ridge @ theta
        curvature = total * probability * (1 - probability) / count
        information = (features.T * curvature) @ features + ridge
        free = (theta > bound) | (gradient < 0)
        if (np.abs(gradient[free]) <= small[free]).all():
            return LogisticFit(theta, information, loss, converged=True)
        while True:
            step = _newton_step(information[np.ix_(free, free)], gradient[free], damping * greatest[free])
            candidate = theta.copy()
            candidate[free] -= step
            candidate = np.maximum(candidate, bound)
            candidate_loss, candidate_probability = at(candidate)
            if candidate_loss <= loss * (1 + 1e-15) or damping > GREATEST_DAMPING:
                break
            damping = max(10 * damping, LEAST_DAMPING)
        if damping > GREATEST_DAMPING or np.array_equal(candidate, theta):
            break
        theta, loss, probability = candidate, candidate_loss, candidate_probability
        damping = damping / 10 if damping > LEAST_DAMPING**2 else 0.0
    # This is the optimum to machine precision only if a step, undamped, promises no more than rounding.
    wanted = _newton_step(information[np.ix_(free, free)], gradient[free], np.zeros(int(free.sum())))
    converged = bool(gradient[free] @ wanted <= ROUNDING * loss)
    return LogisticFit(theta, information, loss, converged)


def _newton_step(information: Matrix, gradient: Vector, damping: Vector) -> Vector:
    damped = information + np.diag(damping)
    # Scaling to a unit diagonal first: −log(1−p) is a thousand times smaller than log p at low prevalence.
    root = np.sqrt(np.maximum(np.diag(damped), TINY))
    solution, *_ = np.linalg.lstsq(damped / np.outer(root, root), gradient / root, rcond=1e-14)
    return np.asarray(solution / root)
