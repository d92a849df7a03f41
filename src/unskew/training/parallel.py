"""One batch on several processes: steps that all take together, and gradients that all have.

Each process reads its own rows (:class:`~unskew.training.readings.Rounds`) and has a part of every batch, of
the same size as any other's. What a loss says of the whole batch it asks of all (:mod:`unskew.losses.means`).
After the gradients of all are averaged, each process makes the same update: networks stay the same in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from unskew import processes
from unskew.training.checkpoint import Call
from unskew.training.dense_adam import DenseOptimiser
from unskew.training.lazy_adam import LazyAdam
from unskew.training.row_gradients import RowGradients
from unskew.training.samplers import Sample
from unskew.training.state_files import SavedState


def together(blocks: Iterable[Sample]) -> Iterator[Sample]:
    """Blocks of as many steps as every process has rows for; what one has more than another is left out."""
    waiting, block = iter(blocks), None
    while True:
        if block is None:
            block = next(waiting, None)
        size = 0 if block is None else block.shape[1]
        steps = int(processes.total(torch.tensor(size), least=True))
        if block is None or steps == 0:
            return
        yield _between(block, 0, steps)
        block = None if steps == size else _between(block, steps, size)


def _between(block: Sample, start: int, stop: int) -> Sample:
    return block.map(lambda values: values[:, start:stop])


def average_gradients(optimiser: object) -> None:
    """Give every process the mean over all of them; of tables, all rows that any of them touched."""
    dense = optimiser.dense if isinstance(optimiser, LazyAdam) else optimiser
    # All at once: each would be waited for.
    waits = [_begin_average(dense.gradients)] if isinstance(dense, DenseOptimiser) else []
    for table in optimiser.tables if isinstance(optimiser, LazyAdam) else ():
        assert isinstance(table, RowGradients)
        waits.append(table.begin_exchange())
    for wait in waits:
        wait()


def _begin_average(gradients: list[Tensor]) -> Callable[[], None]:
    if not gradients:
        return lambda: None
    total = processes.begin_total(torch.cat([each.reshape(-1) for each in gradients]))

    def wait() -> None:
        flat = total() / processes.world()
        for each, averaged in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):  # type: ignore[no-untyped-call]
            each.copy_(averaged.view_as(each))

    return wait


class SharedCall:
    """A training of all processes in the journal of rank 0: what it keeps of networks is the same in all.

    Parameters
    ----------
    call
        That of this process, which rank 0 alone uses.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def is_due(self) -> bool:
        """Whether it is time for a state, and this process writes it."""
        return processes.is_writer() and self._call.is_due

    def done(self) -> SavedState | None:
        """What it left, if it is done."""
        return self._shared(self._call.done)

    def latest(self) -> SavedState | None:
        """Its last state that is whole, if it was running."""
        return self._shared(self._call.latest)

    def save(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Keep a state; asked of the process that writes."""
        self._call.save(facts, tensors)

    def finish(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Keep what the training left."""
        if processes.is_writer():
            self._call.finish(facts, tensors)

    @staticmethod
    def _shared(read: Callable[[], SavedState | None]) -> SavedState | None:
        def packed() -> processes.Packed:
            state = read() if processes.is_writer() else None
            return (None, {}) if state is None else (dict(state.facts), state.tensors)

        facts, tensors = processes.exchange(packed)[0]
        return None if facts is None else SavedState(facts, tensors)


def averaged(losses: dict[str, Tensor]) -> dict[str, Tensor]:
    """Losses of all processes."""
    return {name: processes.total(loss) / processes.world() for name, loss in losses.items()}
