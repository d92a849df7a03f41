"""Adam: tables of many rows by the rows that steps touch, all other parameters as a whole.

So the cost of a step does not depend on the number of rows. Dense Adam changes every row in every step,
those without a gradient too: their momentum moves them on, and fades. Here that is made up for when a row is
read the next time. Moments are those of a row's last gradient, at step τ; from step a to step b it is moved
by

    p −= lr · Σ_{k=a−τ+1}^{b−τ} β₁ᵏ m / c₁(τ + k) / (√(β₂ᵏ v / c₂(τ + k)) + ε)

with Adam's corrections c(t) = 1 − βᵗ of the step's number, for k up to :data:`HORIZON`. The sum is
A m / (√v + εB), where A is the sum of aₖ = (β₁/√β₂)ᵏ √c₂(τ + k) / c₁(τ + k), and B the mean of
√(c₂(τ + k) / β₂ᵏ) by these weights. So without weight decay the weights are those of dense Adam. Then
g = Σ gradients of the row + λ·Δ·p moves it as in dense Adam, where Δ is the number of steps since its last
gradient: all the decay that it would have had, with the gradient (dense Adam gives it λ·p in each step, and
pulls rows without data to zero).

All rows are brought up to date after each pass over a sampler (:func:`~unskew.learners.layers.settle`).
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from unskew.base.tensors import Tensor, nn, torch
from unskew.learners.layers import ReplicaEmbedding, tables_of
from unskew.training.state import Stateful, copy_back, restore, tensors_of, under

if TYPE_CHECKING:
    from jaxtyping import Float, Float64, Int

# PyTorch's defaults.
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8

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
"""Steps τ up to which A and B are in a table; later √c₂ hardly changes within :data:`HORIZON` steps."""

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
        self._step = 0
        self._first, self._second = (torch.zeros_like(self._weight) for _ in range(2))
        # The step that a row is at (0 before its first), that of its last gradient, and its place in a batch.
        self._seen, self._touched, self._place = (
            torch.zeros(len(self._weight), dtype=torch.int32) for _ in range(3)
        )
        self._gradients: list[tuple[Tensor, Tensor]] = []
        self._weights, self._scales = _sums()
        table.lazy = self

    def read(self, codes: Int[Tensor, "R n"]) -> None:
        """Bring rows up to date; they are about to be read."""
        self._bring(self._distinct((codes + self._starts).flatten())[0])

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
        p, m, v = (each.index_select(0, at) for each in (self._weight, self._first, self._second))
        waited = (self._step - self._touched[at]).unsqueeze(1)
        g.addcmul_(waited, p, value=self._decay)
        m.mul_(BETA_1**waited).add_(g, alpha=1.0 - BETA_1)
        v.mul_(BETA_2**waited).addcmul_(g, g, value=1.0 - BETA_2)
        for held, new in ((self._first, m), (self._second, v)):
            held.index_copy_(0, at, new)
        denominator = v.sqrt_().div_(math.sqrt(1.0 - BETA_2**self._step)).add_(EPSILON)
        p.addcdiv_(m, denominator, value=-self._lr / (1.0 - BETA_1**self._step))
        self._weight.index_copy_(0, at, p)
        self._seen[at] = self._touched[at] = self._step
        self._gradients = []

    def settle(self) -> None:
        """Bring the weights of all rows up to date."""
        moving = (self._seen < self._step) & (self._seen - self._touched < HORIZON) & (self._seen > 0)
        for at in torch.split(moving.nonzero().flatten(), ROWS_AT_ONCE):
            self._bring(at)

    def tensors(self) -> dict[str, Tensor]:
        """Return moments, the rows' steps and the table's own; the weights are the network's."""
        return {
            "step": torch.tensor(self._step),
            "first": self._first,
            "second": self._second,
            "seen": self._seen,
            "touched": self._touched,
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Bring back what :meth:`tensors` gave."""
        self._step = int(tensors["step"])
        copy_back(self.tensors(), tensors)

    def _distinct(self, codes: Int[Tensor, " n"]) -> tuple[Int[Tensor, " m"], Int[Tensor, " n"]]:
        """Return the rows among codes, each once, and the number of each code's row among them."""
        order = torch.arange(len(codes), dtype=torch.int32)
        self._place[codes] = order
        number = self._place[codes]
        owns = number == order
        return codes[owns], (owns.cumsum(0) - 1)[number]

    def _bring(self, at: Int[Tensor, " m"]) -> None:
        """Bring rows, each listed once, from the steps that they are at to that of the table."""
        since, seen = self._touched[at], self._seen[at]
        moving = (seen < self._step) & (seen - since < HORIZON) & (seen > 0)
        at, since, seen = at[moving], since[moving], seen[moving]
        early, late = since.clamp(max=TABULATED), since.clamp(min=TABULATED).double()
        late = ((1.0 - BETA_2**late) / (1.0 - BETA_2**TABULATED)).sqrt()
        start, stop = seen - since, (self._step - since).clamp(max=HORIZON)
        weight, scale = (each[early, stop] - each[early, start] for each in (self._weights, self._scales))
        rate, epsilon = self._lr * late * weight, EPSILON * late * scale / weight
        p, m, v = (each.index_select(0, at) for each in (self._weight, self._first, self._second))
        p -= m.mul_(rate.float().unsqueeze(1)).div_(v.sqrt_().add_(epsilon.float().unsqueeze(1)))
        self._weight.index_copy_(0, at, p)
        self._seen[at] = self._step


@cache
def _sums() -> tuple[Float64[Tensor, "s k"], Float64[Tensor, "s k"]]:
    """Return the sums of aₖ and of aₖ √(c₂ / β₂ᵏ), for τ to :data:`TABULATED` and k to :data:`HORIZON`."""
    k = torch.arange(HORIZON + 1, dtype=torch.float64)
    t = torch.arange(TABULATED + 1, dtype=torch.float64).unsqueeze(1) + k
    weight = (BETA_1 / math.sqrt(BETA_2)) ** k * (1.0 - BETA_2**t).sqrt() / (1.0 - BETA_1**t)
    weight[:, 0] = 0.0
    return weight.cumsum(1), (weight * ((1.0 - BETA_2**t) / BETA_2**k).sqrt()).cumsum(1)


class _Moments(NamedTuple):
    first: Tensor
    second: Tensor
    step: Tensor


class Adam:
    """The optimiser of a network: ``torch.optim.Adam`` with coupled weight decay, but for large tables.

    Those are trained by touched rows. The rest is left to PyTorch's own fused kernel: the class of PyTorch
    loads its compiler, which takes every process that trains some seconds.

    Parameters
    ----------
    batch_rows
        Rows of a replica that a step reads, which decide what a large table is.
    """

    def __init__(self, network: nn.Module, lr: float, weight_decay: float, batch_rows: int) -> None:
        large = [table for table in tables_of(network) if is_lazy(table, batch_rows)]
        by_rows = {id(table.weight) for table in large}
        self.tables = [rows_table(table, lr, weight_decay) for table in large]
        self.parameters = [weight for weight in network.parameters() if id(weight) not in by_rows]
        self.lr = lr
        self._decays = [0.0 if hasattr(each, "without_decay") else weight_decay for each in self.parameters]
        self._moments: dict[int, _Moments] = {}

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for weight in self.parameters:
            weight.grad = None
        for table in self.tables:
            table.forget()

    @torch.no_grad()
    def step(self) -> None:
        """Make one update; parameters without a gradient are left alone."""
        for decay in sorted(set(self._decays)):
            self._update([at for at, own in enumerate(self._decays) if own == decay], decay)
        for table in self.tables:
            table.step()

    def tensors(self) -> dict[str, Tensor]:
        """Return moments and steps, by the number of a parameter that had a gradient, and those of tables."""
        dense = {
            f"{number}/{name}": value
            for number, moments in sorted(self._moments.items())
            for name, value in moments._asdict().items()
        }
        return {**dense, **tensors_of(self._tables())}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take copies in memory of their own: a kernel may compute otherwise on another alignment."""
        restore(self._tables(), tensors)
        for number, weight in enumerate(self.parameters):
            if saved := under(tensors, f"{number}/"):
                copies = {name: value.to(weight.device, copy=True) for name, value in saved.items()}
                self._moments[number] = _Moments(**copies)

    def _tables(self) -> dict[str, Stateful]:
        return {f"table {number}": table for number, table in enumerate(self.tables)}

    def _update(self, numbers: list[int], decay: float) -> None:
        numbers = [number for number in numbers if self.parameters[number].grad is not None]
        if not numbers:
            return
        parameters = [self.parameters[number] for number in numbers]
        for number, weight in zip(numbers, parameters, strict=True):
            if number not in self._moments:
                step = torch.zeros((), dtype=torch.float32, device=weight.device)
                self._moments[number] = _Moments(torch.zeros_like(weight), torch.zeros_like(weight), step)
        moments = [self._moments[number] for number in numbers]
        from torch.optim.adam import adam

        adam(
            list[Tensor](parameters),
            [weight.grad for weight in parameters if weight.grad is not None],
            [own.first for own in moments],
            [own.second for own in moments],
            [],
            [own.step for own in moments],
            fused=True,
            capturable=parameters[0].is_cuda,
            amsgrad=False,
            beta1=BETA_1,
            beta2=BETA_2,
            lr=self.lr,
            weight_decay=decay,
            eps=EPSILON,
            maximize=False,
        )
