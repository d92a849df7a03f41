"""Counter-based randomness on tensors: the same numbers on every device, for every chunking.

A replica's draws are a function of (its seed, position), so replicas are independent of one another and
nothing has to be stored: not the order of an epoch, not the folds of D.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unskew.base.seeds import GOLDEN, MIX_1, MIX_2
from unskew.base.tensors import Tensor, torch

if TYPE_CHECKING:
    from jaxtyping import Int

_GOLDEN, _MIX_1, _MIX_2 = (int(number) - (1 << 64) for number in (GOLDEN, MIX_1, MIX_2))
ROUNDS = 4
"""Of the Feistel network; even, so that its halves end on the sides they began."""


def mix(x: Tensor) -> Tensor:
    """Mix int64 with wrap-around, as the finaliser of splitmix64 does."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _MIX_1
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * _MIX_2
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def uniform_int(counter: Tensor, key: Tensor, size: int) -> Tensor:
    """Return integers in [0, size), one for each counter under each key (shapes broadcast)."""
    return (mix(counter * _GOLDEN + key) & 0x3FFFFFFFFFFFFFFF) % size


def scaled_int(hashed: Tensor, size: int) -> Tensor:
    """Return integers in [0, size) from hashes, by their upper 32 bits; a division costs several times as
    much."""
    return (((hashed >> 32) & 0xFFFFFFFF) * size) >> 32


def keys(seeds: Int[Tensor, " R"], salt: int) -> Int[Tensor, " R"]:
    """Return one key per replica seed ``[R]`` for one use (an epoch, a fold table, …)."""
    return mix(seeds + _GOLDEN * torch.tensor(salt + 1, device=seeds.device))


def permutation_bits(size: int) -> int:
    """Return the number of bits whose range covers ``size``, as :func:`permute` needs."""
    return max(2, (size - 1).bit_length())


def permute(position: Tensor, key: Tensor, bits: int) -> Tensor:
    """Permute [0, 2^bits) by a key: a Feistel network whose halves may differ by a bit.

    An epoch visits ``permute(0), permute(1), …`` and leaves out what is not a cell: every cell once,
    in random order, without a table of D.
    """
    low, high = bits // 2, bits - bits // 2
    left, right = position >> low, position & ((1 << low) - 1)
    of_left, of_right = (1 << high) - 1, (1 << low) - 1
    for round_ in range(ROUNDS):
        scrambled = mix((right + (round_ << 40)) * _GOLDEN + key) & of_left
        left, right = right, left ^ scrambled
        of_left, of_right = of_right, of_left
    return (left << low) | right


def permuted_range(start: int, stop: int, key: Int[Tensor, " R"], bits: int) -> Int[Tensor, "R n"]:
    """``[R, stop − start]``: :func:`permute` of the numbers from ``start`` on, under each key ``[R]``."""
    numbers = torch.arange(start, stop, device=key.device)
    # One by one: what is worked on stays in a core's cache.
    return torch.stack([permute(numbers, each, bits) for each in key])


def shuffled(key: Int[Tensor, " R"], size: int) -> Int[Tensor, "R size"]:
    """Return a permutation of [0, size) for each key: ``[R, size]`` (stored; for O, not for D)."""
    counter = torch.arange(size, device=key.device)
    return torch.argsort(mix(counter * _GOLDEN + key.unsqueeze(1)), dim=1)
