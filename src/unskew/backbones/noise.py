"""Random masks of replicas: replica k's masks depend on its own seed and nothing else.

A mask is a hash of (seed, number of the call, element), the same on every device. On a GPU it is computed
inside the step, so that it fuses with it and replays under a CUDA graph; on a CPU by a compiled loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_UINT16 = 1 << 16
_MIX = (0x7FEB352D, 0x846CA68B - (1 << 32))
GOLDEN = 0x9E3779B9 - (1 << 32)


class Noise:
    """Dropout masks for R replicas.

    Parameters
    ----------
    seeds
        One seed per replica.
    compiled
        On a CPU, make masks by the compiled loop instead of by tensor operations as a GPU does.
    """

    def __init__(self, seeds: Sequence[int], compiled: bool = True) -> None:
        self.seeds = tuple(seeds)
        self.compiled = compiled
        self.device = torch.device("cpu")
        self.restart()

    def restart(self) -> None:
        """Go back to the first mask of every replica."""
        self._seed = torch.tensor(
            [seed % (1 << 31) for seed in self.seeds], dtype=torch.int32, device=self.device
        )
        self._call = torch.zeros((), dtype=torch.int32, device=self.device)

    def to(self, device: torch.device) -> None:
        """Move to a device."""
        self.device = device
        self.restart()

    @property
    def seed_tensor(self) -> Tensor:
        """Seeds as the hash takes them, ``[R]``."""
        return self._seed

    def calls_so_far(self) -> Tensor:
        """How many masks were made, as a number on the device."""
        return self._call

    def next_calls(self, count: int) -> Tensor:
        """The number of the next mask; ``count`` masks from it on count as made."""
        first = self._call.clone()
        self._call += count
        return first

    def keep_mask(self, shape: Sequence[int], rate: float, dtype: torch.dtype) -> Tensor:
        """A mask ``[R, B, …]`` of 0 and 1/(1 − rate): zero with probability ``rate``, to 1/65,536."""
        threshold = round(rate * _UINT16) - _UINT16 // 2
        call = self.next_calls(1)
        if self.compiled and self.device.type == "cpu":
            return self._compiled_mask(shape, call, threshold, 1.0 / (1.0 - rate)).to(dtype)
        return (self._bits(shape, call) >= threshold).to(dtype).mul_(1.0 / (1.0 - rate))

    def uniform(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Numbers ``[R, B, …]`` between 0 and 1, neither of them, on a grid of 65,536."""
        bits = self._bits(shape, self.next_calls(1)).to(dtype)
        return (bits + (0.5 * _UINT16 + 0.5)) / _UINT16

    def dropped(self, x: Tensor, rate: float) -> Tensor:
        """x ``[R, …]`` times a mask."""
        return x * self.keep_mask(x.shape, rate, x.dtype)

    def _compiled_mask(self, shape: Sequence[int], call: Tensor, threshold: int, scale: float) -> Tensor:
        from unskew.backbones.cpu_kernels import fill_mask

        mask = torch.empty(tuple(shape))
        for seed, line in zip(self._seed.tolist(), mask.view(shape[0], -1), strict=True):
            fill_mask(seed, int(call), np.int32(threshold), np.float32(scale), 0, line.numpy())
        return mask

    def _bits(self, shape: Sequence[int], call: Tensor) -> Tensor:
        per_replica = int(torch.Size(shape[1:]).numel())
        element = torch.arange(per_replica, dtype=torch.int32, device=self._seed.device)
        key = mix32(self._seed + mix32(call * GOLDEN + 1)).unsqueeze(1)
        bits = mix32((element * GOLDEN) ^ key)
        return (bits >> 16).to(torch.int16).view(tuple(shape))


def mix32(x: Tensor) -> Tensor:
    """A 32-bit finaliser (Wellons' lowbias32) on int32 with wrap-around."""
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * _MIX[0]
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * _MIX[1]
    return x ^ ((x >> 16) & 0xFFFF)
