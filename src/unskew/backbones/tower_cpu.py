"""Towers over x₀ on a CPU (crosses beside an MLP, or an MLP alone), replica by replica.

The same function as the layers compute one by one, dropout masks included. Matrix products are by BLAS, a
replica at a time: a batched product takes 1.2 to 1.7 times as long there. What is between them is compiled. A
task is some rows of one replica, so that what it touches stays in a core's cache; threads share the tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unskew.backbones import cpu_kernels, threads
from unskew.backbones.fused_cpu import TILE, Dropout, RowBlock, row_blocks
from unskew.backbones.noise import Noise
from unskew.backbones.tower_layers import TowerLayers

if TYPE_CHECKING:
    from jaxtyping import Float


class Activations(NamedTuple):
    """What is kept of a batch for its gradients, ``[R, B, width]`` each (or some rows of a replica)."""

    products: tuple[Tensor, ...]
    """u_l = x_l W_l + b_l of each cross."""
    crossed: tuple[Tensor, ...]
    """x_l, the input of each cross but the first, which is x₀."""
    inputs: tuple[Tensor, ...]
    """Of each layer of the MLP, after dropout, and what comes out of the last."""

    @classmethod
    def empty(cls, shape: tuple[int, ...], tower: TowerLayers) -> Activations:
        """Memory for rows of this shape."""
        crosses = [weight.shape[2] for weight, _ in tower.crosses]
        mlp = [tower.mlp[0][0].shape[1], *(weight.shape[2] for weight, _ in tower.mlp)]
        return cls(*(tuple(torch.empty(*shape, n) for n in widths) for widths in (crosses, crosses[1:], mlp)))

    def of(self, task: RowBlock) -> Activations:
        """The rows of a task."""
        return Activations(*(tuple(each[task.replica, task.rows] for each in part) for part in self))


def tower_logits(
    x: Float[Tensor, "R B F"], parameters: tuple[Tensor, ...], crosses: int, noise: Noise, rate: float
) -> Float[Tensor, "R B"]:
    """Logits; ``rate`` is the dropout in front of each layer of the MLP, 0 in ``eval`` mode."""
    layers = len(parameters) // 2 - 1 - crosses
    call = noise.next_calls(layers) if rate > 0.0 else noise.calls_so_far()
    dropout = Dropout(noise.seed_tensor, int(call), rate)
    if not torch.is_grad_enabled():
        return _predict(x.contiguous(), dropout, TowerLayers.of(parameters, crosses))
    apply: Callable[..., Tensor] = _Tower.apply
    return apply(x.contiguous(), dropout, crosses, *parameters)


class _Tower(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dropout: Dropout, crosses: int, *parameters: Tensor) -> Tensor:
        tower = TowerLayers.of(parameters, crosses)
        kept = Activations.empty(x.shape[:2], tower)
        logit = torch.empty(x.shape[:2])

        def work(task: RowBlock) -> None:
            _forward(task, x, dropout, tower, kept.of(task), logit)

        threads.for_each(work, _tiles(x))
        ctx.save_for_backward(x, *parameters)
        ctx.kept, ctx.dropout, ctx.crosses = kept, dropout, crosses
        return logit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *parameters = ctx.saved_tensors
        tower = TowerLayers.of(tuple(parameters), ctx.crosses)
        tasks = row_blocks(*x.shape[:2])
        sizes = [each.numel() for each in parameters]
        buffer = torch.zeros(1 + max(task.part for task in tasks), sum(sizes))

        def gradients(flat: Tensor) -> tuple[Tensor, ...]:
            cut = zip(torch.split(flat, sizes), parameters, strict=True)
            return tuple(part.view(each.shape) for part, each in cut)

        grads = [TowerLayers.of(gradients(each), ctx.crosses) for each in buffer]
        grad, d_x = grad.contiguous(), torch.empty_like(x)

        def work(task: RowBlock) -> None:
            for start in range(task.rows.start, task.rows.stop, TILE):
                rows = slice(start, min(start + TILE, task.rows.stop))
                tile = RowBlock(task.replica, rows, task.part)
                _backward(tile, grad, x, ctx.dropout, tower, ctx.kept.of(tile), grads[task.part], d_x)

        threads.for_each(work, tasks)
        return (d_x, None, None, *gradients(buffer[0] if len(buffer) == 1 else buffer.sum(0)))


def _tiles(x: Tensor) -> list[RowBlock]:
    replicas, batch, _ = x.shape
    return [
        RowBlock(replica, slice(start, min(start + TILE, batch)), 0)
        for replica in range(replicas)
        for start in range(0, batch, TILE)
    ]


def _predict(x: Tensor, dropout: Dropout, tower: TowerLayers) -> Tensor:
    """Logits ``[R, B]``; nothing is kept."""
    logit = torch.empty(x.shape[:2])

    def work(task: RowBlock) -> None:
        own = Activations.empty((task.rows.stop - task.rows.start,), tower)
        _forward(task, x, dropout, tower, own, logit)

    threads.for_each(work, _tiles(x))
    return logit


def _forward(
    task: RowBlock, x: Tensor, dropout: Dropout, tower: TowerLayers, kept: Activations, logit: Tensor
) -> None:
    r, first = task.replica, task.rows.start
    x, scores = x[r, task.rows], logit[r, task.rows].numpy()
    of_crosses, of_mlp = tower.heads(r)
    scores.fill(tower.head_bias[r, 0])
    below = x
    for number, ((weight, bias), product) in enumerate(zip(tower.crosses, kept.products, strict=True)):
        torch.addmm(bias[r], below, weight[r], out=product)
        if number < len(kept.crossed):
            below = torch.addcmul(below, x, product, out=kept.crossed[number])
        else:
            cpu_kernels.cross_and_read(x.numpy(), product.numpy(), below.numpy(), of_crosses, scores)
    if dropout.rate > 0.0:
        cpu_kernels.drop(x.numpy(), *dropout.of(task, 0), first, kept.inputs[0].numpy())
        below = kept.inputs[0]
    else:
        below = x
    for layer, ((weight, bias), out) in enumerate(zip(tower.mlp, kept.inputs[1:], strict=True), start=1):
        torch.addmm(bias[r], below, weight[r], out=out)
        if layer < len(tower.mlp):
            cpu_kernels.relu_and_drop(out.numpy(), *dropout.of(task, layer), first)
        below = out
    cpu_kernels.relu_and_read(below.numpy(), of_mlp, scores)


def _backward(
    task: RowBlock,
    grad: Tensor,
    x: Tensor,
    dropout: Dropout,
    tower: TowerLayers,
    kept: Activations,
    grads: TowerLayers,
    d_x: Tensor,
) -> None:
    """Add the gradients of some rows to those of the parameters, and write those of x₀."""
    r, g = task.replica, grad[task.replica, task.rows].numpy()
    x, d_x = x[r, task.rows], d_x[r, task.rows]
    (of_crosses, of_mlp), (d_crosses, d_mlp) = tower.heads(r), grads.heads(r)
    inputs = (kept.inputs[0] if dropout.rate > 0.0 else x, *kept.inputs[1:])
    z = torch.empty_like(inputs[-1])
    d_bias = grads.mlp[-1][1][r, 0].numpy()
    cpu_kernels.head_gradient(
        g, inputs[-1].numpy(), of_mlp, z.numpy(), d_mlp, grads.head_bias[r].numpy(), d_bias
    )
    scale = dropout.scale or cpu_kernels.ONE
    for layer in range(len(tower.mlp) - 1, -1, -1):
        grads.mlp[layer][0][r].addmm_(inputs[layer].t(), z)
        weight = tower.mlp[layer][0][r].t()
        z = torch.mm(z, weight, out=d_x if layer == 0 and dropout.rate == 0.0 else None)
        if layer > 0:
            d_bias = grads.mlp[layer - 1][1][r, 0].numpy()
            cpu_kernels.gate(z.numpy(), inputs[layer].numpy(), scale, d_bias)
    if dropout.rate > 0.0:
        cpu_kernels.drop(z.numpy(), *dropout.of(task, 0), task.rows.start, d_x.numpy())
    if not tower.crosses:
        return
    below = (x, *kept.crossed)
    back, d_product = torch.empty_like(x), torch.empty_like(x)
    cpu_kernels.crosses_head_gradient(
        g, x.numpy(), kept.products[-1].numpy(), below[-1].numpy(), of_crosses, back.numpy(), d_crosses
    )
    for layer in range(len(tower.crosses) - 1, -1, -1):
        d_weight, d_shift = grads.crosses[layer]
        cpu_kernels.cross_gradient(
            back.numpy(), x.numpy(), kept.products[layer].numpy(), layer == 0,
            d_product.numpy(), d_x.numpy(), d_shift[r, 0].numpy(),
        )  # fmt: skip
        d_weight[r].addmm_(below[layer].t(), d_product)
        (back if layer > 0 else d_x).addmm_(d_product, tower.crosses[layer][0][r].t())
