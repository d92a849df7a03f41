"""Our calibrators for any scikit-learn classifier, as ``CalibratedClassifierCV`` has scikit-learn's own.

The only module of the package that imports scikit-learn; ``unskew.calibration`` loads it on demand.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import (
    _check_method_params,
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    indexable,
)

from unskew.base.errors import DataError
from unskew.base.estimator import require_choice
from unskew.calibration import make_calibrator
from unskew.calibration.calibrator import Calibrator


class Calibrated(NamedTuple):
    """A fitted classifier and the calibrator of its scores."""

    estimator: Any
    calibrator: Calibrator


class TwoClasses(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """The base of classifiers of two classes around an ``estimator``."""

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of the higher probability."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _set_classes(self, labels: NDArray[Any], *, one: str, remedy: str, mend: str) -> NDArray[np.int64]:
        """Set ``classes_`` and return the index of each label in it.

        Parameters
        ----------
        one, remedy
            What is said of labels of one class alone.
        mend
            What is advised for more than two.
        """
        check_classification_targets(labels)
        if type_of_target(labels) != "binary":
            raise DataError(
                "Only binary classification is supported: the target has"
                f" {len(np.unique(labels))} classes of type {type_of_target(labels)}",
                remedy=mend,
            )
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(one, where="y", remedy=remedy)
        return np.asarray(codes)

    def _set_features(self, fitted: Any) -> None:
        """Return those of the fitted estimator."""
        for attribute in ("n_features_in_", "feature_names_in_"):
            if hasattr(fitted, attribute):
                setattr(self, attribute, getattr(fitted, attribute))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        return tags


class CalibratedClassifier(TwoClasses):
    r"""A binary classifier whose probabilities are calibrated out of fold.

    .. math:: P(y = 1 | x) = \frac1K Σ_k q_k(g_k(x))

    g_k is ``estimator`` fitted without fold k and q_k ``calibrator`` fitted on its scores of fold k
    (``ensemble=True``); or one g fitted on everything and one q on the out-of-fold scores of all rows
    (``ensemble=False``). Scores are ``predict_proba``, or the sigmoid of ``decision_function``.

    The same constructor, ``fit``, ``predict_proba`` and ``calibrated_classifiers_`` as scikit-learn's
    ``CalibratedClassifierCV``, with ``calibrator=`` in the place of ``method=``. Two classes only.

    Parameters
    ----------
    estimator
        Any scikit-learn classifier; a ``FrozenEstimator`` is calibrated as it is.
    calibrator
        A name of :data:`unskew.calibration.CALIBRATORS` or a :class:`~unskew.calibration.Calibrator`.
    cv
        Folds, or a splitter of scikit-learn; None are 5 stratified folds.
    ensemble
        ``"auto"`` is True unless the estimator is frozen, as in scikit-learn.
    n_jobs
        Processes for ``ensemble=False``.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> random = np.random.default_rng(0)
    >>> features = random.normal(size=(600, 2))
    >>> target = random.random(600) < 1 / (1 + np.exp(-features.sum(axis=1)))
    >>> classifier = CalibratedClassifier(GaussianNB(), calibrator="beta", cv=3).fit(features, target)
    >>> classifier.predict_proba(features).shape
    (600, 2)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        calibrator: str | Calibrator = "platt",
        cv: Any = None,
        ensemble: bool | Literal["auto"] = "auto",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.cv = cv
        self.ensemble = ensemble
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Fit classifier and calibrator, each on rows that the other does not see."""
        require_choice("ensemble", self.ensemble, (True, False, "auto"))
        check_classification_targets(y)
        X, y = indexable(X, y)
        labels = column_or_1d(y, warn=True)
        outcome = self._set_classes(
            labels,
            one="the target has 1 class; calibration needs both",
            remedy="give rows of both classes",
            mend="calibrate one class against the rest",
        )
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        if weight is not None and "sample_weight" in signature(self.estimator.fit).parameters:
            fit_params["sample_weight"] = weight
        ensemble = self.ensemble
        if ensemble == "auto":
            ensemble = not isinstance(self.estimator, FrozenEstimator)
        splits = list(check_cv(self.cv, labels, classifier=True).split(X, labels))
        pairs = self._fit_each if ensemble else self._fit_one
        self.calibrated_classifiers_ = pairs(X, labels, outcome, weight, splits, fit_params)
        self._set_features(self.calibrated_classifiers_[0].estimator)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities of the two classes, in the order of ``classes_``."""
        check_is_fitted(self)
        positive = np.mean(
            [pair.calibrator.predict(_score(pair.estimator, X)) for pair in self.calibrated_classifiers_],
            axis=0,
        )
        return np.column_stack([1 - positive, positive])

    def _new_calibrator(self) -> Calibrator:
        return make_calibrator(self.calibrator).clone()

    def _fit_each(
        self, X: Any, y: Any, outcome: Any, weight: Any, splits: Any, fit_params: dict[str, Any]
    ) -> list[Calibrated]:
        pairs = []
        for training, held_out in splits:
            estimator = clone(self.estimator).fit(
                _safe_indexing(X, training),
                _safe_indexing(y, training),
                **_check_method_params(X, fit_params, indices=training),
            )
            calibrator = self._new_calibrator().fit(
                _score(estimator, _safe_indexing(X, held_out)),
                outcome[held_out],
                None if weight is None else weight[held_out],
            )
            pairs.append(Calibrated(estimator, calibrator))
        return pairs

    def _fit_one(
        self, X: Any, y: Any, outcome: Any, weight: Any, splits: Any, fit_params: dict[str, Any]
    ) -> list[Calibrated]:
        method = "predict_proba" if hasattr(self.estimator, "predict_proba") else "decision_function"
        predicted = cross_val_predict(
            clone(self.estimator), X, y, cv=splits, method=method, n_jobs=self.n_jobs, params=fit_params
        )
        calibrator = self._new_calibrator().fit(_as_score(predicted), outcome, weight)
        return [Calibrated(clone(self.estimator).fit(X, y, **fit_params), calibrator)]


def _score(estimator: Any, X: Any) -> NDArray[np.float64]:
    if hasattr(estimator, "predict_proba"):
        return _as_score(estimator.predict_proba(X))
    return _as_score(estimator.decision_function(X))


def _as_score(predicted: Any) -> NDArray[np.float64]:
    """P(y = 1): the second column of probabilities, or the sigmoid of decision values."""
    values = np.asarray(predicted, dtype=np.float64)
    return values[:, 1] if values.ndim == 2 else np.asarray(expit(values))
