"""From one seed per repetition to an independent stream for each purpose.

Each repetition has one seed; data split, initial weights, batch order and dropout draw from streams of
their own, so that changing one (another method, another backbone) leaves the others as they were and
methods stay paired.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from unskew.errors import ParameterError


def stream(seed: int, purpose: str, *further: int) -> int:
    """A 63-bit seed for one purpose of one repetition, e.g. ``stream(3, "weights", fold)``."""
    entropy = [seed, zlib.crc32(purpose.encode()), *further]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))


def as_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """``10`` → seeds 0, …, 9; a sequence is taken as it is.

    Examples
    --------
    >>> as_seeds(3), as_seeds([7, 11])
    ((0, 1, 2), (7, 11))
    """
    each = range(seeds) if isinstance(seeds, int | np.integer) else seeds
    chosen = tuple(int(seed) for seed in each)
    if not chosen or min(chosen) < 0 or len(set(chosen)) != len(chosen):
        raise ParameterError(
            f"seeds must be a positive count or distinct non-negative numbers, not {seeds!r}",
            remedy="give seeds=10 or seeds=[0, 1, 2]",
        )
    return chosen
