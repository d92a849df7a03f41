"""Adam on tables by the rows that steps touch: what a step costs does not depend on the number of rows.

Dense Adam changes every row in every step, those without a gradient too: their momentum moves them on, and
fades. Here that is made up for when a row is read the next time. At step t, a row last brought to step s is
moved by

    p −= lr · Σ_{k=1}^{t−s} β₁ᵏ m / c₁(s+k) / (√(β₂ᵏ v / c₂(s+k)) + ε),    m *= β₁^(t−s),    v *= β₂^(t−s)

with Adam's corrections c(t) = 1 − βᵗ of the step's number, for at most :data:`~table_loops.HORIZON` steps, in
groups that share the mean denominator. So without weight decay the weights are those of dense Adam, to about
1e-4 of what momentum moves a row. Then g = Σ gradients of the row + λ·Δ·p moves it as in dense Adam, where Δ
is the number of steps since its last gradient: all the decay that it would have had, with the gradient (dense
Adam gives it λ·p in each step, and pulls rows without data to zero).

All rows are brought up to date after each pass over a sampler (:func:`~unskew.backbones.layers.settle`);
that reads four bytes of each row that has not moved.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from unskew.backbones import threads
from unskew.backbones.layers import ReplicaEmbedding
from unskew.training.dense_adam import DenseAdam
from unskew.training.row_gradients import RowGradients
from unskew.training.stateful import Parts, Stateful, copy_back, restore, tensors_of

if TYPE_CHECKING:
    from jaxtyping import Int

HAS_TRITON = importlib.util.find_spec("triton") is not None
"""Whether there is a kernel for tables on a GPU: Triton comes with PyTorch's CUDA builds."""

FEWEST_ROWS = 8
"""A table is trained by the rows that are touched where it has more than so many for each row of a batch;
below, dense Adam with its plain order of memory is as fast."""

FEWEST_ROWS_ON_GPU = 64
"""The same on a GPU, which runs through a whole table at the speed of its memory."""

SMALLEST_PART = 1024
"""Look-ups below which a part of a step is not worth a thread."""


def is_lazy(table: ReplicaEmbedding, batch_rows: int) -> bool:
    """Whether a table is trained by touched rows, with so many rows in a replica's batch."""
    weight = table.weight
    if weight.dtype != torch.float32 or (weight.is_cuda and not HAS_TRITON):
        return False
    return weight.shape[1] > (FEWEST_ROWS_ON_GPU if weight.is_cuda else FEWEST_ROWS) * batch_rows


def lazy_table(table: ReplicaEmbedding, lr: float, weight_decay: float) -> RowsTable:
    """What trains a table by touched rows, where the table is."""
    if table.weight.is_cuda:
        from unskew.kernels.table_kernels import TableOnGPU

        table.lazy = TableOnGPU(table.weight, lr, weight_decay)
        return table.lazy
    return LazyTable(table, lr, weight_decay)


class RowsTable(Stateful, Protocol):
    """A table that is trained by touched rows."""

    def forget(self) -> None:
        """Drop the gradients."""
        ...

    def step(self) -> None:
        """One update by the gradients that there are."""
        ...


KEPT = ("first moment", "second moment", "step", "last gradient")
"""What a checkpoint holds of each replica of a table, beside its weights."""


class LazyTable(RowGradients):
    """A table's moments, what was read of it in a step, and the steps that rows are at.

    Attributes
    ----------
    replicas
        Of each replica its weights and two moments ``[codes, F]``, and of each row ``[codes]`` the step it is
        at (0 before its first), that of its last gradient, and a place for the loops to work with.
    """

    def __init__(self, table: ReplicaEmbedding, lr: float, weight_decay: float) -> None:
        super().__init__()
        from unskew.training import table_loops

        self._loops: Any = table_loops
        weight = table.weight.detach()
        self._rows = weight.shape[1]
        self._lr, self._decay = np.float32(lr), np.float32(weight_decay)
        self._step = self._settled = 0
        # NumPy's zeros, unlike PyTorch's, are not written before they are used.
        moments = [np.zeros(weight.shape, dtype=np.float32) for _ in range(2)]
        numbers = [np.zeros(weight.shape[:2], dtype=np.int32) for _ in range(3)]
        self.replicas = list(zip(weight.numpy(), *moments, *numbers, strict=True))
        table.lazy = self

    def read(self, codes: Int[Tensor, "R n"]) -> None:
        """Bring rows up to date."""
        lines = codes.numpy()

        def work(replica: int, part: int, parts: int) -> None:
            p, m, v, seen, _, _ = self.replicas[replica]
            self._loops.bring_read(
                lines[replica], p, m, v, seen, self._step, self._settled, self._lr,
                part, parts,
            )  # fmt: skip

        self._for_each(work, lines.shape[1])

    def step(self) -> None:
        """One update by the gradients that there are; without any the table stays as it is."""
        if not self._kept:
            return
        codes, gradient = (each.contiguous().numpy() for each in self._joined())
        self._step += 1

        def work(replica: int, part: int, parts: int) -> None:
            self._loops.update(
                codes[replica], gradient[replica], *self.replicas[replica],
                self._step, self._settled, self._lr, self._decay, part, parts,
            )  # fmt: skip

        self._for_each(work, codes.shape[1])

    def settle(self) -> None:
        """Bring the weights of all rows up to date."""
        if self._settled == self._step:
            return

        def work(replica: int, part: int, parts: int) -> None:
            p, m, v, seen, _, _ = self.replicas[replica]
            self._loops.bring_all(p, m, v, seen, self._step, self._settled, self._lr, part, parts)

        self._for_each(work, self._rows)
        self._settled = self._step

    def tensors(self) -> dict[str, Tensor]:
        """Moments, the rows' steps and the table's own; the weights are the network's."""
        found = {"steps": torch.tensor([self._step, self._settled])}
        for number, (_, *parts, _) in enumerate(self.replicas):
            for name, part in zip(KEPT, parts, strict=True):
                found[f"{number}/{name}"] = torch.from_numpy(part)
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Bring back what :meth:`tensors` gave."""
        self._step, self._settled = tensors["steps"].tolist()
        copy_back(self.tensors(), tensors)

    def _for_each(self, work: Callable[[int, int, int], None], rows: int) -> None:
        replicas = len(self.replicas)
        parts = max(1, min(threads.count() // replicas, rows // SMALLEST_PART))
        tasks = [(replica, part, parts) for replica in range(replicas) for part in range(parts)]
        threads.for_each(lambda task: work(*task), tasks)


class LazyAdam:
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
        """One update."""
        if self.dense is not None:
            self.dense.step()
        for table in self.tables:
            table.step()

    def tensors(self) -> dict[str, Tensor]:
        """What both remember, for a checkpoint."""
        return tensors_of(self._parts())

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Bring back what :meth:`tensors` gave."""
        restore(self._parts(), tensors)

    def _parts(self) -> Parts:
        dense: Parts = {} if self.dense is None else {"dense": self.dense}
        return {**{f"table {number}": table for number, table in enumerate(self.tables)}, **dense}
