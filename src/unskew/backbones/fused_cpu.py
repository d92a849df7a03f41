"""NeuMF's tower on a CPU, replica by replica: matrix products by BLAS, everything between them compiled.

A task is one replica's batch, or a part of it where there are fewer replicas than threads; what it touches
stays in a core's cache. The parts' gradients are added up. Behind :mod:`unskew.backbones.fused`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unskew.backbones import cpu_kernels, threads

SMALLEST_PART = 1024
"""Rows below which a part of a batch is not worth a thread: two of 512 take 1.3 times as long as one of
1,024, two of 1,024 nine tenths as long as one of 2,048."""

TILE = 1024
"""Rows a prediction works on at once: its activations stay in a core's second-level cache."""


class RowBlock(NamedTuple):
    """Some rows of one replica's batch."""

    replica: int
    rows: slice
    part: int


@dataclass(frozen=True)
class Dropout:
    """Masks of one step: those of layer l are of call ``call + l`` under each replica's seed."""

    seeds: Tensor
    call: int
    rate: float

    def of(self, task: RowBlock, layer: int) -> tuple[int, int, np.int32, np.float32]:
        """Seed, call, threshold and scale as the compiled loops take them."""
        threshold = np.int32(round(self.rate * 65536) - 32768)
        return int(self.seeds[task.replica]), self.call + layer, threshold, self.scale

    @property
    def scale(self) -> np.float32:
        """1/(1 − rate), or 0 where there is no dropout."""
        return np.float32(1.0 / (1.0 - self.rate) if self.rate > 0.0 else 0.0)


class FusedTower(NamedTuple):
    """Parameters (or their gradients), ``[R, …]`` each."""

    users: Tensor
    items: Tensor
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    head: Tensor
    head_bias: Tensor

    @classmethod
    def of(cls, parameters: tuple[Tensor, ...]) -> FusedTower:
        """From the order in which a network has them."""
        users, items, *layers, head, head_bias = (each.detach() for each in parameters)
        return cls(users, items, tuple(layers[::2]), tuple(layers[1::2]), head, head_bias)

    @property
    def dim(self) -> int:
        """Width of the GMF branch."""
        return self.users.shape[2] // 2


def predict(user: Tensor, item: Tensor, dropout: Dropout, parameters: tuple[Tensor, ...]) -> Tensor:
    """Logits ``[R, B]``; nothing is kept."""
    tower = FusedTower.of(parameters)
    logit = torch.empty(user.shape)
    tasks = [
        RowBlock(replica, slice(start, start + TILE), 0)
        for replica in range(len(user))
        for start in range(0, user.shape[1], TILE)
    ]

    def work(task: RowBlock) -> None:
        rows = len(user[task.replica, task.rows])
        kept = [torch.empty(rows, width) for width in _widths(tower)]
        _forward(task, user, item, dropout, tower, kept, logit[task.replica, task.rows])

    threads.for_each(work, tasks)
    return logit


def forward(
    user: Tensor, item: Tensor, dropout: Dropout, parameters: tuple[Tensor, ...]
) -> tuple[Tensor, list[Tensor]]:
    """Logits ``[R, B]``, and the layers' inputs ``[R, B, width]`` for :func:`backward`."""
    tower = FusedTower.of(parameters)
    logit = torch.empty(user.shape)
    kept = [torch.empty(*user.shape, width) for width in _widths(tower)]

    def work(task: RowBlock) -> None:
        own = [each[task.replica, task.rows] for each in kept]
        _forward(task, user, item, dropout, tower, own, logit[task.replica, task.rows])

    threads.for_each(work, row_blocks(*user.shape))
    return logit, kept


def backward(
    grad: Tensor,
    user: Tensor,
    item: Tensor,
    dropout: Dropout,
    parameters: tuple[Tensor, ...],
    kept: list[Tensor],
    by_row: tuple[bool, bool] = (False, False),
) -> tuple[Tensor, ...]:
    """Gradients of the parameters, in their order; ``by_row`` those of a table are ``[R, B, F]``.

    The gradients of whole parameters are views of one buffer.
    """
    tower = FusedTower.of(parameters)
    tasks = row_blocks(*user.shape)
    parts = 1 + max(task.part for task in tasks)
    rows = {
        table: torch.zeros(*user.shape, parameters[table].shape[2])
        for table, wanted in enumerate(by_row)
        if wanted
    }
    sizes = [0 if number in rows else each.numel() for number, each in enumerate(parameters)]
    buffer = torch.zeros(parts, sum(sizes))

    def gradients(flat: Tensor) -> tuple[Tensor, ...]:
        cut = enumerate(zip(torch.split(flat, sizes), parameters, strict=True))
        return tuple(rows[n] if n in rows else part.view(each.shape) for n, (part, each) in cut)

    grads = [FusedTower.of(gradients(each)) for each in buffer]
    # Where in its table's gradient a row of the batch is added.
    own_rows = torch.arange(user.shape[1]).expand(user.shape)
    to_user, to_item = (
        own_rows if wanted else code for code, wanted in zip((user, item), by_row, strict=True)
    )

    def work(task: RowBlock) -> None:
        own = [each[task.replica, task.rows] for each in kept]
        _backward(task, grad, (user, item), (to_user, to_item), dropout, tower, own, grads[task.part])

    threads.for_each(work, tasks)
    return gradients(buffer[0] if parts == 1 else buffer.sum(0))


def row_blocks(replicas: int, batch: int) -> list[RowBlock]:
    """A batch of each replica, in parts where there are fewer replicas than threads."""
    parts = max(1, min(threads.count() // replicas, batch // SMALLEST_PART))
    edges = [batch * part // parts for part in range(parts + 1)]
    return [
        RowBlock(replica, slice(edges[part], edges[part + 1]), part)
        for replica in range(replicas)
        for part in range(parts)
    ]


def _widths(tower: FusedTower) -> list[int]:
    return [each.shape[1] for each in tower.weights] + [tower.weights[-1].shape[2]]


def _forward(
    task: RowBlock,
    user: Tensor,
    item: Tensor,
    dropout: Dropout,
    tower: FusedTower,
    kept: list[Tensor],
    logit: Tensor,
) -> None:
    r, start = task.replica, task.rows.start
    head = tower.head[r, :, 0].numpy()
    scores = logit.numpy()
    cpu_kernels.look_up(
        user[r, task.rows].numpy(), item[r, task.rows].numpy(),
        tower.users[r].numpy(), tower.items[r].numpy(),
        head[: tower.dim], np.float32(tower.head_bias[r, 0, 0]),
        *dropout.of(task, 0), start, kept[0].numpy(), scores,
    )  # fmt: skip
    for layer, (weight, bias) in enumerate(zip(tower.weights, tower.biases, strict=True), start=1):
        torch.addmm(bias[r], kept[layer - 1], weight[r], out=kept[layer])
        if layer < len(tower.weights):
            cpu_kernels.relu_and_drop(kept[layer].numpy(), *dropout.of(task, layer), start)
    cpu_kernels.relu_and_read(kept[-1].numpy(), head[tower.dim :], scores)


def _backward(
    task: RowBlock,
    grad: Tensor,
    codes: tuple[Tensor, Tensor],
    places: tuple[Tensor, Tensor],
    dropout: Dropout,
    tower: FusedTower,
    kept: list[Tensor],
    grads: FusedTower,
) -> None:
    r = task.replica
    g, head, d_head = grad[r, task.rows].numpy(), tower.head[r, :, 0].numpy(), grads.head[r, :, 0].numpy()
    z = torch.empty_like(kept[-1])
    cpu_kernels.head_gradient(
        g, kept[-1].numpy(), head[tower.dim :], z.numpy(),
        d_head[tower.dim :], grads.head_bias[r, 0].numpy(), grads.biases[-1][r, 0].numpy(),
    )  # fmt: skip
    scale = dropout.scale or cpu_kernels.ONE
    for layer in range(len(tower.weights) - 1, -1, -1):
        torch.mm(kept[layer].t(), z, out=grads.weights[layer][r])
        z = torch.mm(z, tower.weights[layer][r].t())
        if layer > 0:
            d_bias = grads.biases[layer - 1][r, 0].numpy()
            cpu_kernels.gate(z.numpy(), kept[layer].numpy(), scale, d_bias)
    user, item, to_user, to_item = (each[r, task.rows].numpy() for each in (*codes, *places))
    cpu_kernels.scatter(
        g, z.numpy(), user, item, to_user, to_item,
        tower.users[r].numpy(), tower.items[r].numpy(), head[: tower.dim],
        *dropout.of(task, 0), task.rows.start,
        grads.users[r].numpy(), grads.items[r].numpy(), d_head[: tower.dim],
    )  # fmt: skip
