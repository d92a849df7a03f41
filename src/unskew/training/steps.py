"""How the steps of a pass are carried out: one by one, or captured once as a CUDA graph and replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from unskew.training.samplers import Draw, Sampler

WARM_UP = 3
"""Steps that run eagerly before a capture, as PyTorch asks; they are training steps like all others."""

StepLoss = Callable[[Draw], Tensor]
"""Positions in O and cells of D, ``[R, B]`` each → loss ``[R]``."""


@dataclass(frozen=True)
class Step:
    """One loss and the networks it trains; other networks it touches are left as they are."""

    name: str
    loss: StepLoss
    trains: tuple[str, ...]


class Executor(Protocol):
    """Runs an epoch of steps."""

    def run(self, sampler: Sampler, epoch: int) -> dict[str, Tensor]:
        """Mean losses ``[R]`` by step."""
        ...


class EagerSteps:
    """Each step as it comes."""

    def __init__(self, steps: Sequence[Step], optimisers: Mapping[str, torch.optim.Optimizer]) -> None:
        self.steps = steps
        self.optimisers = optimisers

    def run(self, sampler: Sampler, epoch: int) -> dict[str, Tensor]:
        """Mean losses ``[R]`` by step."""
        sums: dict[str, Tensor] = {}
        for block in sampler.epoch(epoch):
            for draw in block.steps():
                for name, loss in self.take(draw).items():
                    sums[name] = sums[name] + loss if name in sums else loss
        return {name: total / sampler.steps for name, total in sums.items()}

    def take(self, draw: Draw) -> dict[str, Tensor]:
        """One batch: every step in turn; losses without gradient."""
        losses = {}
        for step in self.steps:
            loss = step.loss(draw)
            for optimiser in self.optimisers.values():
                optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss, torch.ones_like(loss))
            for name in step.trains:
                self.optimisers[name].step()
            losses[step.name] = loss.detach()
        return losses


class CapturedSteps:
    """The steps of a batch as one CUDA graph.

    The graph reads its batch from a buffer that holds a whole block, at a position it advances itself, so
    that a replay needs no transfer. Losses are summed on the device.
    """

    def __init__(self, eager: EagerSteps) -> None:
        self.eager = eager
        self._graph: torch.cuda.CUDAGraph | None = None
        self._buffer: Draw | None = None
        self._position: Tensor | None = None
        self._sums: dict[str, Tensor] = {}

    def run(self, sampler: Sampler, epoch: int) -> dict[str, Tensor]:
        """Mean losses ``[R]`` by step."""
        for total in self._sums.values():
            total.zero_()
        for block in sampler.epoch(epoch):
            steps = block.shape[1]
            done = 0
            if self._buffer is None or steps > self._buffer.shape[1]:
                # Blocks may differ by a step; a larger one than any before is captured anew.
                done = self._warm_up_and_capture(block, steps)
            self._load(block, done)
            for _ in range(steps - done):
                assert self._graph is not None
                self._graph.replay()
        return {name: total / sampler.steps for name, total in self._sums.items()}

    def _warm_up_and_capture(self, block: Draw, steps: int) -> int:
        done = min(WARM_UP, steps)
        draws = list(block.steps())[:done]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for draw in draws:
                self._add(self.eager.take(draw))
        torch.cuda.current_stream().wait_stream(stream)
        self._buffer = Draw(*(None if part is None else part.clone() for part in block))
        self._position = torch.zeros(1, dtype=torch.int64, device=draws[0].device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._add(self.eager.take(self._buffer.at(self._position)))
            self._position += 1
        self._graph = graph
        return done

    def _add(self, losses: Mapping[str, Tensor]) -> None:
        for name, loss in losses.items():
            if name in self._sums:
                self._sums[name] += loss
            else:
                self._sums[name] = loss.clone()

    def _load(self, block: Draw, position: int) -> None:
        assert self._buffer is not None
        assert self._position is not None
        for kept, part in zip(self._buffer, block, strict=True):
            if kept is not None and part is not None:
                kept[:, : part.shape[1]].copy_(part)
        self._position.fill_(position)
