"""NeuMF's tower as two GPU kernels, forward and backward, for all replicas at once.

The same function as the layers compute one by one, dropout masks included: a program looks up a tile of
pairs, runs the three layers and the head on it, and (backward) runs them again to add the gradients up.
Nothing is kept between the two but the number of the dropout call. Needs Triton, which comes with PyTorch's
CUDA builds; :func:`fits` tells whether it can serve.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unskew.backbones.noise import Noise

LAYERS = 3
SMALLEST_WIDTH = 16
LARGEST_WIDTH = 128
"""Widths the kernels' tiles can hold; each must be a power of two."""

ALLOW_TF32 = True
"""Matrix products of the kernels in TF32 (10 bits of mantissa, sums in float32): twice as fast as float32,
and ``benchmarks/quality.py`` shows that metrics do not move. False computes in float32."""

HAS_TRITON = importlib.util.find_spec("triton") is not None


def fits(dim: int, layers: tuple[int, ...]) -> bool:
    """Whether the kernels can compute a tower of these widths."""
    return (
        HAS_TRITON
        and len(layers) == LAYERS
        and all(
            SMALLEST_WIDTH <= width <= LARGEST_WIDTH and width & (width - 1) == 0 for width in (dim, *layers)
        )
    )


def neumf_logits(
    user: Tensor, item: Tensor, parameters: tuple[Tensor, ...], noise: Noise, rate: float
) -> Tensor:
    """Logits ``[R, B]``; ``parameters`` are the tables, then weight and bias of each layer and the head.

    ``rate`` is the dropout in front of each layer, 0 in ``eval`` mode.
    """
    calls = noise.next_calls(LAYERS) if rate > 0.0 else noise.calls_so_far()
    apply: Callable[..., Tensor] = _FusedNeuMF.apply
    return apply(user, item, noise.seed_tensor, calls, rate, *parameters)


class _FusedNeuMF(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, user: Tensor, item: Tensor, seeds: Tensor, calls: Tensor, rate: float, *parameters: Tensor
    ) -> Tensor:
        from unskew.backbones import fused_kernels

        ctx.save_for_backward(user, item, seeds, calls, *parameters)
        ctx.rate = rate
        return fused_kernels.forward(user, item, seeds, calls, rate, parameters)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from unskew.backbones import fused_kernels

        user, item, seeds, calls, *parameters = ctx.saved_tensors
        grads = fused_kernels.backward(
            grad.contiguous(), user, item, seeds, calls, ctx.rate, tuple(parameters)
        )
        return (None, None, None, None, None, *grads)
