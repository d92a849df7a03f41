"""The keyed bijection of :mod:`unskew.training.hashing` as a compiled loop. Imported only on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.compiled import compiled
from unskew.io.id_loops import mix

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FORTY, _ONE = np.uint64(40), np.uint64(1)


@compiled()
def fill_permuted(start: Any, key: Any, bits: Any, rounds: Any, out: Any) -> None:
    """The images of ``start``, ``start + 1``, … under one key, ``[n]``."""
    low = np.uint64(bits // 2)
    mask_low = (_ONE << low) - _ONE
    mask_high = (_ONE << np.uint64(bits - bits // 2)) - _ONE
    for place in range(len(out)):
        position = np.uint64(start + place)
        left, right = position >> low, position & mask_low
        of_left, of_right = mask_high, mask_low
        for round_ in range(rounds):
            salted = right + (np.uint64(round_) << _FORTY)
            scrambled = mix(salted * _GOLDEN + np.uint64(key)) & of_left
            left, right = right, left ^ scrambled
            of_left, of_right = of_right, of_left
        out[place] = np.int64((left << low) | right)
