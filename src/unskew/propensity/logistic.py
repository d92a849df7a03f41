"""Propensities by logistic regression on ids, features of users and items, and products of features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit
from torch.nn import Module

from unskew.base.errors import DataError, TrainingError
from unskew.base.estimator import require, require_above
from unskew.base.progress import Progress
from unskew.base.registry import register
from unskew.data import Encoders, Log, Schema
from unskew.propensity.crossfit import Codes, Floats, Scorer
from unskew.propensity.design import Design, DesignedModels
from unskew.propensity.per_replica import BLOCK, MOST_CELLS, PerReplica, ReplicaCells, TrainingCells, room_for
from unskew.propensity.propensity import BasePropensity

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
        require_above(0, penalty=self.penalty)
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

        def fit_one(replica: ReplicaCells) -> LogitModel:
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
        users, items = np.arange(log.n_users), np.arange(log.n_items)
        if log.space == "impressions":
            # All cells are rows: of many users and items those that have some.
            users, items = np.unique(log.user), np.unique(log.item)
        left, right = _with_ones(design.table("user", users)), _with_ones(design.table("item", items))
        of_users, of_items = _divide(left), _divide(right)
        inputs = Inputs(left, right, self._free(left.shape[1], right.shape[1]))
        rows, of_rows = _columns_of_rows(design, log) if design.widths[2] else (None, np.empty(0))

        def fit_one(replica: ReplicaCells) -> DesignedLogit:
            cells = replica.training(self.ratio_)
            cells = cells._replace(
                user=np.searchsorted(users, cells.user), item=np.searchsorted(items, cells.item)
            )
            likelihood = Likelihood(cells, inputs, rows, ids=self.ids, penalty=self.penalty)
            c, a, b, effects, of_row = likelihood.all_parts(likelihood.optimum())
            # Those that are not known, or have no row, have a 0.
            of_user, of_item = np.zeros(encoders.users + 1), np.zeros(encoders.items + 1)
            of_user[users], of_item[items] = a, b
            return DesignedLogit(
                c, of_user, of_item, effects / np.outer(of_users, of_items), of_row / of_rows
            )

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
        left, right = (
            _with_ones(np.empty((size, 0)) if each is None else each.values.astype(np.float64))
            for each, size in zip(given, (log.n_users, log.n_items), strict=True)
        )
        for each in (left, right):
            _divide(each)
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
            made = DesignedModels.of(trained.state_dict(), DesignedLogit, reads=DESIGN)
            return made.with_design(Design(self.encoders_))
        return PerReplica.of(trained.state_dict(), LogitModel)


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

    left: Columns
    """1 and the features of users ``[users, k]``."""
    right: Columns
    """1 and the features of items ``[items, l]``."""
    free: NDArray[np.bool_]
    """Which entries of W are learned ``[k, l]``."""


class Likelihood:
    """The penalised cross-entropy of cells in θ = (c, a, b, the free entries of W, w), and its derivatives.

    w are the effects of columns of single rows, where there are any. What the loss works with of users is
    made for some of them at a time.

    Parameters
    ----------
    rows
        What makes columns of single rows, by their numbers; None without any.
    """

    def __init__(
        self,
        cells: TrainingCells,
        inputs: Inputs,
        rows: Callable[[Codes], Columns] | None = None,
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
        no_columns = np.empty((len(user), 0), dtype=np.float32)
        self.row = no_columns if rows is None else rows(cells.cell[self.order])
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
        c, a, b, w, of_row = self.parts(theta)
        z = c + a[self.user] + b[self.item]
        if w.any() or of_row.any():
            for users, cells in self._blocks():
                left, user = self._of_users(users) @ w, self.user[cells] - users.start
                z[cells] += _products(left, self.right, user, self.item[cells])
                z[cells] += self.row[cells].astype(np.float64) @ of_row
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
        of_w, of_row = np.zeros(self.free.shape), np.zeros(self.row.shape[1])
        for users, cells in self._blocks() if self.free.any() or len(of_row) else ():
            products = self._by_user(residual, users) @ self.right
            of_w += self._of_users(users).T @ products
            of_row += residual[cells] @ self.row[cells].astype(np.float64)
        of_users = np.add.reduceat(residual, self.starts[:-1])
        of_ids = [of_users, np.bincount(self.item, residual, len(self.items))] if self.ids else []
        return np.concatenate([[residual.sum()], *of_ids, of_w[self.free], of_row])

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

    def parts(self, theta: Floats) -> tuple[float, Floats, Floats, Floats, Floats]:
        """c, a and b of those with cells, W and w."""
        of_w = 1 + self.ids
        of_row = of_w + int(self.free.sum())
        w = np.zeros(self.free.shape)
        w[self.free] = theta[of_w:of_row]
        sides = np.zeros(len(self.users) + len(self.items))
        if self.ids:
            sides[:] = theta[1 : 1 + self.ids]
        return (
            float(theta[0]),
            sides[: len(self.users)],
            sides[len(self.users) :],
            w,
            # Subclasses have further parameters behind these.
            theta[of_row : of_row + self.row.shape[1]],
        )

    def all_parts(self, theta: Floats) -> tuple[float, Floats, Floats, Floats, Floats]:
        """c, a and b of all users and items, W and w."""
        c, of_users, of_items, w, of_row = self.parts(theta)
        a, b = np.zeros(len(self.inputs.left)), np.zeros(len(self.inputs.right))
        a[self.users], b[self.items] = of_users, of_items
        return c, a, b, w, of_row

    def logit_parts(self, theta: Floats) -> tuple[float, Floats, Floats]:
        """The logit of a pair as c + left_u · right_i."""
        c, a, b, w, _ = self.all_parts(theta)
        left = np.column_stack([self.inputs.left @ w, a, np.ones_like(a)])
        return c, left, np.column_stack([self.inputs.right, np.ones_like(b), b])

    def _squares(self) -> Floats:
        """Σ over cells of each parameter's input squared."""
        ones, of_w = np.ones(len(self.user)), np.zeros(self.free.shape)
        for users, _ in self._blocks():
            of_w += (self._of_users(users) ** 2).T @ (self._by_user(ones, users) @ self.right**2)
        counts = [np.diff(self.starts), np.bincount(self.item, minlength=len(self.items))]
        of_ids = counts if self.ids else []
        of_row = np.einsum("nk,nk->k", self.row, self.row, dtype=np.float64)
        return np.concatenate([[len(self.user)], *of_ids, of_w[self.free], of_row])


def _with_ones(columns: Columns) -> Columns:
    """1 and the columns, ``[n, k + 1]``."""
    return np.hstack([np.ones((len(columns), 1), dtype=columns.dtype), columns])


def _divide(columns: Columns) -> Floats:
    """Divide columns, where they are, each by its greatest absolute value; what each was."""
    scale = _scale([_largest(columns)])
    columns /= scale
    return scale


def _columns_of_rows(design: Design, log: Log) -> tuple[Callable[[Codes], Columns], Floats]:
    """What makes columns of rows' own features, divided likewise, by their numbers; what each is divided by.

    Those of all rows at once would take more memory than all else.
    """
    block = design.row_block(log)
    parts = (np.arange(start, min(start + BLOCK, len(log))) for start in range(0, len(log), BLOCK))
    scale = _scale([_largest(design.of_log_rows(block, part)) for part in parts])

    def columns(rows: Codes) -> Columns:
        made = design.of_log_rows(block, rows)
        made /= scale
        return made

    return columns, scale


def _largest(columns: Columns) -> NDArray[np.floating[Any]]:
    """The greatest absolute value of each column."""
    return np.asarray(np.maximum(columns.max(axis=0, initial=0.0), -columns.min(axis=0, initial=0.0)))


def _scale(largest: Sequence[NDArray[np.floating[Any]]]) -> Floats:
    """What columns are divided by, from the greatest absolute values of parts of them."""
    found = np.max(largest, axis=0).astype(np.float64)
    return np.where(found > 0, found, 1.0)


def _products(left: Floats, right: Floats, user: Codes, item: Codes) -> Floats:
    """left[u] · right[i] of pairs."""
    if len(left) * len(right) <= min(GRID_CELLS, 8 * len(user)):
        return np.asarray((left @ right.T)[user, item])
    result = np.empty(len(user))
    for start in range(0, len(user), BLOCK):
        rows = slice(start, start + BLOCK)
        result[rows] = np.einsum("nk,nk->n", left[user[rows]], right[item[rows]])
    return result
