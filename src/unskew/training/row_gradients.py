"""The gradients of a table's rows between a backward pass and the update."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unskew import processes

if TYPE_CHECKING:
    from jaxtyping import Float, Int


class RowGradients:
    """What look-ups of a step leave of a table that is trained by touched rows, whose class extends it."""

    def __init__(self) -> None:
        self._kept: list[tuple[Tensor, Tensor]] = []
        self._sent: list[tuple[Tensor, Callable[[], Tensor]]] = []

    def add(self, codes: Int[Tensor, "R n"], gradient: Float[Tensor, "R n F"]) -> None:
        """Keep gradients of rows for the step."""
        self._kept.append((codes, gradient))

    def forget(self) -> None:
        """Drop the gradients."""
        self._kept = []

    def send(self, codes: Int[Tensor, "R n"]) -> None:
        """Let the other processes know which rows of a batch in parts this one has read."""
        self._sent.append((codes, processes.begin_side_by_side(codes, 1)))

    def arrived(self) -> list[Int[Tensor, "R m"]]:
        """The rows that all have read since it was last asked for; here they are waited for."""
        lines = [wait() for _, wait in self._sent]
        self._sent = []
        return lines

    def begin_exchange(self) -> Callable[[], None]:
        """Send the gradients; what is returned takes the mean of those of all processes, of the rows that any
        of them touched."""
        if not self._kept:
            return lambda: None
        codes, gradient = self._joined()
        # Of one look-up in a step they are on their way already.
        known = [wait for own, wait in self._sent if own.data_ptr() == codes.data_ptr()]
        of_codes = known[0] if known else processes.begin_side_by_side(codes, 1)
        of_gradient = processes.begin_side_by_side(gradient, 1)

        def wait() -> None:
            self._kept = [(of_codes(), of_gradient().div_(processes.world()))]

        return wait

    def _joined(self) -> tuple[Tensor, Tensor]:
        """All of them: codes ``[R, n]`` and gradients ``[R, n, F]``."""
        codes, gradients = zip(*self._kept, strict=True)
        return (codes[0], gradients[0]) if len(codes) == 1 else (torch.cat(codes, 1), torch.cat(gradients, 1))
