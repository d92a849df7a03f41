"""NeuMF's tower in one go on a CPU, replica by replica: products by BLAS, everything between them compiled.

:func:`neumf_logits` computes what the layers of :mod:`unskew.learners.neumf` compute one by one. A task is
one replica's batch, or a part of it where there are fewer replicas than threads; what it touches stays in a
core's cache. The parts' gradients are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from unskew.kernels import neumf_loops, threads

if TYPE_CHECKING:
    from jaxtyping import Float, Int

SMALLEST_PART = 1024
"""Rows below which a part of a batch is not worth a thread: two of 512 take 1.3 times as long as one of
1,024, two of 1,024 nine tenths as long as one of 2,048."""

TILE = 1024
"""Rows a prediction works on at once: its activations stay in a core's second-level cache."""


class Sink(Protocol):
    """A receiver of the gradients of a table's rows (:class:`unskew.learners.tables.LazyRows`)."""

    def read(self, codes: Tensor) -> None:
        """Bring rows up to date."""
        ...

    def add(self, codes: Tensor, gradient: Tensor) -> None:
        """Take the gradients of rows that were read."""
        ...


class RowBlock(NamedTuple):
    """Some rows of one replica's batch."""

    replica: int
    rows: slice
    part: int


class Mlp(NamedTuple):
    """Parameters (or their gradients), ``[R, …]`` each."""

    users: Tensor
    items: Tensor
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    head: Tensor
    head_bias: Tensor

    @classmethod
    def of(cls, parameters: Sequence[Tensor]) -> Mlp:
        """Sort them from the order in which a network has them."""
        users, items, *layers, head, head_bias = (each.detach() for each in parameters)
        return cls(users, items, tuple(layers[::2]), tuple(layers[1::2]), head, head_bias)

    @property
    def dim(self) -> int:
        """Width of the GMF branch."""
        return self.users.shape[2] // 2

    @property
    def widths(self) -> list[int]:
        """Widths of the layers' inputs, and of what comes out of the last."""
        return [each.shape[1] for each in self.weights] + [self.weights[-1].shape[2]]


Tensors = list[Tensor]
Masks = Sequence[Tensor]
"""Of the dropout in front of each layer, ``[R, B, width]``; none where there is no dropout."""


def neumf_logits(
    user: Int[Tensor, "R B"],
    item: Int[Tensor, "R B"],
    parameters: tuple[Tensor, ...],
    masks: Masks,
    lazy: tuple[Sink | None, Sink | None] = (None, None),
) -> Float[Tensor, "R B"]:
    """Compute the logits of pairs, whose codes must be in the tables.

    Parameters
    ----------
    parameters
        The two tables, then weight and bias of each layer and of the head.
    lazy
        What takes the gradients of the users' and of the items' rows; None has a gradient of the whole table.
    """
    user, item = user.contiguous(), item.contiguous()
    for codes, rows in zip((user, item), lazy, strict=True):
        if rows is not None:
            rows.read(codes)
    if not torch.is_grad_enabled():
        return _predict(user, item, parameters, masks)
    apply: Callable[..., Tensor] = _Function.apply
    return apply(user, item, masks, lazy, *parameters)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, user: Tensor, item: Tensor, masks: Masks, lazy: Any, *parameters: Tensor) -> Tensor:
        tower, logit = Mlp.of(parameters), torch.empty(user.shape)
        inputs = [torch.empty(*user.shape, width) for width in tower.widths]

        def work(task: RowBlock) -> None:
            own = [each[task.replica, task.rows] for each in inputs]
            _forward(task, user, item, masks, tower, own, logit[task.replica, task.rows])

        threads.for_each(work, _row_blocks(*user.shape))
        ctx.save_for_backward(user, item, *parameters)
        ctx.kept, ctx.masks, ctx.lazy = inputs, masks, lazy
        return logit

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        user, item, *parameters = ctx.saved_tensors
        gradients = _gradients(grad.contiguous(), (user, item), ctx.masks, parameters, ctx.kept, ctx.lazy)
        return (None, None, None, None, *gradients)


def _predict(user: Tensor, item: Tensor, parameters: tuple[Tensor, ...], masks: Masks) -> Tensor:
    """Return logits ``[R, B]``; nothing is kept."""
    tower, logit = Mlp.of(parameters), torch.empty(user.shape)
    tasks = [
        RowBlock(replica, slice(start, start + TILE), 0)
        for replica in range(len(user))
        for start in range(0, user.shape[1], TILE)
    ]

    def work(task: RowBlock) -> None:
        rows = len(user[task.replica, task.rows])
        inputs = [torch.empty(rows, width) for width in tower.widths]
        _forward(task, user, item, masks, tower, inputs, logit[task.replica, task.rows])

    threads.for_each(work, tasks)
    return logit


def _gradients(
    grad: Tensor,
    codes: tuple[Tensor, Tensor],
    masks: Masks,
    parameters: Sequence[Tensor],
    inputs: Tensors,
    lazy: tuple[Sink | None, Sink | None],
) -> list[Tensor | None]:
    """Return the gradients of the parameters, in their order; those of a table's rows go to ``lazy``."""
    tower, shape = Mlp.of(parameters), codes[0].shape
    tasks = _row_blocks(*shape)
    rows = {
        number: torch.zeros(*shape, parameters[number].shape[2])
        for number, taker in enumerate(lazy)
        if taker is not None
    }
    sizes = [0 if number in rows else each.numel() for number, each in enumerate(parameters)]
    buffer = torch.zeros(1 + max(task.part for task in tasks), sum(sizes))

    def cut(flat: Tensor) -> list[Tensor]:
        parts = enumerate(zip(torch.split(flat, sizes), parameters, strict=True))
        return [rows[number] if number in rows else each.view(of.shape) for number, (each, of) in parts]

    grads = [Mlp.of(cut(each)) for each in buffer]
    # Where in its table's gradient a row of the batch is added.
    own = torch.arange(shape[1]).expand(shape)
    places = [own if number in rows else each for number, each in enumerate(codes)]
    found_at = torch.stack([*codes, *places], 1)

    def work(task: RowBlock) -> None:
        own_kept = [each[task.replica, task.rows] for each in inputs]
        _backward(task, grad, found_at, masks, tower, own_kept, grads[task.part])

    threads.for_each(work, tasks)
    results: list[Tensor | None] = [*cut(buffer[0] if len(buffer) == 1 else buffer.sum(0))]
    for number, taker in enumerate(lazy):
        if taker is not None:
            taker.add(codes[number], rows[number])
            results[number] = None
    return results


def _row_blocks(replicas: int, batch: int) -> list[RowBlock]:
    """Cut a batch of each replica, into parts where there are fewer replicas than threads."""
    parts = max(1, min(threads.count() // replicas, batch // SMALLEST_PART))
    edges = [batch * part // parts for part in range(parts + 1)]
    return [
        RowBlock(replica, slice(edges[part], edges[part + 1]), part)
        for replica in range(replicas)
        for part in range(parts)
    ]


def _mask(masks: Masks, layer: int, task: RowBlock) -> Any:
    if masks:
        return masks[layer][task.replica, task.rows].numpy()
    return np.empty((0, 0), dtype=np.float32)


def _forward(
    task: RowBlock, user: Tensor, item: Tensor, masks: Masks, tower: Mlp, inputs: Tensors, logit: Tensor
) -> None:
    r, head, scores = task.replica, tower.head[task.replica, :, 0].numpy(), logit.numpy()
    neumf_loops.look_up(
        user[r, task.rows].numpy(), item[r, task.rows].numpy(),
        tower.users[r].numpy(), tower.items[r].numpy(),
        head[: tower.dim], np.float32(tower.head_bias[r, 0, 0]),
        _mask(masks, 0, task), inputs[0].numpy(), scores,
    )  # fmt: skip
    for layer, (weight, bias) in enumerate(zip(tower.weights, tower.biases, strict=True), start=1):
        torch.addmm(bias[r], inputs[layer - 1], weight[r], out=inputs[layer])
        if layer < len(tower.weights):
            neumf_loops.relu_and_drop(inputs[layer].numpy(), _mask(masks, layer, task))
    neumf_loops.relu_and_read(inputs[-1].numpy(), head[tower.dim :], scores)


def _backward(
    task: RowBlock, grad: Tensor, codes: Tensor, masks: Masks, tower: Mlp, inputs: Tensors, grads: Mlp
) -> None:
    r = task.replica
    g, head, d_head = grad[r, task.rows].numpy(), tower.head[r, :, 0].numpy(), grads.head[r, :, 0].numpy()
    z = torch.empty_like(inputs[-1])
    neumf_loops.head_gradient(
        g, inputs[-1].numpy(), head[tower.dim :], z.numpy(),
        d_head[tower.dim :], grads.head_bias[r, 0].numpy(), grads.biases[-1][r, 0].numpy(),
    )  # fmt: skip
    for layer in range(len(tower.weights) - 1, -1, -1):
        torch.mm(inputs[layer].t(), z, out=grads.weights[layer][r])
        z = torch.mm(z, tower.weights[layer][r].t())
        if layer > 0:
            d_bias = grads.biases[layer - 1][r, 0].numpy()
            neumf_loops.gate(z.numpy(), inputs[layer].numpy(), _mask(masks, layer, task), d_bias)
    neumf_loops.scatter(
        g, z.numpy(), codes[r, :, task.rows].numpy(),
        tower.users[r].numpy(), tower.items[r].numpy(), head[: tower.dim], _mask(masks, 0, task),
        grads.users[r].numpy(), grads.items[r].numpy(), d_head[: tower.dim],
    )  # fmt: skip
