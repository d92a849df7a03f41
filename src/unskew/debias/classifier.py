"""A thin scikit-learn classifier around any other: trained on clicks, weighted by propensities.

Imports scikit-learn and no torch; ``unskew`` loads it on demand.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
    indexable,
)

from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require, require_at_least, require_choice
from unskew.base.numbers import parts_of
from unskew.calibration.sklearn_adapter import TwoClasses
from unskew.metrics.sample_weight import sample_weight as weights_of
from unskew.metrics.weights import Clip, weight_diagnostics


class DebiasedClassifier(TwoClasses):
    r"""P(conversion) over all rows, learned from those that were clicked, by any scikit-learn classifier.

    .. math:: \hat f = \arg\min_f \sum_{o = 1} \frac{1}{p} \, \ell(r, f(x))

    It fits ``estimator`` on the clicked rows with the weights of :func:`unskew.sample_weight`, and works in
    pipelines, searches and cross-validation. For doubly robust methods, saving and ONNX take
    ``us.DR(learner=us.Classifier(estimator=…))``.

    Parameters
    ----------
    estimator
        A classifier whose ``fit`` takes ``sample_weight``, or a pipeline that ends in one.
    propensity
        P(click = 1), if ``fit`` is given none: one number; or a classifier, fitted on X and clicks, each row
        scored by the folds without it. Its probabilities become weights: where they are not honest, wrap it
        in :class:`unskew.calibration.CalibratedClassifier`.
    method
        ``"ips"``, ``"snips"``, or ``"naive"`` without weights.
    p_min
        What propensities are clipped at; ``"auto"`` as in :func:`unskew.sample_weight`.
    folds, random_state
        Folds of a propensity that is a classifier.

    Attributes
    ----------
    classes_
        The two values of y on clicks.
    estimator_
        The fitted estimator.
    weights_
        What the weights look like (:class:`unskew.metrics.weights.WeightDiagnostics`); None for ``"naive"``.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> random = np.random.default_rng(0)
    >>> x, p = random.normal(size=(5000, 1)), random.choice([0.1, 0.8], size=5000)
    >>> click, bought = random.random(5000) < p, random.random(5000) < p / 2
    >>> naive, ips = (
    ...     DebiasedClassifier(LogisticRegression(), method=method).fit(x, bought, click=click, propensity=p)
    ...     for method in ("naive", "ips")
    ... )
    >>> means = [each.predict_proba(x)[:, 1].mean() for each in (naive, ips)]
    >>> [round(float(mean), 2) for mean in (*means, bought.mean())]
    [0.36, 0.22, 0.22]
    """

    def __init__(
        self,
        estimator: Any,
        *,
        propensity: Any = None,
        method: Literal["naive", "ips", "snips"] = "ips",
        p_min: Clip | None = "auto",
        folds: int = 5,
        random_state: int | None = 0,
    ) -> None:
        self.estimator = estimator
        self.propensity = propensity
        self.method = method
        self.p_min = p_min
        self.folds = folds
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, click: Any = None, propensity: Any = None, sample_weight: Any = None
    ) -> Self:
        """Fit on the clicked rows.

        Parameters
        ----------
        X
            Rows of the population: impressions, or pairs of user and item; clicked and not.
        y
            Conversions; not read without a click, and may be NaN there.
        click
            1 where a row was clicked; None where every row was.
        propensity
            P(click = 1) of each row, in the place of the constructor's.
        sample_weight
            Further weights of rows.
        """
        require_choice("method", self.method, ("naive", "ips", "snips"))
        require_at_least(2, folds=self.folds)
        require(is_classifier(self.estimator), f"{self.estimator!r} is no classifier", "give estimator= one")
        X, y = indexable(X, column_or_1d(y, warn=True))
        rows = _num_samples(X)
        clicked = np.ones(rows, dtype=bool) if click is None else _as_clicks(click, rows)
        outcome = self._set_classes(
            y[clicked],
            one="the conversions of clicks are of 1 class",
            remedy="give clicks of both classes",
            mend="train one class against the rest",
        )
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)[clicked]
        self.weights_ = None
        if self.method != "naive":
            p = self._propensities(X, clicked, propensity)[clicked]
            self.weights_ = weight_diagnostics(propensity=p, p_min=self.p_min or 0.0)
            inverse = weights_of(None, p, method=self.method, p_min=self.p_min)
            weight = inverse if weight is None else weight * inverse
        keyword = {} if weight is None else {_weight_keyword(self.estimator): weight}
        rows_clicked = X if clicked.all() else _safe_indexing(X, np.flatnonzero(clicked))
        self.estimator_ = clone(self.estimator).fit(rows_clicked, self.classes_[outcome], **keyword)
        self._set_features(self.estimator_)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the two classes, in the order of ``classes_``."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)

    def _propensities(self, X: Any, clicked: NDArray[np.bool_], own: Any) -> NDArray[np.float64]:
        """Return P(click = 1) of each row, from whatever is there."""
        source = self.propensity if own is None else own
        if source is None:
            raise ParameterError(
                f"method {self.method!r} needs propensities",
                remedy="give fit(…, propensity=) an array, or the constructor a number or a classifier",
            )
        if hasattr(source, "fit"):
            require(
                not clicked.all(),
                "a classifier of clicks needs rows without a click",
                "give rows with and without clicks, and click=",
            )
            folds = StratifiedKFold(self.folds, shuffle=True, random_state=self.random_state)
            scores = cross_val_predict(
                clone(source), X, clicked.astype(int), cv=folds, method="predict_proba"
            )
            return np.asarray(scores[:, 1], dtype=np.float64)
        if np.ndim(source) == 0:
            return np.full(len(clicked), float(source))
        return _numbers(source, "propensity", len(clicked))


def _numbers(values: Any, name: str, rows: int) -> NDArray[np.float64]:
    array = np.concatenate(parts_of(values, name)).astype(np.float64)
    if len(array) != rows:
        raise DataError(f"{name} has {len(array)} values for {rows} rows", remedy="give one for each row")
    return array


def _as_clicks(click: Any, rows: int) -> NDArray[np.bool_]:
    values = _numbers(click, "click", rows)
    wrong = np.flatnonzero(~np.isin(values, (0, 1)))
    if len(wrong):
        raise DataError(
            f"click is {values[wrong[0]]:g}, not 0 or 1",
            where=f"click, row {wrong[0]}",
            remedy="give 1 for a click, 0 for none",
        )
    if not values.any():
        raise DataError("no row is clicked", remedy="give rows with clicks")
    return values.astype(bool)


def _weight_keyword(estimator: Any) -> str:
    """Return what ``fit`` calls weights: of a pipeline, those of its last step."""
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        return f"{name}__{_weight_keyword(last)}"
    if not has_fit_parameter(estimator, "sample_weight"):
        raise ParameterError(
            f"{type(estimator).__name__}.fit takes no sample_weight",
            remedy="give an estimator whose fit does",
        )
    return "sample_weight"
