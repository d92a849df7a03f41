"""The learner: anything that fits P(target = 1 | row). Importable without torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unskew.base.errors import DataError
from unskew.base.estimator import Estimator, require_types
from unskew.data.schema import Schema
from unskew.learners.table import EncodedTable, Examples, Floats

if TYPE_CHECKING:
    from unskew.learners.network import Network

Errors = Literal["ce", "squared"]
"""Cross-entropy, for targets that are 0 or 1; or squared errors, for pseudo-outcomes, which leave [0, 1]."""

Arrays = dict[str, NDArray[Any]]

LEAST = 1e-7
"""Predictions keep this far from 0 and 1, where a log-loss is infinite."""


TOWER = "prediction"
"""The tower of a network that has only one."""


@dataclass(kw_only=True)
class Learner(Estimator):
    """Parameters of a model of P(target = 1 | row); :meth:`build` makes R replicas of it.

    Networks (:class:`~unskew.learners.network.NetworkLearner`) train their replicas in one loop. Learners of
    tables (:class:`TableLearner`) fit them one after another.
    """

    name: ClassVar[str]
    reads_features: ClassVar[bool] = False
    """Whether its models read more than the two ids."""

    def build(
        self, schema: Schema, seeds: Sequence[int], towers: Sequence[str] = (TOWER,), *, drawn: bool = True
    ) -> Network:
        """Build ``len(seeds)`` untrained replicas; replica k depends on ``seeds[k]`` alone.

        Parameters
        ----------
        drawn
            Whether initial weights are drawn; not where all of them are filled in at once.
        """
        raise NotImplementedError


@dataclass(kw_only=True)
class TableLearner(Learner, ABC):
    """A learner without a network: it fits one table of rows, and saves plain arrays.

    Attributes
    ----------
    errors_
        What it minimised.
    validation_loss_
        The mean loss of the held-out examples; None without any.
    """

    reads_features: ClassVar[bool] = True
    saves: ClassVar[bool] = True
    """Whether plain arrays can hold what it learned."""

    def build(
        self, schema: Schema, seeds: Sequence[int], towers: Sequence[str] = (TOWER,), *, drawn: bool = True
    ) -> Network:
        """Return room for the fitted models of all replicas."""
        from unskew.learners.fitted import FittedLearners

        require_types(self)
        return FittedLearners(self, schema, len(seeds), tuple(towers))

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
        self.check()
        require_fit(examples, errors)
        self.errors_: Errors = errors
        self._fit(examples, validation, seed)
        self.validation_loss_: float | None = None
        if validation is not None and len(validation.target):
            self.validation_loss_ = mean_loss(validation, self.predict(validation.rows), errors)
        return self

    def predict(self, rows: EncodedTable) -> Floats:
        """Return the expectation of the target of each row, a probability."""
        self._require_fitted("errors_")
        margin = self._margin(rows)
        return np.clip(expit(margin) if self.errors_ == "ce" else margin, LEAST, 1.0 - LEAST)

    @abstractmethod
    def _fit(self, examples: Examples, validation: Examples | None, seed: int) -> None:
        """Learn."""

    @abstractmethod
    def _margin(self, rows: EncodedTable) -> Floats:
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

    def unfitted(self) -> Self:
        """Return a learner with the same parameters."""
        return type(self)(**self.get_params(deep=False))

    def check(self) -> None:
        """Raise a ParameterError for a parameter out of range."""
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
