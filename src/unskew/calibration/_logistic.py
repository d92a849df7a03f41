"""Logistic regression on grouped points by damped Newton steps; shared by Platt, beta and similar maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

TINY = float(np.finfo(np.float64).tiny)
GREATEST_DAMPING = 1e12
MOST_STEPS = 200

TOLERANCE = 1e-12
"""Stop when no free component of the gradient exceeds this share of the rarer class's rate (times the
feature's scale): far inside the 1e-6 of the base rate that calibrators promise."""


@dataclass(frozen=True)
class LogisticFit:
    """The optimum, and the information (Hessian of the mean negative log-likelihood) there."""

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
    1982) with Levenberg damping, so that separable outcomes (no finite optimum) end at a vanishing
    gradient instead of in overflow.
    """
    count = float(total.sum())
    width = features.shape[1]
    bound = np.full(width, -np.inf) if lower is None else lower
    theta = np.maximum(np.zeros(width) if start is None else start, bound)
    ridge = np.zeros((width, width)) if penalty is None else penalty
    rate = float(positive.sum()) / count
    scale = np.maximum(np.abs(features).T @ total / count, TINY)
    small = TOLERANCE * max(min(rate, 1 - rate), 1e-12) * scale

    def at(point: Vector) -> tuple[float, Vector]:
        """Loss and probabilities; from e^−|η|, which cannot overflow and serves both."""
        eta = features @ point + offset
        small_one = np.exp(-np.abs(eta))
        softplus = np.maximum(eta, 0.0) + np.log1p(small_one)
        loss = float((total @ softplus - positive @ eta) / count + 0.5 * point @ ridge @ point)
        return loss, np.where(eta < 0, small_one, 1.0) / (1.0 + small_one)

    damping = 0.0
    loss, probability = at(theta)
    converged = False
    information = ridge
    for _ in range(MOST_STEPS):
        gradient = features.T @ (total * probability - positive) / count + ridge @ theta
        curvature = total * probability * (1 - probability) / count
        information = (features.T * curvature) @ features + ridge
        free = (theta > bound) | (gradient < 0)
        if (np.abs(gradient[free]) <= small[free]).all():
            converged = True
            break
        while True:
            candidate = theta.copy()
            candidate[free] -= _newton_step(information[np.ix_(free, free)], gradient[free], damping)
            candidate = np.maximum(candidate, bound)
            candidate_loss, candidate_probability = at(candidate)
            if candidate_loss <= loss + 1e-15 * abs(loss) or damping > GREATEST_DAMPING:
                break
            damping = max(10 * damping, 1e-4)
        if damping > GREATEST_DAMPING or np.array_equal(candidate, theta):
            # Rounding, not the likelihood, stops the descent: this is the optimum to machine precision.
            converged = True
            break
        theta, loss, probability = candidate, candidate_loss, candidate_probability
        damping = damping / 10 if damping > 1e-8 else 0.0
    return LogisticFit(coefficients=theta, information=information, loss=loss, converged=converged)


def _newton_step(information: Matrix, gradient: Vector, damping: float) -> Vector:
    # Scaling to a unit diagonal first: −log(1−p) is a thousand times smaller than log p at low prevalence.
    root = np.sqrt(np.maximum(np.diag(information), TINY))
    scaled = information / np.outer(root, root) + damping * np.eye(len(root))
    solution, *_ = np.linalg.lstsq(scaled, gradient / root, rcond=1e-14)
    return np.asarray(solution / root)
