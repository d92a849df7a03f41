"""How the steps of a pass are carried out: one by one, or captured once as a CUDA graph and replayed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from unskew.base.errors import TrainingError
from unskew.base.tensors import Tensor, torch
from unskew.training.adam import Adam
from unskew.training.samplers import Sample, Sampler

WARM_UP = 3
"""Steps that run eagerly before a capture, as PyTorch asks; they are training steps like all others."""


@dataclass(frozen=True)
class Step:
    """One loss and the networks it trains; other networks it touches are left as they are."""

    name: str
    loss: Callable[..., Tensor]
    """The loss ``[R]`` of a :class:`Sample`; before there are data, of what its declarer makes of one."""
    trains: tuple[str, ...]


@dataclass(frozen=True)
class Position:
    """How far an epoch is: ``step`` steps of block number ``block`` are done, and ``taken`` in all."""

    block: int = 0
    step: int = 0
    taken: int = 0
    sums: Mapping[str, Tensor] = field(default_factory=dict)
    """Of the losses ``[R]`` so far, by step."""


START = Position()


def blocks_from(sampler: Sampler, epoch: int, start: Position) -> Iterator[tuple[int, Sample, int]]:
    """Yield the blocks of an epoch from a position on: numbers, blocks, and the steps that are done."""
    for number, block in enumerate(sampler.epoch(epoch)):
        if number >= start.block:
            yield number, block, start.step if number == start.block else 0


After = Callable[[Position], None]
"""What is done between two steps: a checkpoint."""


class EagerSteps:
    """Each step as it comes."""

    def __init__(self, steps: Sequence[Step], optimisers: Mapping[str, Adam]) -> None:
        self.steps = steps
        self.optimisers = optimisers

    def run(
        self, sampler: Sampler, epoch: int, start: Position = START, after: After | None = None
    ) -> dict[str, Tensor]:
        """Run an epoch from its start or from where it was; return mean losses ``[R]`` by step."""
        sums, taken = dict(start.sums), start.taken
        for number, block, first in blocks_from(sampler, epoch, start):
            for step, sample in enumerate(block.steps(first), first + 1):
                for name, loss in self.take(sample).items():
                    sums[name] = sums[name] + loss if name in sums else loss
                taken += 1
                if after is not None:
                    after(Position(number, step, taken, sums))
        return {name: total / taken for name, total in sums.items()}

    def take(self, sample: Sample) -> dict[str, Tensor]:
        """Take every step on one batch; return the losses without gradient."""
        losses = {}
        for step in self.steps:
            loss = step.loss(sample)
            _require_loss(loss, step.name)
            for optimiser in self.optimisers.values():
                optimiser.zero_grad()
            # Of a sum: PyTorch loads SymPy, for half a second, where gradients are given.
            loss.sum().backward()  # type: ignore[no-untyped-call]
            for name in step.trains:
                self.optimisers[name].step()
            losses[step.name] = loss.detach()
        return losses


def _require_loss(loss: object, name: str) -> None:
    """Raise for a loss without a gradient: a method of one's own may return anything."""
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        actual = "a tensor without a gradient" if isinstance(loss, Tensor) else f"{type(loss).__name__}"
        raise TrainingError(
            f"the loss of the step '{name}' is {actual}, not a tensor [seeds] to train on",
            remedy="return the loss from the method, computed from the network's predictions",
        )


class CapturedSteps:
    """The steps of a batch as one CUDA graph.

    The graph reads its batch from a buffer that holds a whole block, at a position it advances itself, so
    that a replay needs no transfer. Losses are summed on the device. Steps that cannot be captured (a loss
    that asks the device for a number, say) run one by one, and a warning says so.
    """

    def __init__(self, eager: EagerSteps) -> None:
        self.eager = eager
        self._replay: Callable[[], None] | None = None
        self._refused = False
        self._buffer: Sample | None = None
        self._position: Tensor | None = None
        self._sums: dict[str, Tensor] = {}

    def run(
        self, sampler: Sampler, epoch: int, start: Position = START, after: After | None = None
    ) -> dict[str, Tensor]:
        """Run an epoch from its start or from where it was; return mean losses ``[R]`` by step."""
        for total in self._sums.values():
            total.zero_()
        # Before anything was captured: only the first epoch may start elsewhere.
        self._sums |= {name: total.clone() for name, total in start.sums.items()}
        before = start.taken - start.step
        for number, block, first in blocks_from(sampler, epoch, start):
            # Streams, graphs and kernels belong to the current device, which need not be the tensors'.
            with torch.cuda.device_of(next(block.tensors())):  # type: ignore[no-untyped-call]
                for step in self._run(block, first):
                    if after is not None:
                        after(Position(number, step, before + step, self._sums))
            before += block.shape[1]
        return {name: total / before for name, total in self._sums.items()}

    def _run(self, block: Sample, first: int) -> Iterator[int]:
        """Take the steps of a block from a number on; how many of them are done, after each."""
        steps, done = block.shape[1], first
        if done == steps:
            return
        if not self._refused and (self._buffer is None or steps > self._buffer.shape[1]):
            # Blocks may differ by a step; a larger one than any before is captured anew.
            done += self._warm_up_and_capture(block, first)
        if self._replay is None:
            for step, sample in enumerate(block.steps(done), done + 1):
                self._add(self.eager.take(sample))
                yield step
            return
        self._load(block, done)
        for step in range(done, steps):
            self._replay()
            yield step + 1

    def _warm_up_and_capture(self, block: Sample, first: int) -> int:
        samples = list(block.steps(first))[:WARM_UP]
        with side_stream() as stream:
            for sample in samples:
                self._add(self.eager.take(sample))
        buffer = block.map(torch.clone)
        position = torch.zeros(1, dtype=torch.int64, device=next(block.tensors()).device)

        def step() -> None:
            self._add(self.eager.take(buffer.at(position)))
            position.add_(1)

        self._replay = None
        try:
            self._replay = capture(step, stream)
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._refused = True
            warnings.warn(
                "the training step cannot be captured as a CUDA graph and runs piece by piece, several times"
                f" slower: {str(error).splitlines()[0]}",
                stacklevel=2,
            )
        self._buffer, self._position = buffer, position
        return len(samples)

    def _add(self, losses: Mapping[str, Tensor]) -> None:
        for name, loss in losses.items():
            if name in self._sums:
                self._sums[name] += loss
            else:
                self._sums[name] = loss.clone()

    def _load(self, block: Sample, position: int) -> None:
        assert self._buffer is not None
        assert self._position is not None
        for buffered, own in zip(self._buffer.tensors(), block.tensors(), strict=True):
            buffered[:, : own.shape[1]].copy_(own)
        self._position.fill_(position)


@contextmanager
def side_stream() -> Iterator[torch.cuda.Stream]:
    """Yield a stream of its own for the steps before a capture, as PyTorch asks."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield stream
    torch.cuda.current_stream().wait_stream(stream)


def capture(work: Callable[[], None], stream: torch.cuda.Stream) -> Callable[[], None]:
    """Record ``work`` without doing it; what is returned does it."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        work()
    return graph.replay
