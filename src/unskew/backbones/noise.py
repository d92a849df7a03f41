"""Random masks of replicas: replica k's masks depend on its own seed and nothing else.

On a CPU each replica has a generator. On a GPU a counter-based hash makes the masks inside the step, so
that they fuse with it and replay under a CUDA graph; it can be chosen on a CPU too, where tests run it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_UINT16 = 1 << 16
_MIX = (0x7FEB352D, 0x846CA68B - (1 << 32))
_GOLDEN = 0x9E3779B9 - (1 << 32)


class Noise:
    """Dropout masks for R replicas.

    Parameters
    ----------
    seeds
        One seed per replica.
    hashed
        Make masks by hashing (seed, call, element) instead of drawing from generators.
    """

    def __init__(self, seeds: Sequence[int], hashed: bool = False) -> None:
        self.seeds = tuple(seeds)
        self.hashed = hashed
        self.device = torch.device("cpu")
        self.restart()

    def restart(self) -> None:
        """Go back to the first mask of every replica."""
        self._generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        self._seed = torch.tensor(
            [seed % (1 << 31) for seed in self.seeds], dtype=torch.int32, device=self.device
        )
        self._call = torch.zeros((), dtype=torch.int32, device=self.device)

    def to(self, device: torch.device) -> None:
        """Move to a device; a GPU always hashes."""
        self.device = device
        self.hashed = self.hashed or device.type != "cpu"
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
        """A mask ``[R, …]`` of 0 and 1/(1 − rate): zero with probability ``rate``, to 1/65,536."""
        bits = self._hash_bits(shape) if self.hashed else self._draw_bits(shape)
        threshold = round(rate * _UINT16) - _UINT16 // 2
        return (bits >= threshold).to(dtype).mul_(1.0 / (1.0 - rate))

    def _draw_bits(self, shape: Sequence[int]) -> Tensor:
        replicas, per_replica = shape[0], int(torch.Size(shape[1:]).numel())
        # One 64-bit draw serves four 16-bit lanes: the generator is the costly part on a CPU.
        draws = torch.empty(replicas, -(-per_replica // 4), dtype=torch.int64)
        for row, generator in zip(draws, self._generators, strict=True):
            row.random_(-(1 << 63), None, generator=generator)
        return draws.view(torch.int16)[:, :per_replica].reshape(tuple(shape))

    def _hash_bits(self, shape: Sequence[int]) -> Tensor:
        per_replica = int(torch.Size(shape[1:]).numel())
        element = torch.arange(per_replica, dtype=torch.int32, device=self._seed.device)
        key = _mix32(self._seed + _mix32(self._call * _GOLDEN + 1)).unsqueeze(1)
        self._call += 1
        bits = _mix32((element * _GOLDEN) ^ key)
        return (bits >> 16).to(torch.int16).view(tuple(shape))


def _mix32(x: Tensor) -> Tensor:
    """A 32-bit finaliser (Wellons' lowbias32) on int32 with wrap-around."""
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * _MIX[0]
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * _MIX[1]
    return x ^ ((x >> 16) & 0xFFFF)
