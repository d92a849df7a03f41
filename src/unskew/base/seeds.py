"""From one seed per repetition to an independent stream for each purpose.

Each repetition has one seed; data split, initial weights, batch order and dropout draw from streams of
their own, so that changing one (another method, another learner) leaves the others as they were and
methods stay paired.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import ParameterError

MOST_SEEDS = 10_000
"""Repetitions at once; a count beyond is a mistake, and its list alone would fill the memory."""


GOLDEN, MIX_1, MIX_2 = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""The numbers of SplitMix64: its step, and the factors of its finaliser."""


def stream(seed: int, purpose: str, *further: int) -> int:
    """Return a 63-bit seed for one purpose of one repetition, e.g. ``stream(3, "weights", fold)``."""
    entropy = [as_seed(seed), zlib.crc32(purpose.encode()), *further]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))


class Replica(NamedTuple):
    """A member of a seed's ensemble: what its rows follow from, its number, and which clicks it holds out."""

    seed: int
    member: int = 0
    part: int = 0

    @property
    def own(self) -> int:
        """The seed of its first weights and of the order of its batches; the first member's is the seed."""
        return self.seed if self.member == 0 else stream(self.seed, "member", self.member)


def replicas_of(seeds: Sequence[int], members: int) -> tuple[Replica, ...]:
    """Return the members of each seed, side by side; each holds out a part of the clicks of its own."""
    return tuple(Replica(seed, member, part=member) for seed in seeds for member in range(members))


def splitmix64(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the next number of SplitMix64 (Steele, Lea and Flood 2014) after each state."""
    value = value + GOLDEN
    value = (value ^ (value >> np.uint64(30))) * MIX_1
    value = (value ^ (value >> np.uint64(27))) * MIX_2
    return value ^ (value >> np.uint64(31))


def as_seed(seed: int) -> int:
    """Check a seed, a whole number that is not negative, and return it."""
    if not _is_whole(seed) or seed < 0:
        raise ParameterError(f"seed must be a whole number of 0 or more, not {seed!r}", remedy="give seed=0")
    return int(seed)


def as_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Return seeds: 0, …, 9 for ``10``; a sequence is taken as it is.

    Examples
    --------
    >>> as_seeds(3), as_seeds([7, 11])
    ((0, 1, 2), (7, 11))
    """
    given: list[object] = []
    if isinstance(seeds, int | np.integer):
        given = list(range(require_count(int(seeds)))) if _is_whole(seeds) else []
    elif isinstance(seeds, Iterable):
        given = list(seeds)
    chosen = tuple(int(seed) for seed in given if isinstance(seed, int | np.integer) and _is_whole(seed))
    if not chosen or len(chosen) < len(given) or min(chosen) < 0 or len(set(chosen)) != len(chosen):
        raise ParameterError(
            f"seeds must be a positive count or distinct non-negative numbers, not {seeds!r}",
            remedy="give seeds=10 or seeds=[0, 1, 2]",
        )
    return chosen


def require_count(seeds: int) -> int:
    """Check a number of repetitions, which are trained together, and return it."""
    if not 1 <= seeds <= MOST_SEEDS:
        raise ParameterError(
            f"seeds must be from 1 to {MOST_SEEDS:,}, not {seeds}", remedy="give seeds=10, for example"
        )
    return seeds


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
