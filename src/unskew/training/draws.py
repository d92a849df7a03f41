"""What a step works on, what a sampler is, and how an epoch is cut into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from unskew.log import Rows

if TYPE_CHECKING:
    from jaxtyping import Int


class Draw(NamedTuple):
    """What one step (``[R, B]``) or a block of steps (``[R, steps, B]``) works on."""

    observed: Tensor | None = None
    """Positions in O."""
    cells: Tensor | None = None
    """Cells of D."""
    rows: Rows | None = None
    click: Tensor | None = None
    """What the cells are, looked up for a whole block by :class:`LookedUp`."""

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, those of the rows among them."""
        for part in self:
            if part is not None:
                yield from (part[name] for name in part) if isinstance(part, Rows) else (part,)

    @property
    def device(self) -> torch.device:
        """Where all tensors are."""
        return next(self.tensors()).device

    @property
    def shape(self) -> torch.Size:
        """``[R, B]`` or ``[R, steps, B]``."""
        return next(self.tensors()).shape

    def map(self, change: Callable[[Tensor], Tensor]) -> Draw:
        """The same with every tensor changed."""
        observed, cells, click = (
            None if part is None else change(part) for part in (self.observed, self.cells, self.click)
        )
        return Draw(observed, cells, None if self.rows is None else self.rows.map(change), click)

    def at(self, position: Tensor) -> Draw:
        """The step of a block at a position ``[1]`` that is known only on the device."""
        return self.map(lambda part: part.index_select(1, position).squeeze(1))

    def steps(self) -> Iterator[Draw]:
        """The steps of a block, one after the other."""
        for step in range(self.shape[1]):
            yield self.map(partial(torch.select, dim=1, index=step))


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


def in_batches(numbers: Int[Tensor, "R n"], steps: int, batch: int) -> Int[Tensor, "R steps batch"]:
    """``[R, n]`` as ``[R, steps, batch]``; the first come once more to fill the last batch."""
    missing = steps * batch - numbers.shape[1]
    filled = torch.cat((numbers, numbers[:, :missing]), dim=1)
    return filled.view(len(filled), steps, batch)


def endless_blocks(size: int, step: int) -> Iterator[int]:
    """Where blocks of a range start, from the front again when it is used up."""
    while True:
        yield from range(0, size, step)
