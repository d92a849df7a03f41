"""Propensities by logistic regression on ids, features of users and items, and products of features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit
from torch.nn import Module

from unskew.errors import DataError, TrainingError
from unskew.estimator import require
from unskew.log import Encoders, Schema
from unskew.progress import Progress
from unskew.propensity.crossfit import Codes, Floats, Scorer
from unskew.propensity.design import Design, DesignedModels
from unskew.propensity.per_replica import BLOCK, MOST_CELLS, PerReplica, Replica, TrainingCells, room_for
from unskew.propensity.propensity import BasePropensity
from unskew.registry import register

GRID_CELLS = 1 << 24
"""Matrices of up to so many pairs are computed whole, by BLAS, and then looked up."""

GRADIENT_TOLERANCE = 1e-3
"""The fit ends when every derivative is below this share of its own standard error: on Coat no propensity is
then more than 0.3 % from the optimum."""

GREATEST_GRADIENT = 0.1
"""A fit that ends with a derivative above this share of its standard error has failed."""

MOST_STEPS = 2000

DESIGN = "design"
"""The field of rows that holds the columns of their features."""


@register(order=10)
@dataclass(kw_only=True)
class LogisticPropensity(BasePropensity):
    r"""p̂(u, i) = σ(c + a_u + b_i + x_uᵀ W y_i), at the least penalised cross-entropy over training cells.

    .. math:: \min \sum_{D_{\text{train}}} \mathrm{CE}(o, \hat p)
              + \frac{\lambda}{2} \left(\|a\|^2 + \|b\|^2 + \|W\|^2\right)

    a and b are one number per user and per item (``ids``); x_u = (1, features of the user) and
    y_i = (1, features of the item), each feature divided by its greatest absolute value (``features``), so
    that W holds their effects and, with ``interactions``, those of all products of a user's feature with an
    item's; λ is ``penalty``. The intercept c is free: mean p̂ is the base rate of the training cells.

    Use it where features tell who sees what, and as the classic that published propensities of Coat come
    from. Without features it is popularity on the logit scale; tastes that no feature tells need a
    factorisation (:class:`unskew.Propensity`).

    Parameters
    ----------
    calibrator, crossfit, fold_by, negatives, fields
        As every propensity has them; ``"auto"`` samples negatives above five million cells of D.
    ids, features, interactions
        What enters; features where the log has them: those that networks read (``with_features``), with those
        of single rows as main effects, or else ``user_features`` and ``item_features``. Categories and bags
        of more than 64 codes are left out.
    penalty
        λ, as scikit-learn's 1/C. Ids with few clicks are drawn towards what their features say.

    Examples
    --------
    >>> import unskew as us
    >>> data = us.load("synthetic", n_users=80, n_items=60, density=0.2)
    >>> p = us.LogisticPropensity(crossfit=3).fit(data.train)
    >>> p.diagnose()["calibrated"]["auc"] > 0.65
    True
    """

    name: ClassVar[str] = "logistic"
    most_cells: ClassVar[int] = MOST_CELLS
    facts: ClassVar[Mapping[str, type]] = {"columns_": int}
    ids: bool = True
    features: bool = True
    interactions: bool = True
    penalty: float = 1.0

    def _check(self) -> None:
        super()._check()
        require(self.penalty > 0, f"penalty must be above 0, not {self.penalty}", "give a number above 0")
        require(
            self.ids or self.features, "ids and features cannot both be left out", "give one of them as True"
        )

    @property
    def reads_features(self) -> bool:
        """Where the log has some."""
        return self.features

    def _train(self, progress: Progress) -> Scorer:
        if self.encoders_ is not None:
            return self._train_designed(self.encoders_, progress)
        inputs = self._inputs()

        def fit_one(replica: Replica) -> LogitModel:
            cells = replica.training(self.ratio_)
            likelihood = Likelihood(cells, inputs, ids=self.ids, penalty=self.penalty)
            return LogitModel(*likelihood.logit_parts(likelihood.optimum()))

        return PerReplica.fit(
            fit_one,
            self.cells_,
            self.name,
            progress,
            make=LogitModel,
            ratio=self.ratio_,
            about=self.about_training,
        )

    def _train_designed(self, encoders: Encoders, progress: Progress) -> Scorer:
        """From the features that the log was given."""
        log, design = self.log_, Design(encoders)
        assert log is not None
        left, of_users = _scaled(design.table("user")[:-1], log.n_users)
        right, of_items = _scaled(design.table("item")[:-1], log.n_items)
        inputs = Inputs(left, right, self._free(left.shape[1], right.shape[1]))
        rows, of_rows = _scaled(design.of_log_rows(log) if design.widths[2] else None, len(log))

        def fit_one(replica: Replica) -> DesignedLogit:
            cells = replica.training(self.ratio_)
            row = rows[cells.cell, 1:] if design.widths[2] else np.empty((len(cells.cell), 0))
            likelihood = RowLikelihood(cells, inputs, row, ids=self.ids, penalty=self.penalty)
            c, a, b, effects, of_row = likelihood.parts(likelihood.optimum())
            return DesignedLogit(c, a, b, effects / np.outer(of_users, of_items), of_row / of_rows[1:])

        self.columns_ = 0
        fitted = DesignedModels.fit(
            fit_one,
            self.cells_,
            self.name,
            progress,
            make=DesignedLogit,
            ratio=self.ratio_,
            reads=DESIGN,
            about=self.about_training,
        )
        return fitted.with_design(design)

    def _free(self, left: int, right: int) -> NDArray[np.bool_]:
        """Which entries of W are learned: not the constant, which c is, and products if asked for."""
        free = np.ones((left, right), dtype=bool)
        free[0, 0] = False
        if not self.interactions:
            free[1:, 1:] = False
        return free

    def _inputs(self) -> Inputs:
        """What the logit is made of."""
        log = self.log_
        assert log is not None
        given = (log.user_features, log.item_features) if self.features else (None, None)
        if not self.ids and given == (None, None):
            raise DataError(
                "the log has no features of users or items, and ids are left out",
                remedy="give the log user_features= or item_features=, or use ids=True",
            )
        (left, _), (right, _) = (
            _scaled(None if each is None else each.values, size)
            for each, size in zip(given, (log.n_users, log.n_items), strict=True)
        )
        self.columns_ = right.shape[1] + 2
        return Inputs(left, right, self._free(left.shape[1], right.shape[1]))

    def _untrained(self, schema: Schema) -> Module:
        if self.encoders_ is not None:
            of_users, of_items, of_rows = Design(self.encoders_).widths
            return room_for(
                self.replicas_,
                intercept=(),
                user=(self.encoders_.users + 1,),
                item=(self.encoders_.items + 1,),
                effects=(of_users + 1, of_items + 1),
                row=(of_rows,),
            )
        left, right = (schema.user.size, self.columns_), (schema.item.size, self.columns_)
        return room_for(self.replicas_, intercept=(), left=left, right=right)

    def _scorer_of(self, trained: Module) -> Scorer:
        if self.encoders_ is not None:
            made = DesignedModels.of(trained, DesignedLogit, reads=DESIGN)
            return made.with_design(Design(self.encoders_))
        return PerReplica.of(trained, LogitModel)


@dataclass(frozen=True, eq=False)
class DesignedLogit:
    """p̂ = σ(c + a_u + b_i + xᵀ W y + w·v), with x = (1, the user's columns), y the item's, v the row's."""

    intercept: float
    user: Floats
    """a, 0 for users that are not known ``[users + 1]``."""
    item: Floats
    """b, likewise."""
    effects: Floats
    """W."""
    row: Floats
    """w."""

    def __call__(self, user: Codes, item: Codes, further: Floats | None) -> Floats:
        """Of rows with their columns."""
        assert further is not None
        wide = len(self.effects) - 1
        x, y, v = np.split(further, [wide, wide + self.effects.shape[1] - 1], axis=1)
        left = x @ self.effects[1:] + self.effects[0]
        products = left[:, 0] + np.einsum("nk,nk->n", left[:, 1:], y)
        return np.asarray(expit(self.intercept + self.user[user] + self.item[item] + products + v @ self.row))


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

    left: Floats
    """1 and the features of users ``[users, k]``."""
    right: Floats
    """1 and the features of items ``[items, l]``."""
    free: NDArray[np.bool_]
    """Which entries of W are learned ``[k, l]``."""


class Likelihood:
    """The penalised cross-entropy of cells in θ = (c, a, b, the free entries of W), and its derivatives."""

    def __init__(self, cells: TrainingCells, inputs: Inputs, *, ids: bool, penalty: float) -> None:
        left, right, free = inputs
        # In order of (user, item), so that residuals are the values of a sparse matrix made once.
        self.order = np.lexsort((cells.item, cells.user))
        self.user, self.item = cells.user[self.order], cells.item[self.order]
        self.click = cells.click[self.order]
        self.left, self.right, self.free = left, right, free
        self.ids = len(left) + len(right) if ids else 0
        starts = np.searchsorted(self.user, np.arange(len(left) + 1))
        shape = (len(left), len(right))
        self.values = csr_array((np.zeros(len(self.click)), self.item, starts), shape=shape)
        self.shrinkage = np.full(1 + self.ids + int(free.sum()), penalty)
        self.shrinkage[0] = 0.0
        mean = self.click.mean()
        self.start = np.zeros_like(self.shrinkage)
        self.start[0] = np.log(mean / (1 - mean))
        # Every parameter in its standard error at the start, so that one tolerance serves all.
        curvature = mean * (1 - mean) * self._by_parameter(np.ones(len(self.click)), 2)
        self.unit = 1 / np.sqrt(curvature + self.shrinkage)

    def optimum(self) -> Floats:
        """θ where the loss is least."""
        found = minimize(
            self.loss,
            self.start / self.unit,
            jac=True,
            method="L-BFGS-B",
            options={"gtol": GRADIENT_TOLERANCE, "ftol": 0.0, "maxiter": MOST_STEPS, "maxcor": 20},
        )
        if np.abs(found.jac).max() > GREATEST_GRADIENT:
            raise TrainingError(
                f"logistic regression did not settle in {MOST_STEPS} steps", remedy="raise penalty"
            )
        return np.asarray(found.x * self.unit)

    def loss(self, scaled: Floats) -> tuple[float, Floats]:
        """The loss and its gradient in parameters divided by their units."""
        theta = scaled * self.unit
        a, b, w = self._parts(theta)
        z = theta[0] + a[self.user] + b[self.item]
        if w.any():
            z += _products(self.left @ w, self.right, self.user, self.item)
        value, gradient = self.of_logits(theta, z)
        penalty = self.shrinkage * theta
        return float(value + theta @ penalty / 2), (gradient + penalty) * self.unit

    def of_logits(self, theta: Floats, z: Floats) -> tuple[float, Floats]:
        """The cross-entropy of clicks with logits z, and its derivatives in θ."""
        value = (np.logaddexp(0.0, z) - self.click * z).sum()
        return float(value), self._by_parameter(expit(z) - self.click, 1)

    def logit_parts(self, theta: Floats) -> tuple[float, Floats, Floats]:
        """The logit of a pair as c + left_u · right_i."""
        a, b, w = self._parts(theta)
        left = np.column_stack([self.left @ w, a, np.ones_like(a)])
        return float(theta[0]), left, np.column_stack([self.right, np.ones_like(b), b])

    def _parts(self, theta: Floats) -> tuple[Floats, Floats, Floats]:
        w = np.zeros(self.free.shape)
        w[self.free] = theta[1 + self.ids : 1 + self.ids + int(self.free.sum())]
        sides = np.zeros(len(self.left) + len(self.right))
        if self.ids:
            sides[:] = theta[1 : 1 + self.ids]
        return sides[: len(self.left)], sides[len(self.left) :], w

    def _by_parameter(self, value: Floats, power: int) -> Floats:
        """Σ over cells of a value times each parameter's input to a power."""
        self.values.data[:] = value
        of_w = (self.left**power).T @ (self.values @ self.right**power)
        of_ids = [self.values.sum(axis=1), self.values.sum(axis=0)] if self.ids else []
        return np.concatenate([[value.sum()], *of_ids, of_w[self.free]])


class RowLikelihood(Likelihood):
    """The same with columns of the single rows, θ = (…, w)."""

    def __init__(
        self, cells: TrainingCells, inputs: Inputs, row: Floats, *, ids: bool, penalty: float
    ) -> None:
        super().__init__(cells, inputs, ids=ids, penalty=penalty)
        self.row = row[self.order]
        columns, mean = self.row.shape[1], self.click.mean()
        curvature = mean * (1 - mean) * (self.row**2).sum(axis=0)
        self.shrinkage = np.append(self.shrinkage, np.full(columns, penalty))
        self.start = np.append(self.start, np.zeros(columns))
        self.unit = np.append(self.unit, 1 / np.sqrt(curvature + penalty))

    def of_logits(self, theta: Floats, z: Floats) -> tuple[float, Floats]:
        """As above, with what the rows' own columns add."""
        z = z + self.row @ theta[len(theta) - self.row.shape[1] :]
        value, gradient = super().of_logits(theta, z)
        return value, np.append(gradient, self.row.T @ (expit(z) - self.click))

    def parts(self, theta: Floats) -> tuple[float, Floats, Floats, Floats, Floats]:
        """c, a, b, W and w; a and b with a 0 for those that are not known."""
        a, b, w = self._parts(theta)
        return (
            float(theta[0]),
            np.append(a, 0.0),
            np.append(b, 0.0),
            w,
            theta[len(theta) - self.row.shape[1] :],
        )


def _scaled(values: NDArray[Any] | None, size: int) -> tuple[Floats, Floats]:
    """1 and the columns ``[size, k + 1]``, each divided by its greatest absolute value; what each was."""
    columns = np.column_stack([np.ones(size), *([] if values is None else [values.astype(np.float64)])])
    largest = np.abs(columns).max(axis=0, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    return columns / scale, scale


def _products(left: Floats, right: Floats, user: Codes, item: Codes) -> Floats:
    """left[u] · right[i] of pairs."""
    if len(left) * len(right) <= GRID_CELLS:
        return np.asarray((left @ right.T)[user, item])
    result = np.empty(len(user))
    for start in range(0, len(user), BLOCK):
        rows = slice(start, start + BLOCK)
        result[rows] = np.einsum("nk,nk->n", left[user[rows]], right[item[rows]])
    return result
