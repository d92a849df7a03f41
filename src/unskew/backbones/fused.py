"""NeuMF's tower in one go for all replicas: look-ups, layers and head, forward and backward.

The same function as the layers compute one by one, dropout masks included. On a GPU it is two kernels: a
program looks up a tile of pairs and runs the three layers and the head on it; another runs them backward and
adds the gradients up. Between the two are kept the layers' outputs and the number of the dropout call. A
third kernel makes all passes of MC dropout. That needs Triton, which comes with PyTorch's CUDA builds;
:func:`fits` tells whether it can serve. On a CPU threads share the replicas
(:mod:`unskew.backbones.fused_cpu`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unskew.backbones.noise import HAS_TRITON, Noise
from unskew.backbones.tables import LazyRows, require_rows
from unskew.compiled import needs_int64

if TYPE_CHECKING:
    from jaxtyping import Float, Int

LazyTables = tuple[LazyRows | None, LazyRows | None]
"""What takes the gradients of the users' and the items' rows; None has a gradient of the whole table."""

LAYERS = 3
SMALLEST_WIDTH = 16
LARGEST_WIDTH = 128
"""Widths the kernels' tiles can hold; each must be a power of two."""

ALLOW_TF32 = True
"""Matrix products of the kernels in TF32 (10 bits of mantissa, sums in float32): twice as fast as float32,
and ``benchmarks/quality.py`` shows that metrics do not move. False computes in float32."""


def fits(dim: int, layers: tuple[int, ...]) -> bool:
    """Whether the GPU kernels can compute a tower of these widths; a CPU computes all."""
    return (
        HAS_TRITON
        and len(layers) == LAYERS
        and all(
            SMALLEST_WIDTH <= width <= LARGEST_WIDTH and width & (width - 1) == 0 for width in (dim, *layers)
        )
    )


def is_long(parameters: tuple[Tensor, ...], rows: int) -> bool:
    """Whether a place in a replica's table, or in what is kept of the rows of all replicas, needs an int64.

    Kernels count in int32 where they can, which takes half as many registers.
    """
    users, items, w1, _, w2, _, w3, *_ = parameters
    widest = max(each.shape[2] for each in (w1, w2, w3))
    return needs_int64(users[0].numel(), items[0].numel(), rows * widest)


def neumf_logits(
    user: Int[Tensor, "R B"],
    item: Int[Tensor, "R B"],
    parameters: tuple[Tensor, ...],
    noise: Noise,
    rate: float,
    lazy: LazyTables = (None, None),
) -> Float[Tensor, "R B"]:
    """Logits ``[R, B]``; ``parameters`` are the tables, then weight and bias of each layer and the head.

    ``rate`` is the dropout in front of each layer, 0 in ``eval`` mode; ``lazy`` those of the tables.
    """
    layers = (len(parameters) - 4) // 2
    calls = noise.next_calls(layers) if rate > 0.0 else noise.calls_so_far()
    user, item = user.contiguous(), item.contiguous()
    if user.is_cuda:
        for code, rows in zip((user, item), lazy, strict=True):
            if rows is not None:
                rows.read(code)
        if not torch.is_grad_enabled():
            from unskew.backbones import fused_kernels

            return fused_kernels.forward(user, item, noise.seed_tensor, calls, rate, parameters)[0]
        on_gpu: Callable[..., Tensor] = _OnGPU.apply
        return on_gpu(user, item, noise.seed_tensor, calls, rate, lazy, *parameters)

    for code, table, rows, name in zip((user, item), parameters, lazy, ("user", "item"), strict=False):
        require_rows(code, table, name)
        if rows is not None:
            rows.read(code)

    from unskew.backbones import fused_cpu

    dropout = fused_cpu.Dropout(noise.seed_tensor, int(calls), rate)
    if not torch.is_grad_enabled():
        return fused_cpu.predict(user, item, dropout, parameters)
    on_cpu: Callable[..., Tensor] = _OnCPU.apply
    return on_cpu(user, item, dropout, lazy, *parameters)


def neumf_moments(
    user: Int[Tensor, "R B"],
    item: Int[Tensor, "R B"],
    parameters: tuple[Tensor, ...],
    noise: Noise,
    rate: float,
    passes: int,
    offset: float,
) -> tuple[Float[Tensor, "R B"], Float[Tensor, "R B"]]:
    """Mean and variance ``[R, B]`` of probabilities over passes with dropout on. On a GPU only.

    A pair is looked up once and runs through the layers ``passes`` times inside one kernel; the masks are
    those of a batch that holds every pair ``passes`` times.
    """
    from unskew.backbones import fused_kernels

    calls = noise.next_calls(LAYERS)
    return fused_kernels.moments(user, item, noise.seed_tensor, calls, rate, passes, offset, parameters)


class _OnGPU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        user: Tensor,
        item: Tensor,
        seeds: Tensor,
        calls: Tensor,
        rate: float,
        lazy: Any,
        *parameters: Tensor,
    ) -> Tensor:
        from unskew.backbones import fused_kernels

        logit, kept = fused_kernels.forward(user, item, seeds, calls, rate, parameters, keep=True)
        ctx.save_for_backward(user, item, seeds, calls, *parameters, *kept)
        ctx.rate, ctx.lazy, ctx.parameters = rate, lazy, len(parameters)
        return logit

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from unskew.backbones import fused_kernels

        user, item, seeds, calls, *rest = ctx.saved_tensors
        parameters, kept = tuple(rest[: ctx.parameters]), tuple(rest[ctx.parameters :])
        of_user, of_item = (None if rows is None else rows.gradient for rows in ctx.lazy)
        grads: list[Tensor | None] = list(
            fused_kernels.backward(
                grad.contiguous(), user, item, seeds, calls, ctx.rate, parameters, kept, (of_user, of_item)
            )
        )
        for place, (code, rows) in enumerate(zip((user, item), ctx.lazy, strict=True)):
            if rows is not None:
                rows.touch(code)
                grads[place] = None
        return (None, None, None, None, None, None, *grads)


class _OnCPU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, user: Tensor, item: Tensor, dropout: Any, lazy: LazyTables, *parameters: Tensor
    ) -> Tensor:
        from unskew.backbones import fused_cpu

        logit, kept = fused_cpu.forward(user, item, dropout, parameters)
        ctx.save_for_backward(user, item, *parameters, *kept)
        ctx.dropout, ctx.lazy, ctx.parameters = dropout, lazy, len(parameters)
        return logit

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from unskew.backbones import fused_cpu

        user, item, *rest = ctx.saved_tensors
        parameters, kept = tuple(rest[: ctx.parameters]), rest[ctx.parameters :]
        by_row = (ctx.lazy[0] is not None, ctx.lazy[1] is not None)
        grads: list[Tensor | None] = list(
            fused_cpu.backward(grad.contiguous(), user, item, ctx.dropout, parameters, kept, by_row)
        )
        for place, (code, rows) in enumerate(zip((user, item), ctx.lazy, strict=True)):
            if rows is not None:
                rows.add(code, grads[place])
                grads[place] = None
        return (None, None, None, None, *grads)
