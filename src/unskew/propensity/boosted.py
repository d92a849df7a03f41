"""Propensities by boosted trees: scikit-learn's, with parameters that need no choice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from unskew.propensity.sklearn_classifier import SklearnPropensity
from unskew.registry import register


def _trees() -> Any:
    # It takes a second to import, and only who asks for trees needs it.
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
