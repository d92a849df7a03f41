"""Dropout masks on a CPU as a compiled loop: :func:`unskew.learners.noise.plain_mask`, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unskew.base.compiled import compiled

_GOLDEN = np.uint32(0x9E3779B9)
_MIX_1, _MIX_2 = np.uint32(0x7FEB352D), np.uint32(0x846CA68B)
_HALF, _FIFTEEN, _ONE = np.uint32(16), np.uint32(15), np.uint32(1)


def keep_mask(shape: Sequence[int], seeds: Tensor, call: Tensor, rate: float) -> Tensor:
    """Return a mask ``[R, B, …]`` of 0 and 1/(1 − rate)."""
    mask = torch.empty(tuple(shape))
    threshold, scale = np.int32(round(rate * 65536) - 32768), np.float32(1.0 / (1.0 - rate))
    for seed, line in zip(seeds.tolist(), mask.view(shape[0], -1), strict=True):
        _fill(seed, int(call), threshold, scale, line.numpy())
    return mask


@compiled()
def _mix32(x: Any) -> Any:
    x = np.uint32(x ^ (x >> _HALF))
    x = np.uint32(x * _MIX_1)
    x = np.uint32(x ^ (x >> _FIFTEEN))
    x = np.uint32(x * _MIX_2)
    return np.uint32(x ^ (x >> _HALF))


@compiled()
def _fill(seed: Any, call: Any, threshold: Any, scale: Any, out: Any) -> None:
    key = _mix32(np.uint32(np.uint32(seed) + _mix32(np.uint32(np.uint32(call) * _GOLDEN + _ONE))))
    for element in range(len(out)):
        bits = _mix32(np.uint32(np.uint32(np.uint32(element) * _GOLDEN) ^ key))
        out[element] = scale if (np.int32(bits) >> 16) >= threshold else np.float32(0.0)
