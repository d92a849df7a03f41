"""Hyper-parameters chosen on validation loss alone: trials of a search, the choice, and both as rows.

The test set is never asked: the models of a trial are not evaluated on it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.base.errors import TrainingError
from unskew.study.results import ResultStore
from unskew.study.trained import Stack

SUPPLEMENT = {
    "learner__dim": [16, 32, 64, 128, 256],
    "batch_size": [256, 512, 1024, 2048],
    "learning_rate": [5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2],
    "weight_decay": [1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3],
}
"""The search range of the paper's supplement: embedding size, batch size, learning rate, L2."""


@dataclass(frozen=True)
class Trial:
    """One combination of values, and the stacks that try it."""

    params: Mapping[str, Any]
    stacks: Sequence[Stack]

    @property
    def label(self) -> str:
        """The combination in words."""
        return ", ".join(f"{name}={value}" for name, value in self.params.items())


def combinations(values: Mapping[str, Sequence[Any]], trials: int | None, draw: int) -> list[dict[str, Any]]:
    """All combinations of values, or so many of them, drawn without repetition.

    Examples
    --------
    >>> combinations({"a": [1, 2], "b": [3]}, None, 0)
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    >>> len(combinations(SUPPLEMENT, 20, 0))
    20
    """
    everything = [
        dict(zip(values, combined, strict=True)) for combined in itertools.product(*values.values())
    ]
    if trials is None or trials >= len(everything):
        return everything
    chosen = np.random.default_rng(draw).choice(len(everything), size=trials, replace=False)
    return [everything[number] for number in sorted(chosen)]


def chosen_params(trials: Sequence[Trial], store: ResultStore) -> Mapping[str, Any]:
    """The combination with the lowest mean validation loss over propensities and seeds.

    One choice serves all propensities of a method, so that they stay comparable and one stack. All trials
    weigh their validation loss by the clip and selection that the method has before it is tuned, so that
    losses can be compared also where these are tried. A trial with a seed that diverged is not chosen.
    """
    losses = [_mean_loss(trial, store) for trial in trials]
    best = min(range(len(losses)), key=losses.__getitem__)
    if not math.isfinite(losses[best]):
        raise TrainingError(
            "every trial of the search diverged", remedy="give smaller values of learning_rate"
        )
    return trials[best].params


def search_rows(trials: Sequence[Trial], store: ResultStore) -> Iterator[dict[str, Any]]:
    """The whole search: ``validation_loss[…]`` by propensity and seed, and ``chosen[name]`` with its value.

    A chosen value that is no number is given as its place in the list of values.
    """
    for trial in trials:
        for stack in trial.stacks:
            for row in stack.rows(store):
                del row["test"]
                if row["metric"] in ("validation_loss", "diverged") and row["part"] == "method":
                    yield {**row, "metric": f"{row['metric']}[{trial.label}]", "part": "search"}
    for name, value in chosen_params(trials, store).items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        values = list(dict.fromkeys(str(trial.params[name]) for trial in trials))
        number = float(value) if is_number else float(values.index(str(value)))
        names = {"propensity": "", "calibrator": "", "seed": None, "part": "search"}
        yield {**names, "metric": f"chosen[{name}]", "value": number}


def _mean_loss(trial: Trial, store: ResultStore) -> float:
    rows = [row for stack in trial.stacks for row in stack.rows(store)]
    if any(row["value"] for row in rows if row["metric"] == "diverged"):
        return math.inf
    losses = [row["value"] for row in rows if row["metric"] == "validation_loss"]
    return float(np.mean(losses)) if losses else math.inf
