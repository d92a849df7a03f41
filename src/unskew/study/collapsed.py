"""Networks that learned nothing, in the long table of a study: a metric each, 1 in the seeds concerned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from unskew.metrics.collapse import REASONS, Collapsed, Reason, collapse_message, counts

PREFIX = "collapsed:"
"""Of the metric ``collapsed:NETWORK:REASON``."""


class LearnedNothing(NamedTuple):
    """A network, why it counts as collapsed, and in how many of the seeds."""

    network: str
    reason: Reason
    seeds: int
    of: int

    def __str__(self) -> str:
        return f"{self.network}, {self.seeds} of {self.of} {'seed' if self.of == 1 else 'seeds'}"


def collapsed_values(collapsed: Iterable[Collapsed], seeds: Sequence[int]) -> dict[str, list[float]]:
    """By metric, 1 for each seed whose network collapsed and 0 for the others; empty if none did.

    Examples
    --------
    >>> collapsed_values([Collapsed("imputation", 4, "flat")], (3, 4))
    {'collapsed:imputation:flat': [0.0, 1.0]}
    """
    found = list(collapsed)
    return {
        f"{PREFIX}{network}:{reason}": [
            float(bool(_of(counts(each for each in found if each.seed == seed), network, reason)))
            for seed in seeds
        ]
        for network, reason, _ in counts(found)
    }


def learned_nothing(by_metric: Mapping[str, Mapping[int, float]]) -> tuple[LearnedNothing, ...]:
    """What the metrics of a row, by seed, say of its networks.

    Examples
    --------
    >>> [str(each) for each in learned_nothing({"collapsed:imputation:flat": {3: 0.0, 4: 1.0}})]
    ['imputation, 1 of 2 seeds']
    """
    found = []
    for metric, by_seed in by_metric.items():
        if metric.startswith(PREFIX):
            network, _, reason = metric.removeprefix(PREFIX).rpartition(":")
            seeds = sum(value == 1.0 for value in by_seed.values() if np.isfinite(value))
            if seeds and reason in REASONS:
                found.append(LearnedNothing(network, reason, seeds, len(by_seed)))
    return tuple(found)


def sentences(of: str, networks: Iterable[LearnedNothing]) -> list[str]:
    """What became of each, and the remedy."""
    return [collapse_message(of, each.network, each.reason, each.seeds, each.of) for each in networks]


def _of(found: Iterable[tuple[str, Any, int]], network: str, reason: str) -> int:
    return sum(seeds for name, why, seeds in found if (name, why) == (network, reason))
