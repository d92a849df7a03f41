"""Triton kernels of networks with features: look-ups of all fields at once, and masks.

Imported only on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.backbones.fused_kernels import _key, _mix32
from unskew.backbones.tables import LazyBuffer
from unskew.compiled import triton_cache

triton_cache()

ROWS = 32
"""Rows of a batch that one program looks up."""
MASK = 1024
"""Elements of a mask that one program makes."""


@triton.jit
def _look_up_kernel(
    table, codes, fields, out, codes_stride, batch, slots, rows, out_width,
    D: tl.constexpr, BLOCK_D: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    field, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    place = tl.program_id(0) * T + tl.arange(0, T)
    d = tl.arange(0, BLOCK_D)
    inside, columns = place < batch, d < D
    first, count = tl.load(fields + field * 4), tl.load(fields + field * 4 + 1)
    offset, pool = tl.load(fields + field * 4 + 2), tl.load(fields + field * 4 + 3)
    total = tl.zeros((T, BLOCK_D), dtype=tl.float32)
    number = tl.zeros((T,), dtype=tl.float32)
    for slot in range(count):
        code = tl.load(
            codes + r * codes_stride + place.to(tl.int64) * slots + first + slot, mask=inside, other=-1
        )
        there = inside & ((code >= 0) | (pool == 0))
        row = r * rows + tl.maximum(code, 0) + offset
        total += tl.load(
            table + row[:, None] * D + d[None, :], mask=there[:, None] & columns[None, :], other=0.0
        )
        number += tl.where(there, 1.0, 0.0)
    if pool == 1:
        total = total / tl.maximum(number, 1.0)[:, None]
    at = (r * batch + place)[:, None] * out_width + field * D + d[None, :]
    tl.store(out + at, total, mask=inside[:, None] & columns[None, :])


@triton.jit
def _add_kernel(
    gradient, codes, fields, of_out, codes_stride, batch, slots, rows, out_width,
    D: tl.constexpr, BLOCK_D: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    field, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    place = tl.program_id(0) * T + tl.arange(0, T)
    d = tl.arange(0, BLOCK_D)
    inside, columns = place < batch, d < D
    first, count = tl.load(fields + field * 4), tl.load(fields + field * 4 + 1)
    offset, pool = tl.load(fields + field * 4 + 2), tl.load(fields + field * 4 + 3)
    at = (r * batch + place)[:, None] * out_width + field * D + d[None, :]
    g = tl.load(of_out + at, mask=inside[:, None] & columns[None, :], other=0.0)
    own = codes + r * codes_stride + place.to(tl.int64) * slots + first
    if pool == 1:
        number = tl.zeros((T,), dtype=tl.float32)
        for slot in range(count):
            number += tl.where(tl.load(own + slot, mask=inside, other=-1) >= 0, 1.0, 0.0)
        g = g / tl.maximum(number, 1.0)[:, None]
    for slot in range(count):
        code = tl.load(own + slot, mask=inside, other=-1)
        there = inside & ((code >= 0) | (pool == 0))
        row = r * rows + tl.maximum(code, 0) + offset
        to = gradient + row[:, None] * D + d[None, :]
        tl.atomic_add(to, g, mask=there[:, None] & columns[None, :], sem="relaxed")


def _arguments(table: Tensor, codes: Tensor, layout: Tensor) -> tuple[tuple[int, int, int], dict[str, int]]:
    grid = (triton.cdiv(codes.shape[1], ROWS), len(layout), len(table))
    width = table.shape[2]
    return grid, {"D": width, "BLOCK_D": triton.next_power_of_2(width), "T": ROWS}


def _codes_stride(codes: Tensor) -> int:
    """From one replica's codes to the next; none where all share theirs."""
    return codes.stride(0) if len(codes) > 1 else 0


class _Fields(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        table: Tensor,
        codes: Tensor,
        layout: Tensor,
        numbers: Tensor | None,
        lazy: LazyBuffer | None,
    ) -> Tensor:
        codes = codes.contiguous()
        ctx.rows = None
        if lazy is not None:
            per_slot = torch.repeat_interleave(layout[:, 2], layout[:, 1], output_size=codes.shape[2])
            ctx.rows = (codes.clamp(min=0) + per_slot).flatten(1)
            lazy.read(ctx.rows)
        replicas, batch = len(table), codes.shape[1]
        embedded = len(layout) * table.shape[2]
        width = embedded + (0 if numbers is None else numbers.shape[-1])
        out = torch.empty(replicas, batch, width, device=table.device)
        grid, sizes = _arguments(table, codes, layout)
        with torch.cuda.device_of(table):
            _look_up_kernel[grid](
                table, codes, layout, out, _codes_stride(codes), batch, codes.shape[2], table.shape[1],
                width, **sizes,
            )  # fmt: skip
        if numbers is not None:
            out[..., embedded:] = numbers
        ctx.save_for_backward(codes, layout)
        ctx.lazy, ctx.table = lazy, table
        return out

    @staticmethod
    def backward(ctx: Any, of_out: Tensor) -> tuple[Tensor | None, ...]:
        (codes, layout), table, lazy = ctx.saved_tensors, ctx.table, ctx.lazy
        of_out = of_out.contiguous()
        gradient = torch.zeros_like(table) if lazy is None else lazy.gradient
        grid, sizes = _arguments(table, codes, layout)
        with torch.cuda.device_of(table):
            _add_kernel[grid](
                gradient, codes, layout, of_out, _codes_stride(codes), codes.shape[1],
                codes.shape[2], table.shape[1], of_out.shape[2], **sizes,
            )  # fmt: skip
        if lazy is None:
            return gradient, None, None, None, None
        lazy.touch(ctx.rows)
        return None, None, None, None, None


def look_up(
    table: Tensor, codes: Tensor, layout: Tensor, numbers: Tensor | None, lazy: LazyBuffer | None
) -> Tensor:
    """``[R, B, fields · width + numbers]``: the embeddings of all fields of rows, pooled, and their numbers.

    Parameters
    ----------
    table
        ``[R, codes, width]``.
    codes
        ``[R, B, slots]``, or ``[1, B, slots]`` for all replicas; −1 is an empty slot of a bag.
    layout
        ``[fields, 4]``: a field's first slot, its number of slots, its first row of the table, and how its
        slots are pooled (0 there is one, 1 by their mean, 2 by their sum).
    """
    found: Tensor = _Fields.apply(table, codes, layout, numbers, lazy)
    return found


@triton.jit
def _mask_kernel(x, out, seeds, calls, n, threshold, scale, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(1)
    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = element < n
    bits = _mix32((element.to(tl.uint32, bitcast=True) * 0x9E3779B9) ^ _key(seeds, calls, r, 0))
    kept = tl.where((bits.to(tl.int32, bitcast=True) >> 16) >= threshold, scale, 0.0)
    at = r.to(tl.int64) * n + element
    if TIMES:
        kept = kept * tl.load(x + at, mask=inside, other=0.0)
    tl.store(out + at, kept, mask=inside)


def _masked(x: Tensor | None, out: Tensor, seeds: Tensor, calls: Tensor, rate: float) -> Tensor:
    n = out[0].numel()
    with torch.cuda.device_of(out):
        _mask_kernel[(triton.cdiv(n, MASK), len(out))](
            out if x is None else x, out, seeds, calls, n, round(rate * 65536) - 32768, 1.0 / (1.0 - rate),
            TIMES=x is not None, BLOCK=MASK,
        )  # fmt: skip
    return out


def keep_mask(shape: Sequence[int], seeds: Tensor, calls: Tensor, rate: float) -> Tensor:
    """The mask of :meth:`unskew.backbones.noise.Noise.keep_mask`, in one kernel."""
    return _masked(None, torch.empty(tuple(shape), device=seeds.device), seeds, calls, rate)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, seeds: Tensor, calls: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(seeds, calls)
        ctx.rate = rate
        x = x.contiguous()
        return _masked(x, torch.empty_like(x), seeds, calls, rate)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        seeds, calls = ctx.saved_tensors
        gradient = gradient.contiguous()
        return _masked(gradient, torch.empty_like(gradient), seeds, calls, ctx.rate), None, None, None


def dropout(x: Tensor, seeds: Tensor, calls: Tensor, rate: float) -> Tensor:
    """x times its mask, which is made again in the backward pass instead of kept."""
    dropped: Tensor = _Dropout.apply(x, seeds, calls, rate)
    return dropped
