"""Any scikit-learn classifier, trained on clicks and weighted or corrected by propensities.

Imports scikit-learn and no torch; ``unskew`` loads it on demand.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
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
from unskew.metrics.clip import Clip, resolve_clip
from unskew.metrics.sample_weight import sample_weight as weights_of
from unskew.metrics.weights import weight_diagnostics

Method = Literal["naive", "ips", "snips", "dr"]
METHODS: tuple[Method, ...] = ("naive", "ips", "snips", "dr")


class DebiasedClassifier(TwoClasses):
    r"""P(conversion) over all rows, learned from those that were clicked, by any scikit-learn estimator.

    ``"ips"`` and ``"snips"`` fit ``estimator`` on the clicked rows with the weights of
    :func:`unskew.sample_weight`. ``"dr"`` regresses the doubly robust pseudo-outcome on all rows,

    .. math:: t = \tilde r(x) + \frac{o}{p}\,(r - \tilde r(x)), \qquad E[t | x] = P(r = 1 | x)

    where the propensity p *or* the imputation r̃ is true. r̃ is ``imputer``, fitted on the clicks of other
    folds than the row's own. CE(t, r̂) = ê + o·(e − ê)/p is the doubly robust loss of
    ``us.losses.dr``, but t leaves [0, 1], which no classifier takes: so ``estimator`` is a regressor
    of squared errors here, and its predictions are clipped to [0, 1].

    Parameters
    ----------
    estimator
        A classifier whose ``fit`` takes ``sample_weight``, or a pipeline that ends in one; with ``"dr"`` a
        regressor.
    propensity
        P(click = 1), if ``fit`` is given none: one number; the name of a column of X, which ``estimator``
        then does not see; a fitted :class:`unskew.Propensity`, which reads the columns of X that are named as
        its users and items; or a classifier, fitted on X and clicks, each row scored by the folds without it.
        Its probabilities become weights: where they are not honest, wrap it in
        :class:`unskew.calibration.CalibratedClassifier`.
    method
        ``"ips"``, ``"snips"``, ``"dr"``, or ``"naive"`` without weights.
    imputer
        With ``"dr"``: a classifier of conversions.
    p_min
        What propensities are clipped at; ``"auto"`` as in :func:`unskew.sample_weight`.
    folds
        Of a propensity that is a classifier, and of the imputer.
    random_state
        Of the folds.

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
        method: Method = "ips",
        imputer: Any = None,
        p_min: Clip | None = "auto",
        folds: int = 5,
        random_state: int | None = 0,
    ) -> None:
        self.estimator = estimator
        self.propensity = propensity
        self.method = method
        self.imputer = imputer
        self.p_min = p_min
        self.folds = folds
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, click: Any = None, propensity: Any = None, sample_weight: Any = None
    ) -> Self:
        """Fit on the clicked rows, or with ``"dr"`` on all.

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
        self._check()
        X, y = indexable(X, column_or_1d(y, warn=True))
        rows = _num_samples(X)
        clicked = np.ones(rows, dtype=bool) if click is None else _as_clicks(click, rows)
        outcome = np.zeros(rows, dtype=np.int64)
        outcome[clicked] = self._set_classes(
            y[clicked],
            one="the conversions of clicks are of 1 class",
            remedy="give clicks of both classes",
            mend="train one class against the rest",
        )
        p = None if self.method == "naive" else self._propensities(X, clicked, propensity, click is None)
        X = self._inputs(X)
        own = np.ones(rows) if sample_weight is None else _check_sample_weight(sample_weight, X)
        self.weights_ = None
        if p is not None:
            self.weights_ = weight_diagnostics(propensity=p[clicked], p_min=self.p_min or 0.0)
        if self.method == "dr":
            assert p is not None
            target = self._pseudo_outcome(X, outcome, clicked, p)
            keyword = {} if sample_weight is None else {_weight_keyword(self.estimator): own}
            self.estimator_ = clone(self.estimator).fit(X, target, **keyword)
        else:
            keyword = {}
            if p is not None:
                weight = own[clicked] * weights_of(None, p[clicked], method=self.method, p_min=self.p_min)
                keyword = {_weight_keyword(self.estimator): weight}
            elif sample_weight is not None:
                keyword = {_weight_keyword(self.estimator): own[clicked]}
            named = self.classes_[outcome[clicked]]
            rows_clicked = X if clicked.all() else _safe_indexing(X, np.flatnonzero(clicked))
            self.estimator_ = clone(self.estimator).fit(rows_clicked, named, **keyword)
        self._set_features(self.estimator_)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the two classes, in the order of ``classes_``."""
        check_is_fitted(self)
        X = self._inputs(X)
        if self.method != "dr":
            return np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)
        positive = np.clip(np.asarray(self.estimator_.predict(X), dtype=np.float64), 0.0, 1.0)
        return np.column_stack([1.0 - positive, positive])

    def _check(self) -> None:
        require_choice("method", self.method, METHODS)
        require_at_least(2, folds=self.folds)
        doubly_robust = self.method == "dr"
        suits = is_regressor(self.estimator) if doubly_robust else is_classifier(self.estimator)
        kind = "regressor: its targets leave [0, 1]" if doubly_robust else "classifier"
        require(suits, f"method {self.method!r} needs a {kind}", "give estimator= one")
        require(
            not doubly_robust or (self.imputer is not None and is_classifier(self.imputer)),
            "method 'dr' needs an imputer of conversions",
            "give imputer= a classifier",
        )

    def _propensities(
        self, X: Any, clicked: NDArray[np.bool_], given: Any, all_clicked: bool
    ) -> NDArray[np.float64]:
        """P(click = 1) of each row, from whatever was given."""
        source = self.propensity if given is None else given
        if source is None:
            raise ParameterError(
                f"method {self.method!r} needs propensities",
                remedy="give fit(…, propensity=) an array, or the constructor a number, a column's name, a"
                " fitted Propensity or a classifier",
            )
        if self.method == "dr" and all_clicked:
            raise ParameterError(
                "method 'dr' corrects what is imputed on all rows, and none is without a click",
                remedy="give rows with and without clicks, and click=",
            )
        if isinstance(source, str):
            return _column(X, source)
        if hasattr(source, "predict_pairs_each"):
            if not hasattr(source, "seeds_"):
                raise ParameterError(
                    "the Propensity is not fitted",
                    remedy="fit it; where scikit-learn clones the classifier, as a search does, wrap it in"
                    " sklearn.frozen.FrozenEstimator",
                )
            ids = [_column(X, ids.name, numbers=False) for ids in (source.users_, source.items_)]
            return np.asarray(source.predict_pairs_each(*ids).mean(axis=0))
        if hasattr(source, "fit"):
            if all_clicked:
                raise ParameterError(
                    "a classifier of clicks needs rows without a click",
                    remedy="give rows with and without clicks, and click=",
                )
            scores = cross_val_predict(
                clone(source), X, clicked.astype(int), cv=self._folds(clicked), method="predict_proba"
            )
            return np.asarray(scores[:, 1], dtype=np.float64)
        values = np.full(len(clicked), source) if np.ndim(source) == 0 else _as_numbers(source, "propensity")
        if len(values) != len(clicked):
            found = f"there are {len(values)} propensities for {len(clicked)} rows"
            raise DataError(found, remedy="give one for each row")
        return values.astype(np.float64)

    def _pseudo_outcome(
        self, X: Any, outcome: NDArray[np.int64], clicked: NDArray[np.bool_], p: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """t = r̃ + o·(r − r̃)/p of each row, r̃ by an imputer that did not see it."""
        label = np.empty(len(clicked))
        for training, held_out in self._folds(clicked):
            clicks = training[clicked[training]]
            if len(np.unique(outcome[clicks])) < 2:
                raise DataError(
                    "the clicks of a fold are of 1 class, so that no imputer can be trained",
                    remedy="use fewer folds, or method='ips'",
                )
            imputer = clone(self.imputer).fit(_safe_indexing(X, clicks), outcome[clicks])
            label[held_out] = imputer.predict_proba(_safe_indexing(X, held_out))[:, 1]
        least = 0.0 if self.p_min is None else resolve_clip(self.p_min, propensity=p[clicked])
        target = label.copy()
        target[clicked] += (outcome[clicked] - label[clicked]) / np.maximum(p[clicked], least)
        return target

    def _folds(self, clicked: NDArray[np.bool_]) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Folds with equal shares of clicks, the same for the propensity and the imputer."""
        splitter = StratifiedKFold(self.folds, shuffle=True, random_state=self.random_state)
        return list(splitter.split(np.zeros(len(clicked)), clicked))

    def _inputs(self, X: Any) -> Any:
        """What the estimator sees: X without a column of propensities."""
        if not isinstance(self.propensity, str):
            return X
        frame = nw.from_native(X, pass_through=True)
        if not isinstance(frame, nw.DataFrame) or self.propensity not in frame.columns:
            return X
        return frame.drop(self.propensity).to_native()


def _column(X: Any, name: str, *, numbers: bool = True) -> NDArray[Any]:
    frame = nw.from_native(X, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        raise DataError(
            f"X has no columns with names, and '{name}' is to be read from one", remedy="give a data frame"
        )
    if name not in frame.columns:
        raise DataError(f"X has no column '{name}'", remedy=f"it has {', '.join(frame.columns)}")
    values = frame[name].to_numpy()
    return _as_numbers(values, name) if numbers else np.asarray(values)


def _as_numbers(values: Any, name: str) -> NDArray[np.float64]:
    return np.concatenate(parts_of(values, name)).astype(np.float64)


def _as_clicks(click: Any, rows: int) -> NDArray[np.bool_]:
    values = _as_numbers(click, "click")
    if len(values) != rows:
        raise DataError(f"there are {len(values)} clicks for {rows} rows", remedy="give one for each row")
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
    """What ``fit`` calls weights: of a pipeline, those of its last step."""
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        return f"{name}__{_weight_keyword(last)}"
    if not has_fit_parameter(estimator, "sample_weight"):
        raise ParameterError(
            f"{type(estimator).__name__}.fit takes no sample_weight",
            remedy="give an estimator whose fit does",
        )
    return "sample_weight"
