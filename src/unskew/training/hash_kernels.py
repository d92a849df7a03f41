"""The keyed bijection of :mod:`unskew.training.hashing` as one Triton kernel. Imported only on a GPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.compiled import triton_cache

triton_cache()

BLOCK = 1024


@triton.jit
def _permute_kernel(
    start, keys, out, n, LOW: tl.constexpr, HIGH: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr
):
    place = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    golden = tl.full((1,), 0x9E3779B97F4A7C15, tl.uint64)
    mix_1 = tl.full((1,), 0xBF58476D1CE4E5B9, tl.uint64)
    mix_2 = tl.full((1,), 0x94D049BB133111EB, tl.uint64)
    of_right = tl.full((1,), (1 << LOW) - 1, tl.uint64)
    of_left = tl.full((1,), (1 << HIGH) - 1, tl.uint64)
    key = tl.load(keys + tl.program_id(0)).to(tl.uint64, bitcast=True)
    position = (place + start).to(tl.uint64)
    left = position >> LOW
    right = position & of_right
    for round_ in tl.static_range(ROUNDS):
        x = (right + (tl.full((1,), round_, tl.uint64) << 40)) * golden + key
        x = (x ^ (x >> 30)) * mix_1
        x = (x ^ (x >> 27)) * mix_2
        x = x ^ (x >> 31)
        left, right = right, left ^ (x & of_left)
        of_left, of_right = of_right, of_left
    result = ((left << LOW) | right).to(tl.int64, bitcast=True)
    tl.store(out + tl.program_id(0).to(tl.int64) * n + place, result, mask=inside)


def permute(start: int, count: int, key: Tensor, bits: int, rounds: int) -> Tensor:
    """``[R, count]``: the images of ``start``, ``start + 1``, … under each key ``[R]``."""
    out = torch.empty(len(key), count, dtype=torch.int64, device=key.device)
    # Triton launches on the current device, which need not be the tensors'.
    with torch.cuda.device_of(key):
        _permute_kernel[(len(key), triton.cdiv(count, BLOCK))](
            start, key, out, count, LOW=bits // 2, HIGH=bits - bits // 2, ROUNDS=rounds, BLOCK=BLOCK
        )
    return out
