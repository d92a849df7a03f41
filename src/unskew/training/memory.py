"""Replicas in smaller groups where memory does not hold them all at once."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa
import torch

from unskew.base import processes
from unskew.base.errors import TrainingError
from unskew.data import Schema
from unskew.learners import Network
from unskew.learners.layers import ReplicaEmbedding, tables_of
from unskew.training.loop import History
from unskew.training.row_adam import is_lazy

Result = TypeVar("Result")
Number = TypeVar("Number", int, float)

BYTES = 4
"""Of a number (float32)."""

TRAINING_COPIES = 5
"""Numbers per parameter while it is trained: weight, gradient, Adam's two moments, best weight so far. A
table that is trained by touched rows has no gradient of its size."""

ROW_NUMBERS = 3
"""Of each row of such a table: the step it is at, that of its last gradient, its place in a batch."""

USABLE = 0.8
"""Share of the free memory that networks may take; batches, logs and other programs need some as well."""


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
                    remedy="take a smaller batch_size or backbone, or --device cpu",
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
        """Numbers while it is trained."""
        # A table that is trained by touched rows has no gradient.
        return TRAINING_COPIES * self.parameters - self.by_rows + ROW_NUMBERS * self.rows


def replicas_at_once(replicas: int, of_one: Size, device: torch.device, *, kept: int = 1) -> int:
    """How many replicas a CPU's memory can train at a time, by what is free before it begins.

    bytes(g) = 4·(P·k·R + N·g), or 4·N·R for all at once: of R replicas of P parameters the weights are
    kept, k times, and g are trained, each with N = :attr:`Size.in_training` numbers (5·P; 4·P in tables that
    are trained by touched rows). A warning says where that is fewer than all. A GPU tells itself when its
    memory is used up (:func:`in_groups`).

    Parameters
    ----------
    kept
        k; 2 where groups are joined afterwards.

    Raises
    ------
    TrainingError
        Not even one fits beside the weights of all.
    """
    available = available_memory() if device.type == "cpu" else None
    if available is None:
        return replicas
    room = USABLE * available
    weights, training = BYTES * of_one.parameters * kept * replicas, BYTES * of_one.in_training
    everything = training * replicas
    if everything <= room:
        return replicas
    size = int((room - weights) // training)
    networks = f"{replicas} networks of {of_one.parameters:,} parameters"
    need = f"{networks} take about {_gb(everything)} to train at once"
    if size < 1:
        one_by_one = f" and {_gb(weights + training)} one by one" * (replicas > 1)
        raise TrainingError(
            f"{need}{one_by_one}, but {_gb(room)} of memory can be used",
            remedy="take fewer seeds or folds (crossfit), a smaller dim of the backbone, or more memory",
        )
    # As even as possible: the last group should not be a small rest.
    size = -(-replicas // -(-replicas // size))
    warnings.warn(
        f"{need}, but {_gb(room)} of memory can be used; training continues with {size} at a time",
        stacklevel=4,
    )
    return size


def size_of(build: Callable[[Schema], Sequence[torch.nn.Module]], schema: Schema, batch_rows: int) -> Size:
    """The size of the networks that ``build`` makes for a schema, made on a device that holds nothing.

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
    """Of all replicas."""
    return table.weight.shape[0] * table.weight.shape[1]


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that a process may still take: the least of what the machine and its control groups leave, or
    its share of it where several work together.

    None where the system does not tell.

    Parameters
    ----------
    root
        Where ``proc`` and ``sys`` are.
    """
    left = [each for each in (_of_machine(root), *_of_groups(root)) if each is not None]
    return min(left) // processes.on_this_machine() if left else None


def give_back() -> None:
    """Give the system what was freed, and what Arrow and the C library hold on to for later.

    After a stage that worked on large blocks that is a large part of what it took.
    """
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _of_machine(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) << 10
    names = os.sysconf_names if hasattr(os, "sysconf") else {}
    if "SC_PHYS_PAGES" not in names:
        return None
    pages = os.sysconf("SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in names else "SC_PHYS_PAGES")
    return pages * os.sysconf("SC_PAGE_SIZE")


def _of_groups(root: Path) -> Iterator[int]:
    """What each control group above this process (version 1 or 2) leaves of its limit."""
    for line in _lines(root / "proc/self/cgroup"):
        _, kinds, path = line.split(":", 2)
        if kinds == "":
            mount, limit, used = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in kinds.split(","):
            mount, limit, used = (
                root / "sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            )
        else:
            continue
        group = mount / path.lstrip("/")
        # In a container the path may be the host's; its own group is then the mount itself.
        for folder in (group, *group.parents):
            most, taken = _lines(folder / limit), _lines(folder / used)
            if most and taken and most[0].isdigit():
                yield max(0, int(most[0]) - int(taken[0]) + _cache(folder))
            if folder == mount:
                break


def _cache(folder: Path) -> int:
    """Bytes of files that a group holds in memory and would give back."""
    for line in _lines(folder / "memory.stat"):
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file") and value.isdigit():
            return int(value)
    return 0


def _lines(path: Path) -> list[str]:
    """The lines of a file; none where there is no such file."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB"


def join_networks(parts: Sequence[Network], whole: Network) -> Network:
    """Give a network of all replicas the weights of its parts, in order."""
    states = [part.state_dict() for part in parts]
    for name, target in whole.state_dict().items():
        torch.cat([state[name] for state in states], out=target)
    return whole


def join_histories(parts: Sequence[History]) -> History:
    """Losses of all replicas; those of a part that stopped earlier stay what they were at its end."""
    names = parts[0].train
    return History(
        train={name: _side_by_side([part.train[name] for part in parts]) for name in names},
        validation=_side_by_side([part.validation for part in parts]),
        best_epoch=[epoch for part in parts for epoch in part.best_epoch],
        start=[loss for part in parts for loss in part.start],
    )


def share_of_network(network: Network, fresh: Network, replicas: slice) -> Network:
    """Give a fresh network the weights of some replicas."""
    fresh.load_state_dict({name: value[replicas] for name, value in network.state_dict().items()})
    return fresh


def share_of_history(history: History, replicas: slice) -> History:
    """The losses of some replicas."""
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
