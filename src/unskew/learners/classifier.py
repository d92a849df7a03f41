"""Any scikit-learn classifier as a learner. Importable without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from unskew.base.errors import UnskewError
from unskew.base.estimator import require
from unskew.learners.encoded import EncodedLearner
from unskew.learners.learner import LEAST, Arrays
from unskew.learners.table import EncodedTable, Examples, Floats


@dataclass(kw_only=True)
class Classifier(EncodedLearner):
    """p̂(x) = ``estimator``.predict_proba(φ(x)), for any classifier with scikit-learn's interface.

    φ(x) are the columns of :class:`~unskew.learners.encoded.EncodedLearner`. LightGBM, XGBoost and CatBoost
    have that interface. It cannot be saved: only a pickle holds any classifier, and reading a pickle runs the
    code inside it. Use :class:`unskew.Trees` where boosting is all that is wanted.

    Parameters
    ----------
    estimator
        Unfitted; every model is a clone. A regressor, where a method fits pseudo-outcomes.
    pairs
        Pairs of fields that may have an encoding, at most; 0 for none.

    Examples
    --------
    >>> import unskew as us
    >>> from sklearn.naive_bayes import GaussianNB
    >>> log = us.load("synthetic", n_users=80, n_items=60, density=0.2).train
    >>> p = us.Propensity(learner=us.Classifier(estimator=GaussianNB()), crossfit=3).fit(log)
    >>> p.predict_each(log).shape == (1, len(log))
    True
    """

    name: ClassVar[str] = "classifier"
    saves: ClassVar[bool] = False
    estimator: Any = None

    def check(self) -> None:
        """Raise a ParameterError for a parameter out of range."""
        super().check()
        require(
            hasattr(self.estimator, "fit") and hasattr(self.estimator, "get_params"),
            f"estimator {self.estimator!r} is no scikit-learn estimator",
            "give an object with fit, get_params, and predict_proba or predict",
        )

    def _fit(self, examples: Examples, validation: Examples | None, seed: int) -> None:
        from sklearn.base import clone, is_classifier
        from sklearn.utils.validation import has_fit_parameter

        logistic = self.errors_ == "ce"
        require(
            is_classifier(self.estimator) == logistic,
            f"{type(self.estimator).__name__} is no {'classifier' if logistic else 'regressor'}",
            "give a classifier for clicks and conversions, a regressor for pseudo-outcomes",
        )
        model = clone(self.estimator)
        if model.get_params().get("random_state", 0) is None:
            model.set_params(random_state=seed % (1 << 32))
        inputs, options = self._encoded(examples, seed), {}
        if not (examples.weight == examples.weight[0]).all():
            require(
                has_fit_parameter(model, "sample_weight"),
                f"{type(model).__name__}.fit takes no sample_weight",
                "give an estimator whose fit does",
            )
            options = {"sample_weight": examples.weight}
        self.model_ = model.fit(inputs, examples.target, **options)

    def _margin(self, rows: EncodedTable) -> Floats:
        inputs = self._inputs(rows)
        if self.errors_ == "squared":
            return np.asarray(self.model_.predict(inputs), dtype=np.float64)
        p = np.asarray(self.model_.predict_proba(inputs), dtype=np.float64)[:, 1]
        return np.asarray(logit(np.clip(p, LEAST, 1.0 - LEAST)))

    def arrays(self) -> Arrays:
        """Refuse: only a pickle holds any classifier."""
        raise UnskewError(
            f"a {type(self.estimator).__name__} cannot be saved or exported: only a pickle could hold it",
            remedy="save what predict_each gives, or use Trees()",
        )

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.arrays()
