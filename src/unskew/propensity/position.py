"""Propensities of impressions by position: how often a place is examined, times how relevant the pair is."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, logit

from unskew.base.columns import number_column
from unskew.base.errors import DataError, ParameterError, TrainingError
from unskew.base.estimator import require, require_above
from unskew.base.plain_text import listed
from unskew.base.progress import Progress
from unskew.base.registry import register
from unskew.base.tensors import nn
from unskew.data import Log, Schema
from unskew.propensity.crossfit import TRAIN, Codes, Floats, Scorer
from unskew.propensity.per_replica import MOST_CELLS, PerReplica, ReplicaCells, TrainingCells, room_for
from unskew.propensity.propensity import BasePropensity

PSEUDO_ROWS = 0.5
"""Examined, and as many unexamined, rows added to each position: none is then examined never or always."""

SETTLED = {"gtol": 1e-3, "ftol": 0.0, "maxiter": 2000, "maxcor": 20}
"""A fit ends where every derivative is below this share of its parameter's standard error."""

GREATEST_GRADIENT = 0.1
"""A fit that did not settle, and has a derivative above this share of its standard error, has failed."""


@register(order=35)
@dataclass(kw_only=True)
class PositionPropensity(BasePropensity):
    r"""p̂ = θ_k · γ(u, i): a position k is examined with probability θ_k, and a pair clicked if relevant.

    .. math:: \gamma(u, i) = \sigma(c + a_u + b_i + x_u^\top W y_i), \qquad \theta_{k_1} = 1, \qquad
              \min -\sum_{D_{\text{train}}} \left[o \log \theta_k \gamma
              + (1 - o) \log (1 - \theta_k \gamma)\right] + \text{penalty}

    The position-based model of clicks. a and b are one number per user and item, x and y are 1 and the
    features of users and items, and all of these but c are penalised by λ/2·‖·‖². θ and γ are fitted
    together, by the gradient of the likelihood. θ is relative to the first (smallest) position,
    which is taken to be examined at least as often as any other. :meth:`predict` is P(click = 1), out of fold
    and calibrated, as of every propensity; :attr:`examination_` is the curve θ, and
    :meth:`predict_examination` θ of rows. 1/p̂ undoes position and relevance, 1/θ the position alone.

    θ is *identified by data* where the same pairs, or at least the same items, are shown at several
    positions for reasons that say nothing of relevance: positions drawn at random, ties, or several policies
    whose logs are put together (intervention harvesting). Where a policy sorts by relevance that neither ids
    nor features show, what is at the top is better than the model knows, and θ falls too steeply: it is then
    identified *by the model* alone. A position that shares no item with the first is warned of.

    Use it for slates, feeds and search results in the space ``"impressions"``. Not where it depends on what
    stands above whether a position is examined (a cascade).

    Parameters
    ----------
    calibrator, crossfit, fold_by
        As every propensity has them. ``negatives`` changes nothing: all rows are read, since a sample of
        unclicked ones would not follow the product.
    position
        The column of the log with the positions, numbers of any size; each is a category.
    ids, features, interactions
        What γ is made of: effects of ids, of ``user_features`` and ``item_features`` of the log, and of all
        products of a user's feature with an item's.
    penalty
        λ, as scikit-learn's 1/C.

    Attributes
    ----------
    positions_, examination_
        The positions of training in ascending order, and θ of each: means over seeds and folds.

    Examples
    --------
    >>> import unskew as us
    >>> random = np.random.default_rng(0)
    >>> user, item, place = (random.integers(n, size=20_000) for n in (50, 30, 3))
    >>> click = random.random(20_000) < np.array([1.0, 0.5, 0.25])[place] * (0.1 + 0.4 * (item % 2))
    >>> log = us.Log.from_arrays(
    ...     user=user, item=item, click=click, space="impressions", columns={"position": place}
    ... )
    >>> p = us.PositionPropensity(crossfit=2).fit(log)
    >>> p.examination_.round(1)
    array([1. , 0.5, 0.3])
    """

    name: ClassVar[str] = "position"
    reads: ClassVar[str] = "position"
    most_cells: ClassVar[int] = MOST_CELLS
    facts: ClassVar[Mapping[str, type]] = {"columns_": int, "places_": int}
    position: str = "position"
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
    def positions_(self) -> Floats:
        """The positions of training."""
        self._require_fitted("scorer_")
        return self._models()[0].positions

    @property
    def examination_(self) -> Floats:
        """θ of each position."""
        self._require_fitted("scorer_")
        return np.asarray(np.mean([model.examination for model in self._models()], axis=0))

    def predict_examination(self, log: Log) -> Floats:
        """Return θ of the position of each row of a log, relative to the first position."""
        index = np.searchsorted(self.positions_, self._further(log))
        return self.examination_[index]

    def predict_pairs_each(self, user: Any, item: Any, **options: Any) -> Floats:
        """Refuse: a pair has no position."""
        raise ParameterError(
            "the propensity of a pair depends on its position, and pairs have none",
            remedy=f"ask with predict(log), for a log with the column '{self.position}'",
        )

    def _train(self, progress: Progress) -> Scorer:
        log = self.log_
        assert log is not None
        if log.space != "impressions":
            raise ParameterError(
                "positions are of impressions, and pairs that were not shown have none",
                remedy="give a log with space='impressions'",
            )
        values = _column(log, self.position)
        positions, index = np.unique(values, return_inverse=True)
        self.places_ = len(positions)
        warn_of_lone_positions(positions, index, log.item.astype(np.int64))
        inputs = self._inputs()

        def fit_one(replica: ReplicaCells) -> PositionModel:
            rows = np.flatnonzero(replica.role(np.arange(len(log))) == TRAIN)
            likelihood = PositionLikelihood(
                _cells(log, rows), inputs, index[rows], len(positions), ids=self.ids, penalty=self.penalty
            )
            theta = likelihood.optimum()
            return PositionModel(*likelihood.logit_parts(theta), likelihood.examination(theta), positions)

        return PerReplica.fit(
            fit_one,
            self.cells_,
            self.name,
            progress,
            make=PositionModel,
            reads=self.reads,
            about=self.about_training,
        )

    def _inputs(self) -> Inputs:
        """Return what the logit of γ is made of."""
        log = self.log_
        assert log is not None
        features = (log.user_features, log.item_features) if self.features else (None, None)
        if not self.ids and features == (None, None):
            raise DataError(
                "the log has no features of users or items, and ids are left out",
                remedy="give the log user_features= or item_features=, or use ids=True",
            )
        left, right = (
            np.column_stack([np.ones(size), *([] if each is None else [_scaled(each.values)])])
            for each, size in zip(features, (log.n_users, log.n_items), strict=True)
        )
        self.columns_ = right.shape[1] + 2
        free = np.ones((left.shape[1], right.shape[1]), dtype=bool)
        # The constant is c, which has no penalty.
        free[0, 0] = False
        if not self.interactions:
            free[1:, 1:] = False
        return Inputs(left, right, free)

    def _further(self, log: Log) -> Floats:
        """Return the positions of the rows of a log, all of which were there in training."""
        values = _column(log, self.position)
        unknown = np.flatnonzero(~np.isin(values, self.positions_))
        if len(unknown):
            raise DataError(
                f"position {values[unknown[0]]:g} was not there in training",
                where=f"column '{self.position}', row {unknown[0]}",
                remedy=f"give positions among {listed(f'{each:g}' for each in self.positions_)}",
            )
        return values

    def _models(self) -> Sequence[PositionModel]:
        assert isinstance(self.scorer_, PerReplica)
        return self.scorer_.models  # type: ignore[return-value]

    def _untrained(self, schema: Schema) -> nn.Module:
        left, right = (schema.user.size, self.columns_), (schema.item.size, self.columns_)
        places = (self.places_,)
        return room_for(
            self.replicas_, intercept=(), left=left, right=right, examination=places, positions=places
        )

    def _scorer_of(self, trained: nn.Module) -> Scorer:
        return PerReplica.of(trained.state_dict(), PositionModel, reads=self.reads)


@dataclass(frozen=True, eq=False)
class PositionModel:
    """p̂ = θ_k · σ(c + left_u · right_i)."""

    intercept: float
    left: Floats
    """``[users, columns]``."""
    right: Floats
    """``[items, columns]``."""
    examination: Floats
    """θ ``[positions]``."""
    positions: Floats
    """In ascending order."""

    def __call__(self, user: Codes, item: Codes, further: Floats | None) -> Floats:
        """Return propensities of pairs at positions."""
        assert further is not None
        z = self.intercept + np.einsum("nk,nk->n", self.left[user], self.right[item])
        return np.asarray(self.examination[np.searchsorted(self.positions, further)] * expit(z))


class Inputs(NamedTuple):
    """The parts of the logit of γ."""

    left: Floats
    """1 and the features of users ``[users, k]``."""
    right: Floats
    """1 and the features of items ``[items, l]``."""
    free: NDArray[np.bool_]
    """Which entries of W are learned ``[k, l]``."""


class PositionLikelihood:
    """The penalised loss of clicks in c, a, b, the free entries of W, and logit θ_k of all but the first.

    Every parameter is divided by its standard error at the start, so that one tolerance serves all.
    """

    def __init__(
        self, cells: TrainingCells, inputs: Inputs, index: Codes, places: int, *, ids: bool, penalty: float
    ) -> None:
        self.user, self.item, self.click = cells.user, cells.item, cells.click
        self.place, self.places, self.inputs = index, places, inputs
        self.left, self.right = inputs.left[self.user], inputs.right[self.item]
        self.sizes = (len(inputs.left), len(inputs.right)) if ids else (0, 0)
        clicks, rows = (np.bincount(index, values, minlength=places) for values in (self.click, None))
        rate = (clicks + PSEUDO_ROWS) / (rows + 2 * PSEUDO_ROWS)
        share = np.clip(rate[1:] / rate[0], 0.05, 0.95)
        mean = self.click.mean()
        squares: list[Any] = [[len(index)], *self._by_id(np.ones(len(index))), self._products(1.0, 2)]
        curvature = mean * (1 - mean) * np.concatenate(squares)
        self.shrinkage = np.full(len(curvature) + places - 1, penalty)
        self.shrinkage[0], self.shrinkage[len(curvature) :] = 0.0, 0.0
        # About the information of a position's rows, and that of its pseudo-rows.
        known = (rows[1:] * rate[0] + 2 * PSEUDO_ROWS) * share * (1 - share)
        self.unit = 1 / np.sqrt(np.concatenate([curvature, known]) + self.shrinkage)
        self.start = np.concatenate([[logit(rate[0])], np.zeros(len(curvature) - 1), logit(share)])

    def optimum(self) -> Floats:
        """Return the parameters where the loss is least."""
        result = minimize(self.loss, self.start / self.unit, jac=True, method="L-BFGS-B", options=SETTLED)
        steepest = np.abs(result.jac).max()
        if not (result.success or steepest <= GREATEST_GRADIENT):
            raise TrainingError(
                f"the model of positions did not settle: a derivative is {steepest:.2g} standard errors",
                remedy="raise penalty",
            )
        return np.asarray(result.x * self.unit)

    def loss(self, scaled: Floats) -> tuple[float, Floats]:
        """Return the loss and its gradient in parameters divided by their units."""
        theta = scaled * self.unit
        c, a, b, w = self._parts(theta)
        z = c + a[self.user] + b[self.item] + ((self.left @ w) * self.right).sum(axis=1)
        t = self._place_logits(theta)
        unexamined = np.concatenate([[0.0], expit(-t)])
        minus_log = np.concatenate([[0.0], np.logaddexp(0.0, -t)])
        clicked, relevant, e = self.click == 1, expit(z), 1.0 - unexamined[self.place]
        # 1 − θγ = (1 − γ) + γ·(1 − θ), which stays above 0 where the product rounds to 1.
        not_both = expit(-z) + relevant * unexamined[self.place]
        value = np.where(clicked, np.logaddexp(0.0, -z) + minus_log[self.place], -np.log(not_both)).sum()
        value += PSEUDO_ROWS * (np.logaddexp(0.0, -t) + np.logaddexp(0.0, t)).sum()
        # What a click, or none, says of log θ; times 1 − γ, of the logit of γ.
        slope = np.where(clicked, -1.0, e * relevant / not_both)
        of_places = np.bincount(self.place, slope, minlength=self.places)[1:] * expit(-t)
        of_places += PSEUDO_ROWS * (expit(t) - expit(-t))
        residual = slope * expit(-z)
        parts: list[Any] = [[residual.sum()], *self._by_id(residual), self._products(residual, 1), of_places]
        penalty = self.shrinkage * theta
        return float(value + theta @ penalty / 2), (np.concatenate(parts) + penalty) * self.unit

    def examination(self, theta: Floats) -> Floats:
        """Return θ of each position."""
        return np.concatenate([[1.0], expit(self._place_logits(theta))])

    def logit_parts(self, theta: Floats) -> tuple[float, Floats, Floats]:
        """Return the logit of a pair as c + left_u · right_i."""
        c, a, b, w = self._parts(theta)
        left = np.column_stack([self.inputs.left @ w, a, np.ones_like(a)])
        return c, left, np.column_stack([self.inputs.right, np.ones_like(b), b])

    def _place_logits(self, theta: Floats) -> Floats:
        """Return logit θ of all positions but the first."""
        return theta[len(theta) - self.places + 1 :]

    def _parts(self, theta: Floats) -> tuple[float, Floats, Floats, Floats]:
        """Return c, a, b and W."""
        users, items = self.sizes
        a, b = np.zeros(len(self.inputs.left)), np.zeros(len(self.inputs.right))
        a[:users], b[:items] = theta[1 : 1 + users], theta[1 + users : 1 + users + items]
        w = np.zeros(self.inputs.free.shape)
        w[self.inputs.free] = theta[1 + users + items : len(theta) - self.places + 1]
        return float(theta[0]), a, b, w

    def _by_id(self, values: Floats) -> list[Floats]:
        """Return sums of the values of rows by user, and by item."""
        codes = zip((self.user, self.item), self.sizes, strict=True)
        return [np.bincount(code, values, size).astype(np.float64) for code, size in codes if size]

    def _products(self, values: Floats | float, power: int) -> Floats:
        """Return sums over rows of values times products of inputs, for the free entries of W."""
        weighted = (self.left**power).T * values @ self.right**power
        return np.asarray(weighted[self.inputs.free])


def warn_of_lone_positions(positions: Floats, index: Codes, item: Codes) -> None:
    """Warn of positions that are not connected with the first by items shown at both."""
    count = len(positions)
    size = count + int(item.max()) + 1
    shown = coo_array((np.ones(len(item), dtype=np.int8), (index, count + item)), shape=(size, size))
    _, component = connected_components(shown.tocsr(), directed=False)
    lone = np.flatnonzero(component[:count] != component[0])
    if len(lone):
        names = listed(f"{positions[each]:g}" for each in lone)
        warnings.warn(
            f"positions {names} share no item with position {positions[0]:g}: the model alone separates how"
            " often they are examined from how relevant their items are",
            stacklevel=4,
        )


def _cells(log: Log, rows: Codes) -> TrainingCells:
    user, item = (each[rows].astype(np.int64) for each in (log.user, log.item))
    return TrainingCells(user, item, log.click[rows].astype(np.float64), np.zeros_like(user), rows)


def _column(log: Log, name: str) -> Floats:
    if name not in log.columns:
        raise DataError(
            f"the log has no column '{name}' of positions",
            remedy=f"keep it when the log is built (keep=), or name another (position=); it has:"
            f" {listed(log.columns) or 'none'}",
        )
    values = number_column(log.columns[name], name)
    missing = np.flatnonzero(~np.isfinite(values))
    if len(missing):
        raise DataError(
            "a position is missing", where=f"column '{name}', row {missing[0]}", remedy="drop these rows"
        )
    return values


def _scaled(columns: NDArray[Any]) -> Floats:
    """Return columns, each divided by its greatest absolute value."""
    largest = np.abs(columns).max(axis=0, initial=0.0)
    return np.asarray(columns / np.where(largest > 0, largest, 1.0), dtype=np.float64)
