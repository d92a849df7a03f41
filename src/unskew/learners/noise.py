"""Random masks of replicas: replica k's masks depend on its own seed and nothing else.

A mask is a hash of (seed, number of the call, element), the same on every device. On a GPU it is computed
inside the step, so that it replays under a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from unskew.base.compiled import numba_is_installed
from unskew.base.tensors import Tensor, torch

_UINT16 = 1 << 16
_MIX = (0x7FEB352D, 0x846CA68B - (1 << 32))
GOLDEN = 0x9E3779B9 - (1 << 32)


class Noise:
    """Dropout masks for R replicas.

    Parameters
    ----------
    seeds
        One seed per replica.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self.seeds = tuple(seeds)
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

    def calls_so_far(self) -> Tensor:
        """Return how many masks were made, as a number on the device."""
        return self._call

    def next_calls(self, count: int) -> Tensor:
        """Return the number of the next mask; ``count`` masks from it on count as made."""
        first = self._call.clone()
        self._call += count
        return first

    def keep_mask(self, shape: Sequence[int], rate: float, dtype: torch.dtype) -> Tensor:
        """Return a mask ``[R, B, …]`` of 0 and 1/(1 − rate): zero with probability ``rate``, to 1/65,536."""
        if self.device.type == "cpu" and numba_is_installed():
            from unskew.kernels.masks import keep_mask

            return keep_mask(shape, self._seed, self.next_calls(1), rate).to(dtype)
        return plain_mask(shape, self._seed, self.next_calls(1), rate).to(dtype)

    def uniform(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return numbers ``[R, B, …]`` between 0 and 1, neither of them, on a grid of 65,536."""
        bits = _bits(shape, self._seed, self.next_calls(1)).to(dtype)
        return (bits + (0.5 * _UINT16 + 0.5)) / _UINT16

    def dropped(self, x: Tensor, rate: float) -> Tensor:
        """Return x ``[R, …]`` times a mask."""
        return x * self.keep_mask(x.shape, rate, x.dtype)


def plain_mask(shape: Sequence[int], seeds: Tensor, call: Tensor, rate: float) -> Tensor:
    """Return the mask ``[R, B, …]`` of a call: 0 with probability ``rate``, else 1/(1 − rate)."""
    threshold = round(rate * _UINT16) - _UINT16 // 2
    return torch.where(_bits(shape, seeds, call) >= threshold, 1.0 / (1.0 - rate), 0.0)


def _bits(shape: Sequence[int], seeds: Tensor, call: Tensor) -> Tensor:
    """Return 16 random bits for each element, as int16."""
    per_replica = int(torch.Size(shape[1:]).numel())
    element = torch.arange(per_replica, dtype=torch.int32, device=seeds.device)
    key = mix32(seeds + mix32(call * GOLDEN + 1)).unsqueeze(1)
    bits = mix32((element * GOLDEN) ^ key)
    return (bits >> 16).to(torch.int16).view(tuple(shape))


def mix32(x: Tensor) -> Tensor:
    """Mix the bits of an int32 with wrap-around (Wellons' lowbias32)."""
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * _MIX[0]
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * _MIX[1]
    return x ^ ((x >> 16) & 0xFFFF)
