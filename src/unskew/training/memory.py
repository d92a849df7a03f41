"""Replicas in smaller groups where memory does not hold them all at once."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import pyarrow as pa

from unskew.base.errors import TrainingError
from unskew.base.tensors import torch
from unskew.data import Schema
from unskew.learners.layers import ReplicaEmbedding, tables_of
from unskew.training.adam import is_lazy
from unskew.training.loop import History

Result = TypeVar("Result")
Number = TypeVar("Number", int, float)

BYTES = 4
"""Of a number (float32)."""

TRAINING_COPIES = 5
"""Numbers per parameter while it is trained: weight, gradient, Adam's two moments, best weight so far. A
table that is trained by touched rows has no gradient of its size."""

ROW_NUMBERS = 3
"""Of each row of such a table: the step it is at, that of its last gradient, its place in a batch."""

TRAINED_BYTES = 4 << 30
"""Memory of weights, gradients, moments and best weights that are trained at a time on a CPU."""


def in_groups(replicas: int, work: Callable[[slice], Result], size: int | None = None) -> list[Result]:
    """``work`` on ``size`` replicas at a time, by default on all; on a GPU that runs out of memory, on half
    as many, and so on.

    Replicas do not depend on one another, so groups give the same results one after the other. A warning
    says when groups get smaller.

    Parameters
    ----------
    work
        What to do with the replicas of a slice of ``range(replicas)``.
    size
        What :func:`replicas_at_once` says.

    Raises
    ------
    TrainingError
        Not even one replica fits.
    """
    results: list[Result] = []
    start, size = 0, size or replicas
    while start < replicas:
        try:
            results.append(work(slice(start, min(start + size, replicas))))
            start += size
            continue
        except torch.cuda.OutOfMemoryError:
            if size == 1:
                raise TrainingError(
                    "the GPU has not enough memory for a single replica",
                    remedy="take a smaller batch_size or learner, or --device cpu",
                ) from None
        # Outside of the handler, so that the error's frames no longer hold what is to be freed.
        gc.collect()
        torch.cuda.empty_cache()
        smaller = -(-size // 2)
        warnings.warn(
            f"the GPU ran out of memory with {size} replicas; training continues with {smaller} at a time",
            stacklevel=3,
        )
        size = smaller
    return results


class Size(NamedTuple):
    """Numbers of one replica's networks."""

    parameters: int
    by_rows: int = 0
    """Parameters of tables that are trained by touched rows."""
    rows: int = 0
    """Rows of these tables."""

    @property
    def in_training(self) -> int:
        """Return numbers while it is trained."""
        # A table that is trained by touched rows has no gradient.
        return TRAINING_COPIES * self.parameters - self.by_rows + ROW_NUMBERS * self.rows


def replicas_at_once(replicas: int, of_one: Size, device: torch.device, *, copies: int = 1) -> int:
    """Return how many replicas a CPU trains at a time: as many as take :data:`TRAINED_BYTES`.

    It follows from sizes alone, so that the memory or the load of a machine never changes a model. A GPU
    tells itself when its memory is used up (:func:`in_groups`).

    Parameters
    ----------
    copies
        Copies of the weights of all replicas that are held beside those that are trained.

    Raises
    ------
    TrainingError
        The machine has less memory than that.
    """
    if device.type != "cpu":
        return replicas
    training = BYTES * of_one.in_training
    groups = min(-(-replicas * training // TRAINED_BYTES), replicas)
    # As even as possible: the last group should not be a small rest.
    size = -(-replicas // max(groups, 1))
    need = training * size + (BYTES * of_one.parameters * copies * replicas if size < replicas else 0)
    memory = machine_memory()
    if need > memory:
        raise TrainingError(
            f"{replicas} networks of {of_one.parameters:,} parameters take about {need / 1e9:.3g} GB to"
            f" train, {size} at a time, and this machine has {memory / 1e9:.3g} GB",
            remedy="take fewer seeds or folds (crossfit), a smaller dim of the learner, or more memory",
        )
    return size


def machine_memory() -> int:
    """Return the bytes of memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def size_of(build: Callable[[Schema], Sequence[torch.nn.Module]], schema: Schema, batch_rows: int) -> Size:
    """Return the size of the networks that ``build`` makes for a schema, made on a device that holds nothing.

    Parameters
    ----------
    batch_rows
        Rows that a step reads for a replica, which decide how its tables are trained.
    """
    with torch.device("meta"):
        networks = build(schema)
    lazy = [table for each in networks for table in tables_of(each) if is_lazy(table, batch_rows)]
    return Size(
        parameters=sum(p.numel() for network in networks for p in network.parameters()),
        by_rows=sum(table.weight.numel() for table in lazy),
        rows=sum(_rows(table) for table in lazy),
    )


def _rows(table: ReplicaEmbedding) -> int:
    """Return the rows of a table over all replicas."""
    return table.weight.shape[0] * table.weight.shape[1]


def give_back() -> None:
    """Give the system what was freed, and what Arrow and the C library hold on to for later.

    After a stage that worked on large blocks that is a large part of what it took.
    """
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def join_histories(parts: Sequence[History]) -> History:
    """Return losses of all replicas; those of a part that stopped earlier stay what they were at its end."""
    names = parts[0].train
    return History(
        train={name: _side_by_side([part.train[name] for part in parts]) for name in names},
        validation=_side_by_side([part.validation for part in parts]),
        best_epoch=[epoch for part in parts for epoch in part.best_epoch],
        start=[loss for part in parts for loss in part.start],
    )


def share_of_history(history: History, replicas: slice) -> History:
    """Return the losses of some replicas."""
    return History(
        train={name: [line[replicas] for line in losses] for name, losses in history.train.items()},
        validation=[line[replicas] for line in history.validation],
        best_epoch=history.best_epoch[replicas],
        start=history.start[replicas],
    )


def _side_by_side(parts: Sequence[list[list[float]]]) -> list[list[float]]:
    epochs = max(len(part) for part in parts)
    padded = [part + part[-1:] * (epochs - len(part)) for part in parts]
    return [[value for line in lines for value in line] for lines in zip(*padded, strict=True)]
