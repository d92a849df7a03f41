"""Fitted learners of tables as R replicas of a network, for whatever scores, saves and compares networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import logit

from unskew.base.errors import DataError
from unskew.base.tensors import Tensor, torch
from unskew.data import Rows, Schema
from unskew.learners.learner import TableLearner
from unskew.learners.network import Embedded, Network
from unskew.learners.noise import Noise
from unskew.learners.table import table_of

SQUARED = "squared"
"""The array that tells whether a model minimised squared errors."""


class FittedLearners(Network):
    """R fitted models, one a replica. Their arrays are the state; nothing has a gradient.

    Parameters
    ----------
    learner
        What the models are.
    models
        The fitted ones; none before a fit, or before :meth:`load_state_dict`.
    """

    has_shapes = False

    def __init__(
        self,
        learner: TableLearner,
        schema: Schema,
        replicas: int,
        towers: tuple[str, ...],
        models: Sequence[TableLearner] = (),
    ) -> None:
        super().__init__()
        self.learner, self.schema, self.replicas, self.towers = learner, schema, replicas, towers
        self.models = list(models)
        self.noise = Noise([0] * replicas)

    def embed(self, rows: Rows) -> Embedded:
        """Predict: there is nothing that towers could share."""
        return (torch.as_tensor(logit(self.predicted(rows)), device=rows.device),)

    def read(self, embedded: Embedded, tower: str) -> Tensor:
        """Return the logits ``[R, B]``."""
        return embedded[0]

    def moments(self, rows: Rows, passes: int, offset: float) -> tuple[Tensor, Tensor]:
        """Return the probabilities and a variance of 0 ``[R, B]``."""
        mean = torch.as_tensor(self.predicted(rows), device=rows.device)
        return mean, torch.zeros_like(mean)

    def graph(self) -> Any:
        """Return the models as a module of operations that an exported graph has."""
        from unskew.learners.graph import LearnersGraph

        return LearnersGraph(self.models, self.schema)

    def predicted(self, rows: Rows) -> Any:
        """Return probabilities ``[R, B]`` of rows ``[R, B]``, or ``[1, B]`` for all replicas."""
        tables = [
            table_of(self.schema, rows.map(lambda values, at=at: values[at : at + 1]))  # type: ignore[misc]
            for at in range(len(rows.user))
        ]
        if len(tables) == 1:
            tables *= self.replicas
        return np.stack([model.predict(table) for model, table in zip(self.models, tables, strict=True)])

    def state_dict(self, *args: Any, **options: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """Return the arrays of all models, by replica."""
        return state_of(dict(enumerate(self.models)))

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Take the arrays of all models; a DataError where they cannot be those of so many."""
        try:
            self.models = [restored(self.learner, state_dict, f"{at}.") for at in range(self.replicas)]
        except (KeyError, ValueError, IndexError, TypeError) as error:
            what = f"these are no arrays of {self.learner.name}: {error}"
            raise DataError(what, remedy="save it again") from None


def restored(learner: TableLearner, state: Mapping[str, Tensor], prefix: str) -> TableLearner:
    """Return the fitted model whose arrays have names with a prefix."""
    arrays = {
        name.removeprefix(prefix): values.cpu().numpy().copy()
        for name, values in state.items()
        if name.startswith(prefix)
    }
    return learner.unfitted().restore(arrays, "squared" if arrays.pop(SQUARED) else "ce")


def state_of(models: Mapping[int, TableLearner]) -> dict[str, Tensor]:
    """Return the arrays of fitted models by the numbers of their replicas."""
    return {
        f"{number}.{name}": torch.tensor(np.asarray(values))
        for number, model in models.items()
        for name, values in {**model.arrays(), SQUARED: model.errors_ == "squared"}.items()
    }
