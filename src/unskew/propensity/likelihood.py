"""The penalised cross-entropy of pairs in effects of ids, of features, and of products of features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit

from unskew.base.errors import TrainingError
from unskew.propensity.crossfit import Codes, Floats
from unskew.propensity.per_replica import BLOCK, TrainingCells

GRID_CELLS = 1 << 24
"""Matrices of up to so many pairs, and eight times those asked for, are computed whole, by BLAS."""

GRADIENT_TOLERANCE = 1e-3
"""The fit ends when every derivative is below this share of its own standard error: on Coat no propensity is
then more than 0.3 % from the optimum."""

MANY_PARAMETERS, LOOSE_TOLERANCE, LEAST_GAIN = 2_000, 0.02, 1e-6
"""Beyond so many parameters this share will do, or a step that lowers the loss by no more than this share.
Among very many parameters the last to settle takes most of the steps, and moves what is predicted by far less
than chance does, which costs half a unit of the loss for each parameter: 44,000 cells and 68,000 parameters
settle in 54 steps instead of 264, and propensities differ by 0.5 % on average, by 4 % at most; 160,000 cells
and 8,000 parameters, products of features, in 72 instead of 658 (0.4 % on average, 8 % at most)."""

GREATEST_GRADIENT = 0.1
"""A fit that did not settle, and has a derivative above this share of its standard error, has failed."""

MOST_STEPS = 2000

Columns = NDArray[np.float32] | NDArray[np.float64]
"""Features as numbers; those of many rows have 4 bytes each."""


@dataclass(frozen=True, eq=False)
class LogitModel:
    """p̂(u, i) = σ(c + left_u · right_i)."""

    intercept: float
    left: Floats
    """``[users, columns]``."""
    right: Floats
    """``[items, columns]``."""

    def __call__(self, user: Codes, item: Codes, further: Floats | None) -> Floats:
        """Of pairs."""
        return np.asarray(expit(self.intercept + _products(self.left, self.right, user, item)))


class Inputs(NamedTuple):
    """What a logit is made of."""

    left: Columns
    """1 and the features of users ``[users, k]``."""
    right: Columns
    """1 and the features of items ``[items, l]``."""
    free: NDArray[np.bool_]
    """Which entries of W are learned ``[k, l]``."""


class Likelihood:
    """The penalised cross-entropy of cells in θ = (c, a, b, the free entries of W), and its derivatives.

    What the loss works with of users is made for some of them at a time.
    """

    def __init__(
        self,
        cells: TrainingCells,
        inputs: Inputs,
        *,
        ids: bool,
        penalty: float,
    ) -> None:
        self.inputs = inputs
        # Users and items without a cell have no effect of their own, which is where the penalty is least.
        (self.users, user), (self.items, item) = (
            np.unique(each, return_inverse=True) for each in (cells.user, cells.item)
        )
        # In order of (user, item): the residuals of cells are the rows of a sparse matrix as they lie.
        self.order = np.lexsort((item, user))
        self.user = user = user[self.order]
        self.item, self.click = item[self.order], cells.click[self.order]
        self.right, self.free = inputs.right[self.items].astype(np.float64, copy=False), inputs.free
        self.ids = len(self.users) + len(self.items) if ids else 0
        self.starts = np.searchsorted(user, np.arange(len(self.users) + 1))
        ends = np.searchsorted(self.starts, np.arange(BLOCK, len(user), BLOCK))
        self._bounds = np.unique([0, *ends, len(self.users)])
        mean = self.click.mean()
        # Every parameter in its standard error at the start, so that one tolerance serves all.
        curvature = mean * (1 - mean) * self._squares()
        self.shrinkage = np.full(len(curvature), penalty)
        self.shrinkage[0] = 0.0
        self.start = np.zeros_like(self.shrinkage)
        self.start[0] = np.log(mean / (1 - mean))
        self.unit = 1 / np.sqrt(curvature + self.shrinkage)

    def optimum(self) -> Floats:
        """θ where the loss is least."""
        found = minimize(
            self.loss,
            self.start / self.unit,
            jac=True,
            method="L-BFGS-B",
            options={**self.tolerances, "maxiter": MOST_STEPS, "maxcor": 20},
        )
        steepest = np.abs(found.jac).max()
        if not (found.success or steepest <= GREATEST_GRADIENT):
            raise TrainingError(
                f"logistic regression did not settle: a derivative is {steepest:.2g} standard errors after"
                f" {found.nit} steps ({found.message})",
                remedy="raise penalty",
            )
        return np.asarray(found.x * self.unit)

    @property
    def tolerances(self) -> dict[str, float]:
        """Where the fit ends: every derivative below that share of its standard error, or a gain below."""
        if len(self.start) <= MANY_PARAMETERS:
            return {"gtol": GRADIENT_TOLERANCE, "ftol": 0.0}
        return {"gtol": LOOSE_TOLERANCE, "ftol": LEAST_GAIN}

    def loss(self, scaled: Floats) -> tuple[float, Floats]:
        """The loss and its gradient in parameters divided by their units."""
        theta = scaled * self.unit
        c, a, b, w = self.parts(theta)
        z = c + a[self.user] + b[self.item]
        if w.any():
            for users, cells in self._blocks():
                left, user = self._of_users(users) @ w, self.user[cells] - users.start
                z[cells] += _products(left, self.right, user, self.item[cells])
        value, gradient = self.of_logits(theta, z)
        penalty = self.shrinkage * theta
        return float(value + theta @ penalty / 2), (gradient + penalty) * self.unit

    def of_logits(self, theta: Floats, z: Floats) -> tuple[float, Floats]:
        """The cross-entropy of clicks with logits z, and its derivatives in θ."""
        small = np.exp(-np.abs(z))
        value = np.maximum(z, 0.0).sum() + np.log1p(small).sum() - self.click @ z
        return float(value), self.derivatives(np.where(z >= 0.0, 1.0, small) / (1.0 + small) - self.click)

    def derivatives(self, residual: Floats) -> Floats:
        """In θ, from those in the logits of cells."""
        of_w = np.zeros(self.free.shape)
        for users, _ in self._blocks() if self.free.any() else ():
            of_w += self._of_users(users).T @ (self._by_user(residual, users) @ self.right)
        of_users = np.add.reduceat(residual, self.starts[:-1])
        of_ids = [of_users, np.bincount(self.item, residual, len(self.items))] if self.ids else []
        return np.concatenate([[residual.sum()], *of_ids, of_w[self.free]])

    def _blocks(self) -> Iterator[tuple[slice, slice]]:
        """Cut the users, with their cells."""
        for first, last in pairwise(self._bounds):
            yield slice(first, last), slice(self.starts[first], self.starts[last])

    def _of_users(self, users: slice) -> Floats:
        """Return 1 and the features of some of the users with cells."""
        return self.inputs.left[self.users[users]].astype(np.float64, copy=False)

    def _by_user(self, values: Floats, users: slice) -> csr_array:
        """Return values of all cells as a matrix of some users ``[users, items]``."""
        starts = self.starts[users.start : users.stop + 1]
        own = slice(starts[0], starts[-1])
        shape = (len(starts) - 1, len(self.items))
        return csr_array((values[own], self.item[own], starts - starts[0]), shape=shape)

    def parts(self, theta: Floats) -> tuple[float, Floats, Floats, Floats]:
        """Return c, a and b of those with cells, and W."""
        of_w = 1 + self.ids
        w = np.zeros(self.free.shape)
        # Subclasses have further parameters behind these.
        w[self.free] = theta[of_w : of_w + int(self.free.sum())]
        sides = np.zeros(len(self.users) + len(self.items))
        if self.ids:
            sides[:] = theta[1 : 1 + self.ids]
        return (
            float(theta[0]),
            sides[: len(self.users)],
            sides[len(self.users) :],
            w,
        )

    def logit_parts(self, theta: Floats) -> tuple[float, Floats, Floats]:
        """Return the logit of a pair as c + left_u · right_i."""
        c, of_users, of_items, w = self.parts(theta)
        a, b = np.zeros(len(self.inputs.left)), np.zeros(len(self.inputs.right))
        a[self.users], b[self.items] = of_users, of_items
        left = np.column_stack([self.inputs.left @ w, a, np.ones_like(a)])
        return c, left, np.column_stack([self.inputs.right, np.ones_like(b), b])

    def _squares(self) -> Floats:
        """Σ over cells of each parameter's input squared."""
        ones, of_w = np.ones(len(self.user)), np.zeros(self.free.shape)
        for users, _ in self._blocks():
            of_w += (self._of_users(users) ** 2).T @ (self._by_user(ones, users) @ self.right**2)
        counts = [np.diff(self.starts), np.bincount(self.item, minlength=len(self.items))]
        of_ids = counts if self.ids else []
        return np.concatenate([[len(self.user)], *of_ids, of_w[self.free]])


def with_ones(columns: Floats) -> Floats:
    """Return 1 and the columns, ``[n, k + 1]``."""
    return np.hstack([np.ones((len(columns), 1), dtype=columns.dtype), columns])


def scaled(columns: Floats) -> Floats:
    """Return columns, each divided by its greatest absolute value."""
    largest = np.abs(columns).max(axis=0, initial=0.0)
    return np.asarray(columns / np.where(largest > 0, largest, 1.0))


def _products(left: Floats, right: Floats, user: Codes, item: Codes) -> Floats:
    """left[u] · right[i] of pairs."""
    if len(left) * len(right) <= min(GRID_CELLS, 8 * len(user)):
        return np.asarray((left @ right.T)[user, item])
    result = np.empty(len(user))
    for start in range(0, len(user), BLOCK):
        rows = slice(start, start + BLOCK)
        result[rows] = np.einsum("nk,nk->n", left[user[rows]], right[item[rows]])
    return result
