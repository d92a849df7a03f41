"""What tables that are trained by touched rows hold alike on a GPU, whichever kernels they are updated by."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from unskew.training.stateful import copy_back


class TouchedRows:
    """The moments of a table's rows, and the steps that rows are at.

    Parameters
    ----------
    replicas
        Of the table.
    first, second
        Adam's moments, zero: of all rows, those of a replica side by side.
    """

    def __init__(self, replicas: int, first: Tensor, second: Tensor) -> None:
        self._first, self._second = first, second
        of_row, device = first.shape[:-1], first.device
        self._seen, self._touched = (torch.zeros(of_row, dtype=torch.int32, device=device) for _ in range(2))
        self._step, self._settled = (torch.zeros(1, dtype=torch.int32, device=device) for _ in range(2))
        self._replicas, self._rows = replicas, of_row.numel() // replicas

    def tensors(self) -> dict[str, Tensor]:
        """Moments and steps between two steps, for a checkpoint; the weights are the network's."""
        return {
            "first": self._first,
            "second": self._second,
            "seen": self._seen,
            "touched": self._touched,
            "step": self._step,
            "settled": self._settled,
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Bring back what :meth:`tensors` gave, in place."""
        copy_back(self.tensors(), tensors)

    def _flat(self, codes: Tensor) -> Tensor:
        """Rows of all replicas, as those of one table."""
        start = torch.arange(0, self._replicas * self._rows, self._rows, device=codes.device).unsqueeze(1)
        return (codes + start).flatten()
