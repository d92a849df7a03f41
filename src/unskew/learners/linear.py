"""Logistic regression on one-hot codes, standardised and binned numbers. Importable without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit

from unskew.base.errors import TrainingError
from unskew.base.estimator import require_above, require_whole
from unskew.base.registry import register
from unskew.learners.learner import Arrays, TableLearner, mean_loss
from unskew.learners.table import EncodedTable, Examples, Floats

RIDGES = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3)
"""Penalties that ``ridge="auto"`` tries from the strongest on, each from where the last one ended."""

PATH_ROWS = 1_000_000
"""Of more rows than these a random sample chooses the penalty. The best λ is 1 over the variance of the
effects, which does not depend on the number of rows."""

DEFAULT_RIDGE = 3.0
"""λ where no held-out rows can choose it."""

LEAST_GAIN, STEEPEST, MOST_STEPS = 1e-6, 0.02, 500
"""The fit ends when a step lowers the loss by less than this share, or when every derivative is below this
share of its standard error."""

GREATEST_GRADIENT = 1.0
"""A fit that did not settle, and has a derivative above so many standard errors, has failed."""

ROWS_AT_ONCE = 1 << 18

MOST_PRODUCTS = 256
"""Products of a user's and an item's numbers; of more none enters."""


@register(order=110)
@dataclass(kw_only=True)
class Linear(TableLearner):
    r"""p̂(x) = σ(c + Σ_f β_f[code_f] + γᵀ z), at the least penalised cross-entropy.

    .. math:: \min \sum_n w_n \, \mathrm{CE}(t_n, \hat p_n) + \frac{\lambda}{2} \left(\|\beta\|^2 +
              \|\gamma\|^2\right)

    Every code of an id, a category and a bag has an effect (a bag's values share theirs); numbers z enter
    standardised, as products of a user's with an item's and, so that an effect need not be a line, one-hot in
    bins of equal mass. Codes that training never saw have the effect 0. Use it where effects add up, where
    codes are many and rows are few, and beside :class:`Trees`, whose errors are different.

    Parameters
    ----------
    ridge
        λ; ``"auto"`` takes the one of :data:`RIDGES` with the least loss on held-out rows.
    bins
        Bins of each number; 0 for the standardised numbers alone.
    products
        Whether the products of a user's numbers with an item's enter, up to :data:`MOST_PRODUCTS` of them.
    """

    name: ClassVar[str] = "linear"
    ridge: float | Literal["auto"] = "auto"
    bins: int = 16
    products: bool = True

    def check(self) -> None:
        """Raise a ParameterError for a parameter out of range."""
        super().check()
        require_whole(0, 255, bins=self.bins)
        if self.ridge != "auto":
            require_above(0, ridge=float(self.ridge))

    def _fit(self, examples: Examples, validation: Examples | None, seed: int) -> None:
        rows = examples.rows
        numbers = rows.numbers.astype(np.float64)
        self.mean_ = numbers.mean(axis=0)
        scale = numbers.std(axis=0)
        self.scale_ = np.where(scale > 0, scale, 1.0)
        self.edges_ = np.empty((numbers.shape[1], 0))
        if self.bins:
            inner = np.linspace(0, 1, self.bins + 1)[1:-1]
            self.edges_ = np.quantile(numbers, inner, axis=0).T.reshape(numbers.shape[1], len(inner))
        self.sizes_ = np.array([coded.field.size for coded in rows.coded])
        self.products_ = self._products(rows)
        theta = np.zeros(1 + self._columns)
        mean = np.average(examples.target, weights=examples.weight)
        if self.errors_ == "ce":
            mean = np.clip(mean, 1e-6, 1 - 1e-6)
            mean = np.log(mean / (1 - mean))
        theta[0] = mean
        self.ridge_ = DEFAULT_RIDGE if self.ridge == "auto" else float(self.ridge)
        if self.ridge == "auto" and validation is not None and len(validation.target):
            theta = self._choose(examples, validation, theta, seed)
        self.theta_ = self._solved(self._design(rows), examples, theta, self.ridge_)

    def _choose(self, examples: Examples, validation: Examples, theta: Floats, seed: int) -> Floats:
        """Set the penalty that is best on held-out rows, and return where its fit ended."""
        if len(examples.target) > PATH_ROWS:
            some = np.random.default_rng(seed).choice(len(examples.target), PATH_ROWS, replace=False)
            examples = examples.take(np.sort(some))
        design, held_out = self._design(examples.rows), self._design(validation.rows)
        best, chosen = np.inf, theta
        for ridge in RIDGES:
            theta = self._solved(design, examples, theta, ridge)
            margin = theta[0] + held_out @ theta[1:]
            predicted = expit(margin) if self.errors_ == "ce" else np.clip(margin, 0.0, 1.0)
            loss = mean_loss(validation, np.clip(predicted, 1e-7, 1 - 1e-7), self.errors_)
            if loss >= best:
                break
            best, self.ridge_, chosen = loss, ridge, theta
        return chosen

    def _solved(self, design: csr_array, examples: Examples, start: Floats, ridge: float) -> Floats:
        """Return the optimum, by L-BFGS in units of every parameter's standard error."""
        weight, target = examples.weight / examples.weight.mean(), examples.target
        logistic = self.errors_ == "ce"
        variance = max(
            float(np.average((target - np.average(target, weights=weight)) ** 2, weights=weight)), 1e-12
        )
        curvature = variance if logistic else 1.0
        squares = curvature * np.concatenate([[weight.sum()], design.multiply(design).T @ weight])
        shrinkage = np.full(len(start), ridge if logistic else ridge * variance)
        shrinkage[0] = 0.0
        unit = 1.0 / np.sqrt(squares + shrinkage)
        transposed = design.T.tocsr()

        def loss(scaled: Floats) -> tuple[float, Floats]:
            theta = scaled * unit
            z = theta[0] + design @ theta[1:]
            if logistic:
                value = weight @ (np.logaddexp(0.0, z) - target * z)
                residual = weight * (expit(z) - target)
            else:
                value = weight @ (z - target) ** 2 / 2.0
                residual = weight * (z - target)
            gradient = np.concatenate([[residual.sum()], transposed @ residual])
            penalty = shrinkage * theta
            return float(value + theta @ penalty / 2.0), (gradient + penalty) * unit

        options = {"gtol": STEEPEST, "ftol": LEAST_GAIN, "maxiter": MOST_STEPS, "maxcor": 20}
        result = minimize(loss, start / unit, jac=True, method="L-BFGS-B", options=options)
        steepest = float(np.abs(result.jac).max())
        if not (result.success or steepest <= GREATEST_GRADIENT):
            raise TrainingError(
                f"logistic regression did not settle: a derivative is {steepest:.2g} standard errors after"
                f" {result.nit} steps ({result.message})",
                remedy="give a larger ridge",
            )
        return np.asarray(result.x * unit)

    def _products(self, rows: EncodedTable) -> NDArray[np.int64]:
        """Return the numbers of users and of items whose products enter ``[2, products]``."""
        roles = [field.role for field in rows.schema.features if field.is_number for _ in range(field.width)]
        of_users, of_items = (np.flatnonzero(np.array(roles) == role) for role in ("user", "item"))
        if not self.products or len(of_users) * len(of_items) > MOST_PRODUCTS:
            return np.empty((2, 0), dtype=np.int64)
        return np.stack([np.repeat(of_users, len(of_items)), np.tile(of_items, len(of_users))])

    @property
    def _columns(self) -> int:
        """Columns of the design."""
        numbers = len(self.mean_)
        binned = numbers * (self.edges_.shape[1] + 1) * bool(self.bins)
        return int(self.sizes_.sum() + numbers + self.products_.shape[1] + binned)

    def _design(self, rows: EncodedTable) -> csr_array:
        """Return one-hot codes, bins and standardised numbers, as a sparse matrix."""
        n, numbers = len(rows), rows.numbers.shape[1]
        starts = np.concatenate([[0], np.cumsum(self.sizes_)])
        columns: list[NDArray[Any]] = []
        values: list[NDArray[Any]] = []
        for coded, start, size in zip(rows.coded, starts[:-1], self.sizes_, strict=True):
            known = (coded.codes >= 0) & (coded.codes < size)
            columns.append(np.where(known, coded.codes, 0) + start)
            shares = 1.0 / np.maximum(known.sum(axis=1, keepdims=True), 1)
            values.append(np.where(known, shares, 0.0))
        at = int(starts[-1])
        if numbers:
            scaled = (rows.numbers - self.mean_) / self.scale_
            both = scaled[:, self.products_[0]] * scaled[:, self.products_[1]]
            values.append(np.hstack([scaled, both]))
            columns.append(np.broadcast_to(at + np.arange(values[-1].shape[1]), values[-1].shape))
            at += values[-1].shape[1]
        if numbers and self.bins:
            width = self.edges_.shape[1] + 1
            for number, edges in enumerate(self.edges_):
                bin_of = np.searchsorted(edges, rows.numbers[:, number].astype(np.float64), side="left")
                columns.append((at + number * width + bin_of)[:, None])
                values.append(np.ones((n, 1)))
        column, value = np.hstack(columns).astype(np.int32), np.hstack(values)
        pointers = np.arange(0, column.size + 1, column.shape[1])
        return csr_array((value.ravel(), column.ravel(), pointers), shape=(n, self._columns))

    def _margin(self, rows: EncodedTable) -> Floats:
        margin = np.empty(len(rows))
        for at, block in rows.blocks(ROWS_AT_ONCE):
            margin[at] = self.theta_[0] + self._design(block) @ self.theta_[1:]
        return margin

    def arrays(self) -> Arrays:
        """Return the coefficients, and how numbers are scaled and cut."""
        names = ("theta", "mean", "scale", "edges", "sizes", "products")
        return {name: getattr(self, f"{name}_") for name in names} | {"ridge": np.array(self.ridge_)}

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for name in ("theta", "mean", "scale", "edges", "sizes", "products"):
            setattr(self, f"{name}_", np.asarray(arrays[name]))
        self.ridge_ = float(arrays["ridge"])
