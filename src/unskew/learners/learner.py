"""What a learner is: anything that fits the expectation of a target given a row. Importable without torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from unskew.base.errors import DataError
from unskew.base.estimator import Estimator, require, require_types
from unskew.learners.table import Examples, Floats, Table

Errors = Literal["ce", "squared"]
"""Cross-entropy, for targets that are 0 or 1; or squared errors, for pseudo-outcomes, which leave [0, 1]."""

Arrays = dict[str, NDArray[Any]]

LEAST = 1e-7
"""Predictions keep this far from 0 and 1, where a log-loss is infinite."""


@dataclass(kw_only=True)
class Learner(Estimator, ABC):
    """A model of E[target | row] without a network: fits one table of rows, saves plain arrays.

    Attributes
    ----------
    errors_
        What it minimised.
    validation_loss_
        The mean loss of the held-out examples; None without any.
    """

    needs_validation: ClassVar[bool] = True
    """Whether held-out examples choose something: a penalty, or the number of trees."""

    def fit(
        self,
        examples: Examples,
        *,
        validation: Examples | None = None,
        errors: Errors = "ce",
        seed: int = 0,
    ) -> Self:
        """Fit weighted examples.

        Parameters
        ----------
        validation
            Held-out examples: they choose how strongly the model is regularised, and train nothing.
        errors
            What is minimised. With ``"squared"`` targets may leave [0, 1]; predictions are clipped to it.
        seed
            Seed of whatever is drawn.
        """
        self._check()
        require_fit(examples, errors)
        self.errors_: Errors = errors
        self._fit(examples, validation, seed)
        self.validation_loss_: float | None = None
        if validation is not None and len(validation.target):
            self.validation_loss_ = mean_loss(validation, self.predict(validation.rows), errors)
        return self

    def predict(self, rows: Table) -> Floats:
        """Return the expectation of the target of each row, a probability."""
        self._require_fitted("errors_")
        margin = self._margin(rows)
        return np.clip(expit(margin) if self.errors_ == "ce" else margin, LEAST, 1.0 - LEAST)

    @abstractmethod
    def _fit(self, examples: Examples, validation: Examples | None, seed: int) -> None:
        """Learn."""

    @abstractmethod
    def _margin(self, rows: Table) -> Floats:
        """Return logits; with squared errors the expectation itself."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return all that was learned as plain arrays."""

    @abstractmethod
    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take what :meth:`arrays` gave."""

    def restore(self, arrays: Mapping[str, NDArray[Any]], errors: Errors = "ce") -> Self:
        """Take what :meth:`arrays` gave, in the place of a fit."""
        self.errors_, self.validation_loss_ = errors, None
        self._restore(arrays)
        return self

    def _check(self) -> None:
        require_types(self)


def require_fit(examples: Examples, errors: Errors) -> None:
    """Raise a DataError for examples that nothing can be learned from."""
    target, weight = examples.target, examples.weight
    if not len(target) or not weight.sum() > 0:
        raise DataError("there are no rows to learn from", remedy="give rows with a weight above 0")
    if not np.isfinite(target).all() or not np.isfinite(weight).all() or weight.min() < 0.0:
        raise DataError("a target or a weight is not a number, or below 0", remedy="give finite numbers")
    if errors == "ce" and sorted(np.unique(target)) != [0.0, 1.0]:
        raise DataError(
            f"the targets are {np.unique(target)[:3].tolist()}, not 0 and 1",
            remedy="give rows of both kinds, or errors='squared'",
        )


def mean_loss(examples: Examples, predicted: Floats, errors: Errors) -> float:
    """Return the weighted mean loss of predictions."""
    target = examples.target
    if errors == "squared":
        losses = (target - predicted) ** 2
    else:
        losses = -(target * np.log(predicted) + (1.0 - target) * np.log1p(-predicted))
    return float(np.average(losses, weights=examples.weight))


@dataclass(kw_only=True)
class Blend(Learner):
    """σ of the mean logit of several learners.

    Each learner is fitted on the same examples. Linear models and trees err in different ways, and their mean
    logit is better than either on most logs with features. With squared errors it is the mean prediction.

    Parameters
    ----------
    learners
        At least one.
    """

    name: ClassVar[str] = "blend"
    learners: tuple[Learner, ...] = ()

    def _check(self) -> None:
        require(bool(self.learners), "a blend of no learners", "give learners=(Linear(), Trees())")
        for learner in self.learners:
            learner._check()

    def _fit(self, examples: Examples, validation: Examples | None, seed: int) -> None:
        self.fitted_ = [
            type(learner)(**learner.get_params(deep=False)).fit(
                examples, validation=validation, errors=self.errors_, seed=seed
            )
            for learner in self.learners
        ]

    def _margin(self, rows: Table) -> Floats:
        predicted = [learner.predict(rows) for learner in self.fitted_]
        return np.asarray(np.mean([logit(p) if self.errors_ == "ce" else p for p in predicted], axis=0))

    def arrays(self) -> Arrays:
        """Return the arrays of all learners, by their numbers."""
        return {
            f"{number}.{name}": values
            for number, learner in enumerate(self.fitted_)
            for name, values in learner.arrays().items()
        }

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.fitted_ = []
        for number, learner in enumerate(self.learners):
            prefix = f"{number}."
            own = {
                name.removeprefix(prefix): values
                for name, values in arrays.items()
                if name.startswith(prefix)
            }
            new = type(learner)(**learner.get_params(deep=False))
            self.fitted_.append(new.restore(own, self.errors_))
