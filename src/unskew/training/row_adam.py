"""Adam on tables by the rows that steps touch: what a step costs does not depend on the number of rows.

Dense Adam changes every row in every step, those without a gradient too: their momentum moves them on, and
fades. Here that is made up for when a row is read the next time. At step t, a row last brought to step s is
moved by

    p −= lr · Σ_{j=1}^{t−s} β₁ʲ m / c₁(s + j) / (√(β₂ʲ v / c₂(s + j)) + ε),    m *= β₁^(t−s),    v *= β₂^(t−s)

with Adam's corrections c(t) = 1 − βᵗ of the step's number, for at most :data:`HORIZON` steps: the sum is
A m / (√v + εB), where A is the sum of aⱼ = (β₁/√β₂)ʲ √c₂(s + j) / c₁(s + j), and B the mean of
√(c₂(s + j) / β₂ʲ) by these weights. So without weight decay the weights are those of dense Adam. Then
g = Σ gradients of the row + λ·Δ·p moves it as in dense Adam, where Δ is the number of steps since its last
gradient: all the decay that it would have had, with the gradient (dense Adam gives it λ·p in each step, and
pulls rows without data to zero).

All rows are brought up to date after each pass over a sampler (:func:`~unskew.backbones.layers.settle`).
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from unskew.backbones.layers import ReplicaEmbedding
from unskew.training.dense_adam import BETA_1, BETA_2, EPSILON, DenseAdam
from unskew.training.stateful import Parts, Stateful, copy_back, restore, tensors_of

if TYPE_CHECKING:
    from jaxtyping import Float, Float64, Int

HAS_TRITON = importlib.util.find_spec("triton") is not None
"""Whether there is a kernel for tables on a GPU: Triton comes with PyTorch's CUDA builds."""

FEWEST_ROWS = 8
"""A table is trained by the rows that are touched where it has more than so many for each row of a batch;
below, dense Adam with its plain order of memory is as fast."""

FEWEST_ROWS_ON_GPU = 64
"""The same on a GPU, which runs through a whole table at the speed of its memory."""

HORIZON = 128
"""Steps after which a row's momentum is spent: β₁¹²⁸ = 1.4e-6 of it is left."""

TABULATED = 1024
"""Steps s up to which A and B are in a table; later √c₂ hardly changes within :data:`HORIZON` steps."""

ROWS_AT_ONCE = 1 << 16
"""Rows of a table that are brought up to date at once."""


def is_lazy(table: ReplicaEmbedding, batch_rows: int) -> bool:
    """Return whether a table is trained by touched rows, with so many rows in a replica's batch."""
    weight = table.weight
    if weight.dtype != torch.float32 or (weight.is_cuda and not HAS_TRITON):
        return False
    return weight.shape[1] > (FEWEST_ROWS_ON_GPU if weight.is_cuda else FEWEST_ROWS) * batch_rows


def rows_table(table: ReplicaEmbedding, lr: float, weight_decay: float) -> RowsTable:
    """Return what trains a table by touched rows, where the table is."""
    if table.weight.is_cuda:
        from unskew.kernels.table_kernels import TableOnGPU

        table.lazy = TableOnGPU(table.weight, lr, weight_decay)
        return table.lazy
    return TouchedRows(table, lr, weight_decay)


class RowsTable(Stateful, Protocol):
    """A table that is trained by touched rows."""

    def forget(self) -> None:
        """Drop the gradients."""
        ...

    def step(self) -> None:
        """Make one update by the gradients that there are."""
        ...


class TouchedRows:
    """A table's moments, the gradients of what was read of it in a step, and the steps that rows are at.

    The rows of all replicas are those of one table, one replica after another.
    """

    def __init__(self, table: ReplicaEmbedding, lr: float, weight_decay: float) -> None:
        weight = table.weight.detach()
        self._starts = torch.arange(0, len(weight) * weight.shape[1], weight.shape[1]).unsqueeze(1)
        self._weight = weight.view(-1, weight.shape[2])
        self._lr, self._decay = lr, weight_decay
        self._step = self._settled = 0
        self._first, self._second = (torch.zeros_like(self._weight) for _ in range(2))
        # The step that a row is at (0 before its first), that of its last gradient, and its place in a batch.
        self._seen, self._touched, self._place = (
            torch.zeros(len(self._weight), dtype=torch.int32) for _ in range(3)
        )
        self._gradients: list[tuple[Tensor, Tensor]] = []
        self._sums, self._means = _sums_and_means()
        table.lazy = self

    def read(self, codes: Int[Tensor, "R n"]) -> None:
        """Bring rows up to date; they are about to be read."""
        at = self._distinct((codes + self._starts).flatten())[0]
        self._bring(at[(self._seen[at] > 0) & (self._seen[at] < self._step)])

    def add(self, codes: Int[Tensor, "R n"], gradient: Float[Tensor, "R n F"]) -> None:
        """Keep gradients of rows for the step."""
        self._gradients.append(((codes + self._starts).flatten(), gradient.flatten(0, 1)))

    def forget(self) -> None:
        """Drop the gradients."""
        self._gradients = []

    def step(self) -> None:
        """Make one update by the gradients that there are; without any the table stays as it is."""
        if not self._gradients:
            return
        codes, gradients = (torch.cat(each) for each in zip(*self._gradients, strict=True))
        at, number = self._distinct(codes)
        self._step += 1
        g = gradients.new_zeros(len(at), gradients.shape[1]).index_add_(0, number, gradients)
        p = self._weight[at]
        waited = (self._step - self._touched[at]).unsqueeze(1)
        g += self._decay * waited * p
        m = self._first[at].mul_(BETA_1).add_(g, alpha=1.0 - BETA_1)
        v = self._second[at].mul_(BETA_2).addcmul_(g, g, value=1.0 - BETA_2)
        scale = math.sqrt(1.0 - BETA_2**self._step)
        rate = self._lr / (1.0 - BETA_1**self._step)
        self._weight[at] = p.addcdiv_(m, v.sqrt().div_(scale).add_(EPSILON), value=-rate)
        self._first[at], self._second[at] = m, v
        self._seen[at] = self._touched[at] = self._step
        self._gradients = []

    def settle(self) -> None:
        """Bring the weights of all rows up to date.

        A row whose momentum is spent stays at its step, before the one that the table is settled at: the next
        time it is only looked at.
        """
        behind = (self._seen > 0) & (self._seen >= self._settled) & (self._seen < self._step)
        for at in torch.split(behind.nonzero().flatten(), ROWS_AT_ONCE):
            spent = at[self._step - self._seen[at] >= HORIZON]
            since, second = self._seen[spent], self._second[spent]
            self._bring(at)
            self._seen[spent], self._second[spent] = since, second
        self._settled = self._step

    def tensors(self) -> dict[str, Tensor]:
        """Return moments, the rows' steps and the table's own; the weights are the network's."""
        return {
            "steps": torch.tensor([self._step, self._settled]),
            "first": self._first,
            "second": self._second,
            "seen": self._seen,
            "touched": self._touched,
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Bring back what :meth:`tensors` gave."""
        self._step, self._settled = tensors["steps"].tolist()
        copy_back(self.tensors(), tensors)

    def _distinct(self, codes: Int[Tensor, " n"]) -> tuple[Int[Tensor, " m"], Int[Tensor, " n"]]:
        """Return the rows among codes, each once, and the number of each code's row among them."""
        order = torch.arange(len(codes), dtype=torch.int32)
        self._place[codes] = order
        place = self._place[codes]
        owns = place == order
        return codes[owns], (owns.cumsum(0) - 1)[place]

    def _bring(self, at: Int[Tensor, " m"]) -> None:
        """Bring rows, each listed once, from the steps that they are at to that of the table."""
        since = self._seen[at]
        waited = self._step - since
        moving = since >= self._settled  # A row that was spent when the table was settled has no momentum.
        early, idle = since.clamp(max=TABULATED), waited.clamp(max=HORIZON)
        late = ((1.0 - BETA_2 ** since.clamp(min=TABULATED).double()) / (1.0 - BETA_2**TABULATED)).sqrt()
        rate = torch.where(moving, self._lr * late * self._sums[early, idle], 0.0).float().unsqueeze(1)
        epsilon = (EPSILON * late * self._means[early, idle]).float().unsqueeze(1)
        m, v = self._first[at], self._second[at]
        self._weight[at] = self._weight[at].sub_(rate * m / v.sqrt().add_(epsilon))
        left = torch.where(waited < HORIZON, BETA_1 ** waited.double(), 0.0)
        self._first[at] = m.mul_(left.float().unsqueeze(1))
        self._second[at] = v.mul_((BETA_2 ** waited.double()).float().unsqueeze(1))
        self._seen[at] = self._step


@cache
def _sums_and_means() -> tuple[Float64[Tensor, "s k"], Float64[Tensor, "s k"]]:
    """Return A and B for s up to :data:`TABULATED` and up to :data:`HORIZON` steps after it."""
    k = torch.arange(HORIZON + 1, dtype=torch.float64)
    t = torch.arange(TABULATED + 1, dtype=torch.float64).unsqueeze(1) + k
    weight = (BETA_1 / math.sqrt(BETA_2)) ** k * (1.0 - BETA_2**t).sqrt() / (1.0 - BETA_1**t)
    weight[:, 0] = 0.0
    sums = weight.cumsum(1)
    scale = ((1.0 - BETA_2**t) / BETA_2**k).sqrt()
    return sums, (weight * scale).cumsum(1) / sums.clamp(min=1e-30)


class RowAdam:
    """Tables by touched rows, all other parameters as a whole."""

    def __init__(self, dense: DenseAdam | None, tables: Sequence[RowsTable]) -> None:
        self.dense = dense
        self.tables = tables

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients."""
        if self.dense is not None:
            self.dense.zero_grad(set_to_none=set_to_none)
        for table in self.tables:
            table.forget()

    def step(self) -> None:
        """Make one update."""
        if self.dense is not None:
            self.dense.step()
        for table in self.tables:
            table.step()

    def tensors(self) -> dict[str, Tensor]:
        """Return what both remember, for a checkpoint."""
        return tensors_of(self._parts())

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Bring back what :meth:`tensors` gave."""
        restore(self._parts(), tensors)

    def _parts(self) -> Parts:
        dense: Parts = {} if self.dense is None else {"dense": self.dense}
        return {**{f"table {number}": table for number, table in enumerate(self.tables)}, **dense}
