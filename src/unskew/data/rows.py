"""The input of every network: named tensors of one batch. Importable without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Rows:
    """Values of a schema's fields for a batch: tensors ``[R, B]``, or ``[1, B]`` shared by all replicas.

    A block of several batches has ``[R, steps, B]``. Features come packed, so that one look-up serves all:
    ``"codes"`` ``[R, B, C]`` has the columns of all categories and bags (−1 where a bag has no more), and
    ``"numbers"`` ``[R, B, N]`` those of all numbers, each in the order of :attr:`Schema.features`.

    Examples
    --------
    >>> import torch
    >>> rows = Rows(user=torch.tensor([[3, 1, 4]]), item=torch.tensor([[1, 5, 9]]))
    >>> rows.shape, rows.between(1, 3)["item"].tolist()
    (torch.Size([1, 3]), [[5, 9]])
    """

    __slots__ = ("_columns",)

    def __init__(self, /, **columns: Tensor) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> Tensor:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __repr__(self) -> str:
        return f"Rows({', '.join(self)}: {list(self.shape)})"

    @property
    def user(self) -> Tensor:
        """Codes of users."""
        return self._columns["user"]

    @property
    def item(self) -> Tensor:
        """Codes of items."""
        return self._columns["item"]

    @property
    def shape(self) -> torch.Size:
        """The shape of every tensor, but for the columns of features."""
        return self.user.shape

    @property
    def device(self) -> torch.device:
        """Where all tensors are."""
        return self.user.device

    def map(self, change: Callable[[Tensor], Tensor]) -> Rows:
        """Return the same fields, each changed in the same way."""
        return Rows(**{name: change(values) for name, values in self._columns.items()})

    def between(self, start: int, stop: int) -> Rows:
        """Return some of the rows, for all replicas."""
        return self.map(lambda values: values[:, start:stop])

    def expand(self, replicas: int) -> Rows:
        """Expand a shared line to ``[R, B]``, without a copy."""
        if len(self.user) == replicas:
            return self
        return self.map(lambda values: values.expand(replicas, *values.shape[1:]))

    def repeat(self, copies: int) -> Rows:
        """Repeat the whole batch several times: ``[R, copies · B]``."""
        if copies == 1:
            return self
        return self.map(lambda values: values.repeat(1, copies, *(1,) * (values.dim() - 2)))

    def to(self, device: torch.device) -> Rows:
        """Return the same on a device."""
        return self.map(lambda values: values.to(device))
