"""The gradients of a table's rows between a backward pass and the update."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int


class RowGradients:
    """What look-ups of a step leave of a table that is trained by touched rows, whose class extends it."""

    def __init__(self) -> None:
        self._kept: list[tuple[Tensor, Tensor]] = []

    def add(self, codes: Int[Tensor, "R n"], gradient: Float[Tensor, "R n F"]) -> None:
        """Keep gradients of rows for the step."""
        self._kept.append((codes, gradient))

    def forget(self) -> None:
        """Drop the gradients."""
        self._kept = []

    def _joined(self) -> tuple[Tensor, Tensor]:
        """All of them: codes ``[R, n]`` and gradients ``[R, n, F]``."""
        codes, gradients = zip(*self._kept, strict=True)
        return (codes[0], gradients[0]) if len(codes) == 1 else (torch.cat(codes, 1), torch.cat(gradients, 1))
