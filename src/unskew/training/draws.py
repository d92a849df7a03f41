"""What a step works on, what a sampler is, and how an epoch is cut into batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Draw(NamedTuple):
    """What one step (``[R, B]``) or a block of steps (``[R, steps, B]``) works on."""

    observed: Tensor | None = None
    """Positions in O."""
    cells: Tensor | None = None
    """Cells of D."""
    user: Tensor | None = None
    item: Tensor | None = None
    click: Tensor | None = None
    """What the cells are, looked up for a whole block by :class:`LookedUp`."""

    @property
    def tensor(self) -> Tensor:
        """The first of the tensors; all are on its device."""
        return next(part for part in self if part is not None)

    @property
    def shape(self) -> torch.Size:
        """``[R, B]`` or ``[R, steps, B]``."""
        return self.tensor.shape

    def at(self, position: Tensor) -> Draw:
        """The step of a block at a position ``[1]`` that is known only on the device."""
        return Draw(*(None if part is None else part.index_select(1, position).squeeze(1) for part in self))

    def steps(self) -> Iterator[Draw]:
        """The steps of a block, one after the other."""
        parts = [None if part is None else part.unbind(1) for part in self]
        for step in range(self.shape[1]):
            yield Draw(*(None if part is None else part[step] for part in parts))


class Sampler(Protocol):
    """What an epoch works on, in blocks."""

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        ...

    def epoch(self, number: int) -> Iterator[Draw]:
        """Blocks of epoch ``number``; their steps add up to ``self.steps``."""
        ...


def batches(size: int, batch_size: int) -> tuple[int, int]:
    """Steps per epoch and a batch size that divides it evenly (the last batch is not a rump).

    Examples
    --------
    >>> batches(6264, 1024)
    (7, 895)
    """
    steps = max(1, -(-size // batch_size))
    return steps, -(-size // steps)


def in_batches(numbers: Tensor, steps: int, batch: int) -> Tensor:
    """``[R, n]`` as ``[R, steps, batch]``; the first come once more to fill the last batch."""
    missing = steps * batch - numbers.shape[1]
    filled = torch.cat((numbers, numbers[:, :missing]), dim=1)
    return filled.view(len(filled), steps, batch)


def endless_blocks(size: int, step: int) -> Iterator[int]:
    """Where blocks of a range start, from the front again when it is used up."""
    while True:
        yield from range(0, size, step)
