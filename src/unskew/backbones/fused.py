"""NeuMF's tower in one go for all replicas on a CPU: look-ups, layers and head, forward and backward.

The same function as the layers compute one by one, dropout masks included; threads share the replicas
(:mod:`unskew.backbones.fused_cpu`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unskew.backbones.noise import Noise
from unskew.backbones.tables import LazyRows, require_rows

if TYPE_CHECKING:
    from jaxtyping import Float, Int

TouchedRowss = tuple[LazyRows | None, LazyRows | None]
"""What takes the gradients of the users' and the items' rows; None has a gradient of the whole table."""


def neumf_logits(
    user: Int[Tensor, "R B"],
    item: Int[Tensor, "R B"],
    parameters: tuple[Tensor, ...],
    noise: Noise,
    rate: float,
    lazy: TouchedRowss = (None, None),
) -> Float[Tensor, "R B"]:
    """Logits ``[R, B]``; ``parameters`` are the tables, then weight and bias of each layer and the head.

    ``rate`` is the dropout in front of each layer, 0 in ``eval`` mode; ``lazy`` those of the tables.
    """
    layers = (len(parameters) - 4) // 2
    calls = noise.next_calls(layers) if rate > 0.0 else noise.calls_so_far()
    user, item = user.contiguous(), item.contiguous()
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


class _OnCPU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, user: Tensor, item: Tensor, dropout: Any, lazy: TouchedRowss, *parameters: Tensor
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
