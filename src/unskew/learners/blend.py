"""The mean logit of two learners. Importable without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from unskew.base.registry import register
from unskew.learners.learner import Arrays, TableLearner
from unskew.learners.linear import Linear
from unskew.learners.table import EncodedTable, Examples, Floats
from unskew.learners.trees import Trees

PARTS = ("first", "second")


@register(order=130)
@dataclass(kw_only=True)
class Blend(TableLearner):
    """p̂ = σ((logit p̂₁ + logit p̂₂)/2): the mean logit of two learners that are fitted on the same examples.

    Linear models and trees err in different ways, so their mean logit can be better than both. Trees alone
    were better on Coat and on synthetic impressions: compare them on held-out rows. With squared errors it is
    the mean prediction.

    Parameters
    ----------
    first, second
        The learners; either may be a blend itself.
    """

    name: ClassVar[str] = "blend"
    first: TableLearner = field(default_factory=Linear)
    second: TableLearner = field(default_factory=Trees)

    def check(self) -> None:
        """Raise a ParameterError for a parameter out of range."""
        super().check()
        self.first.check()
        self.second.check()

    def _fit(self, examples: Examples, validation: Examples | None, seed: int) -> None:
        self.fitted_ = [
            getattr(self, part)
            .unfitted()
            .fit(examples, validation=validation, errors=self.errors_, seed=seed)
            for part in PARTS
        ]

    def _margin(self, rows: EncodedTable) -> Floats:
        predicted = [learner.predict(rows) for learner in self.fitted_]
        return np.asarray(np.mean([logit(p) if self.errors_ == "ce" else p for p in predicted], axis=0))

    def arrays(self) -> Arrays:
        """Return the arrays of both learners."""
        return {
            f"{part}.{name}": values
            for part, learner in zip(PARTS, self.fitted_, strict=True)
            for name, values in learner.arrays().items()
        }

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.fitted_ = []
        for side in PARTS:
            prefix = f"{side}."
            own = {
                name.removeprefix(prefix): values
                for name, values in arrays.items()
                if name.startswith(prefix)
            }
            self.fitted_.append(getattr(self, side).unfitted().restore(own, self.errors_))
