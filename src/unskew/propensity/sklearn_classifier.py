"""Propensities from any scikit-learn classifier: builds its inputs, not the classifier."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import expit
from torch.nn import Module

from unskew.base.errors import DataError, ParameterError, UnskewError
from unskew.base.estimator import require
from unskew.base.progress import Progress
from unskew.base.registry import register
from unskew.data import Schema
from unskew.propensity.crossfit import Codes, Floats, Scorer
from unskew.propensity.design import Design, DesignedModels
from unskew.propensity.logistic import DESIGN
from unskew.propensity.per_replica import MOST_CELLS, PerReplica, ReplicaCells, ReplicaModel
from unskew.propensity.popularity import PARTS, ClickRates
from unskew.propensity.propensity import BasePropensity

Input = Literal["popularity", "features", "ids"]

RATE_SMOOTHING = 1.0
"""Pseudo-clicks in the rates of users and items."""


@dataclass(kw_only=True)
class SklearnPropensity(BasePropensity):
    r"""p̂(u, i) = ``estimator``.predict_proba(φ(u, i)), for any scikit-learn classifier.

    .. math:: \varphi(u, i) = (\log f_u,\ \log f_i,\ x_u,\ y_i)

    f are rates relative to the average (:class:`unskew.PopularityPropensity`), x and y the features of user
    and item. The rates of a training cell are counted on cells of other parts than its own, so that no
    click tells on itself. A classifier that is sure after n rows is taken to be sure but for half a row in
    n: no score is 0. One without ``predict_proba`` gives σ(decision), which the calibrator puts right.

    It cannot be saved: only a pickle holds any classifier, and reading a pickle runs the code inside it.

    Use it for boosted trees on features, and to bring a classifier you trust. Not for large vocabularies of
    ids alone: factorise them (:class:`unskew.Propensity`).

    Parameters
    ----------
    calibrator, crossfit, fold_by, negatives, fields
        As every propensity has them; ``"auto"`` samples negatives above five million cells of D.
    estimator
        Unfitted; each fold fits a clone. Where its ``random_state`` is None each has a seed of its own.
    inputs
        Any of ``"popularity"``, ``"features"`` (where the log has them: those that networks read, or else
        ``user_features`` and ``item_features``), ``"ids"`` (one column per user and item; the inputs are then
        a sparse matrix).

    Examples
    --------
    >>> import unskew as us
    >>> from sklearn.naive_bayes import GaussianNB
    >>> log = us.load("synthetic", n_users=80, n_items=60, density=0.2).train
    >>> p = us.SklearnPropensity(estimator=GaussianNB(), crossfit=3).fit(log)
    >>> p.predict_each(log).shape == (1, len(log))
    True
    """

    name: ClassVar[str] = "sklearn"
    saves: ClassVar[bool] = False
    most_cells: ClassVar[int] = MOST_CELLS
    estimator: Any = None
    inputs: tuple[Input, ...] = ("popularity", "features")

    def _check(self) -> None:
        super()._check()
        missing = [name for name in ("fit", "get_params") if not hasattr(self.estimator, name)]
        if missing or not any(hasattr(self.estimator, m) for m in ("predict_proba", "decision_function")):
            raise ParameterError(
                f"estimator {self.estimator!r} is not a scikit-learn classifier",
                remedy="give an object with fit, get_params, and predict_proba or decision_function",
            )
        unknown = [name for name in self.inputs if name not in ("popularity", "features", "ids")]
        require(
            bool(self.inputs) and not unknown,
            f"inputs must be some of 'popularity', 'features', 'ids', not {self.inputs!r}",
            "give a list of these",
        )

    def _train(self, progress: Progress) -> Scorer:
        log = self.log_
        assert log is not None
        self._features = [
            np.empty((size, 0), dtype=np.float32) if features is None else features.values
            for features, size in ((log.user_features, log.n_users), (log.item_features, log.n_items))
        ]
        if self.encoders_ is not None:
            self._columns = Design(self.encoders_)
            fitted = DesignedModels.fit(
                self._fit_one, self.cells_, self.name, progress, make=None, ratio=self.ratio_, reads=DESIGN
            )
            return fitted.with_design(self._columns)
        if self.inputs == ("features",) and not any(values.shape[1] for values in self._features):
            raise DataError(
                "the log has no features of users or items",
                remedy="give the log user_features= or item_features=, or add 'popularity' to inputs",
            )
        return PerReplica.fit(self._fit_one, self.cells_, self.name, progress, make=None, ratio=self.ratio_)

    def _fit_one(self, replica: ReplicaCells) -> ReplicaModel:
        from sklearn.base import clone

        users, items = len(self.users_), len(self.items_)
        rates = ClickRates.of_replica(
            replica, users=users, items=items, smoothing=RATE_SMOOTHING, parts=PARTS
        )
        cells = replica.training(self.ratio_)
        model = clone(self.estimator)
        if model.get_params().get("random_state", 0) is None:
            model.set_params(random_state=replica.seed % (1 << 32))
        further = None
        if self.encoders_ is not None:
            assert self.log_ is not None
            further = self._columns.of_cells(self.log_, cells.user, cells.item, cells.cell)
        inputs = self._inputs(rates, cells.user, cells.item, cells.slot, further)
        model.fit(inputs, cells.click.astype(np.int64))
        certain = 0.5 / len(cells.click)

        def score(user: Codes, item: Codes, further: Floats | None) -> Floats:
            inputs = self._inputs(rates, user, item, None, further)
            if hasattr(model, "predict_proba"):
                p = np.asarray(model.predict_proba(inputs), dtype=np.float64)[
                    :, list(model.classes_).index(1)
                ]
            else:
                p = expit(np.asarray(model.decision_function(inputs), dtype=np.float64))
            return np.clip(p, certain, 1 - certain)

        return score

    @property
    def reads_features(self) -> bool:
        """Where the log has some."""
        return "features" in self.inputs

    def _untrained(self, schema: Schema) -> Module:
        raise UnskewError(
            "a SklearnPropensity cannot be saved: only a pickle holds any classifier, and unskew writes none",
            remedy="save what predict_each gives, or use LogisticPropensity or Propensity",
        )

    def _scorer_of(self, trained: Module) -> Scorer:
        raise NotImplementedError

    def _inputs(
        self, rates: ClickRates, user: Codes, item: Codes, slot: Codes | None, further: Floats | None
    ) -> Any:
        columns: list[Any] = []
        if "popularity" in self.inputs:
            columns += [np.log(rates.of_side(0, user, slot)), np.log(rates.of_side(1, item, slot))]
        if "features" in self.inputs:
            columns += [self._features[0][user], self._features[1][item]] if further is None else [further]
        dense = np.column_stack(columns).astype(np.float32) if columns else None
        if "ids" not in self.inputs:
            return dense
        from scipy.sparse import csr_array, hstack

        # One more of each, for those that are not known.
        rows, width = len(user), len(self.users_) + 1 + len(self.items_) + 1
        # 32 bits, which is what trees take.
        place = np.column_stack([user, item + len(self.users_) + 1]).ravel().astype(np.int32)
        one_hot = csr_array(
            (np.ones(2 * rows, np.float32), place, np.arange(0, 2 * rows + 1, 2, dtype=np.int32)),
            (rows, width),
        )
        return one_hot if dense is None else hstack([one_hot, csr_array(dense)], format="csr")


def _trees() -> Any:
    # It takes a second to import, and only trees need it.
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier()


@register(order=30)
@dataclass(kw_only=True)
class BoostedPropensity(SklearnPropensity):
    """p̂(u, i) by ``HistGradientBoostingClassifier``, on click rates and features.

    A :class:`unskew.SklearnPropensity` whose classifier is there; it cannot be saved either. Use it where
    features and rates act together, and a network has too few rows.

    Parameters
    ----------
    calibrator, crossfit, fold_by, negatives, fields, inputs
        As :class:`unskew.SklearnPropensity` has them.
    estimator
        The trees; ``estimator.max_iter`` and their other parameters can be set by name.

    Examples
    --------
    >>> import unskew as us
    >>> log = us.load("synthetic", n_users=80, n_items=60, density=0.2).train
    >>> us.BoostedPropensity(crossfit=3).fit(log).diagnose()["calibrated"]["auc"] > 0.6
    True
    """

    name: ClassVar[str] = "gbm"
    estimator: Any = field(default_factory=_trees)
