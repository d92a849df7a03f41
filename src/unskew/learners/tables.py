"""Look-ups in tables of which a step touches a few rows: gradients are kept by row, never as a whole table.

A table is a :class:`~unskew.learners.layers.ReplicaEmbedding`. While it has :class:`LazyRows` (from the
optimiser, :mod:`unskew.training.adam`), they are asked before rows are read and given the gradients of
what was read; autograd sees no gradient of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from unskew.base.tensors import Tensor, torch

if TYPE_CHECKING:
    from jaxtyping import Float, Int


class LazyRows(Protocol):
    """Rows of a table that are brought up to date when they are read."""

    def read(self, codes: Int[Tensor, "R n"]) -> None:
        """Bring rows up to date; they are about to be read."""
        ...

    def add(self, codes: Int[Tensor, "R n"], gradient: Float[Tensor, "R n F"]) -> None:
        """Take the gradients of rows that were read; a row may come several times."""
        ...

    def settle(self) -> None:
        """Bring all rows up to date."""
        ...


def look_up(
    table: Float[Tensor, "R codes F"], codes: Int[Tensor, "R n"], lazy: LazyRows
) -> Float[Tensor, "R n F"]:
    """Look up rows of each replica's table; their gradients go to ``lazy``."""
    codes = codes.contiguous()
    if not codes.is_cuda:
        require_rows(codes, table, "table")
    lazy.read(codes)
    look_up_rows: Callable[..., Tensor] = _LookUp.apply
    return look_up_rows(table, codes, lazy)


def gathered(table: Float[Tensor, "R codes F"], codes: Int[Tensor, "_ n"]) -> Float[Tensor, "R n F"]:
    """Return rows of each replica's table, looked up as a single flat table with row offset k · codes."""
    replicas, size, dim = table.shape
    offset = torch.arange(0, replicas * size, size, device=codes.device).unsqueeze(1)
    flat = (codes + offset).view(-1)
    return torch.nn.functional.embedding(flat, table.view(replicas * size, dim)).view(replicas, -1, dim)


def require_rows(code: Tensor, table: Tensor, name: str) -> None:
    """Raise for codes outside the table, which compiled loops would read without a look."""
    if code.numel():
        low, high = torch.aminmax(code)
        if int(low) < 0 or int(high) >= table.shape[1]:
            raise IndexError(f"{name} codes from {int(low)} to {int(high)} do not fit {table.shape[1]} rows")


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, codes: Tensor, lazy: LazyRows) -> Tensor:
        ctx.codes, ctx.lazy = codes, lazy
        return gathered(table, codes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        ctx.lazy.add(ctx.codes, gradient)
        return None, None, None
