"""Hyper-parameters chosen on validation loss alone: trials of a search, the choice, and both as rows.

The test set is never asked: the models of a trial are not evaluated on it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.errors import TrainingError
from unskew.study.cells import CellStore
from unskew.study.grid import TuneTable
from unskew.study.trained import Stack

SUPPLEMENT = {
    "backbone__dim": [16, 32, 64, 128, 256],
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


@dataclass(frozen=True)
class Search:
    """The trials of one method on one dataset."""

    trials: tuple[Trial, ...]


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


def tried_values(tune: TuneTable | None, label: str) -> list[dict[str, Any]]:
    """Every value that the search of a method tries, by itself."""
    return tune.single_values() if tune is not None and tune.tunes(label) else []


def searches(
    tune: TuneTable | None,
    label: str,
    seeds: list[int],
    stacks: Callable[[Mapping[str, Any], list[int]], list[Stack]],
) -> Iterator[Search]:
    """The search of a method, if it is tuned."""
    if tune is None or not tune.tunes(label):
        return
    tried = seeds[: tune.seeds]
    yield Search(
        tuple(
            Trial(params, stacks(params, tried))
            for params in combinations(tune.values, tune.trials, tune.draw)
        )
    )


def chosen_params(search: Search, store: CellStore) -> Mapping[str, Any]:
    """The combination with the lowest mean validation loss over propensities and seeds.

    One choice serves all propensities of a method, so that they stay comparable and one stack. All trials
    weigh their validation loss by the clip and selection that the method has before it is tuned, so that
    losses can be compared also where these are tried. A trial with a seed that diverged is not chosen.
    """
    losses = [_mean_loss(trial, store) for trial in search.trials]
    best = min(range(len(losses)), key=losses.__getitem__)
    if not math.isfinite(losses[best]):
        raise TrainingError(
            "every trial of the search diverged", remedy="give smaller values of learning_rate"
        )
    return search.trials[best].params


def search_rows(search: Search, store: CellStore) -> Iterator[dict[str, Any]]:
    """The whole search: ``validation_loss[…]`` by propensity and seed, and ``chosen[name]`` with its value.

    A chosen value that is no number is told by its place in the list of values.
    """
    for trial in search.trials:
        for stack in trial.stacks:
            for row in stack.rows(store):
                if row["metric"] in ("validation_loss", "diverged") and row["part"] == "method":
                    yield {**row, "metric": f"{row['metric']}[{trial.label}]", "part": "search"}
    for name, value in chosen_params(search, store).items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        values = list(dict.fromkeys(str(trial.params[name]) for trial in search.trials))
        told = float(value) if is_number else float(values.index(str(value)))
        names = {"propensity": "", "calibrator": "", "seed": None, "part": "search"}
        yield {**names, "metric": f"chosen[{name}]", "value": told}


def _mean_loss(trial: Trial, store: CellStore) -> float:
    rows = [row for stack in trial.stacks for row in stack.rows(store)]
    if any(row["value"] for row in rows if row["metric"] == "diverged"):
        return math.inf
    losses = [row["value"] for row in rows if row["metric"] == "validation_loss"]
    return float(np.mean(losses)) if losses else math.inf
