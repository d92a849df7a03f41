"""Replicas in smaller groups where a GPU's memory does not hold them all at once."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from unskew.backbones import Network
from unskew.errors import TrainingError
from unskew.training.loop import History

Result = TypeVar("Result")


def in_groups(replicas: int, work: Callable[[slice], Result]) -> list[Result]:
    """``work`` on all replicas at once; if the GPU runs out of memory, on half as many at a time, and so on.

    Replicas do not depend on one another, so groups give the same results one after the other. A warning
    says when groups get smaller.

    Parameters
    ----------
    work
        What to do with the replicas of a slice of ``range(replicas)``.

    Raises
    ------
    TrainingError
        Not even one replica fits.
    """
    results: list[Result] = []
    start, size = 0, replicas
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
            f"the GPU ran out of memory with {size} replicas; training goes on with {smaller} at a time",
            stacklevel=3,
        )
        size = smaller
    return results


def join_networks(parts: Sequence[Network], whole: Network) -> Network:
    """Give a network of all replicas the weights of its parts, in order."""
    states = [part.state_dict() for part in parts]
    whole.load_state_dict({name: torch.cat([state[name] for state in states]) for name in states[0]})
    return whole


def join_histories(parts: Sequence[History]) -> History:
    """Losses of all replicas; those of a part that stopped earlier stay what they were at its end."""
    names = parts[0].train
    return History(
        train={name: _side_by_side([part.train[name] for part in parts]) for name in names},
        validation=_side_by_side([part.validation for part in parts]),
        best_epoch=[epoch for part in parts for epoch in part.best_epoch],
    )


def _side_by_side(parts: Sequence[list[list[float]]]) -> list[list[float]]:
    epochs = max(len(part) for part in parts)
    padded = [part + part[-1:] * (epochs - len(part)) for part in parts]
    return [[value for line in lines for value in line] for lines in zip(*padded, strict=True)]
