"""Threads over replicas on a CPU: each works on a replica of its own, with everything of it in its cache.

Only code that gives up Python's lock gains by them: compiled loops and matrix products. Unlike PyTorch's
own threads, which meet after every operation and spin while they wait, these meet once in a pass, and wait
asleep; so they also do well where other processes want the cores.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

Task = TypeVar("Task")

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_reservations = 0
_reserved = 1


def count() -> int:
    """Return how many threads replicas may use: as many as PyTorch may (``torch.set_num_threads``)."""
    return _reserved if _reservations else torch.get_num_threads()


@contextmanager
def reserved() -> Iterator[None]:
    """Keep all threads for replicas: PyTorch's operations run on one each while inside."""
    global _reservations, _reserved
    with _lock:
        if _reservations == 0:
            _reserved = torch.get_num_threads()
            torch.set_num_threads(1)
        _reservations += 1
    try:
        yield
    finally:
        with _lock:
            _reservations -= 1
            if _reservations == 0:
                torch.set_num_threads(_reserved)


def for_each(work: Callable[[Task], None], tasks: Sequence[Task]) -> None:
    """Call ``work(task)`` for every task, on several threads if tasks are several, without gradients."""
    helpers = min(count(), len(tasks)) - 1
    waiting = iter(tasks)

    def serve() -> None:
        # Gradient mode belongs to a thread, so every thread must leave it by itself.
        with torch.no_grad():
            for task in waiting:
                work(task)

    if helpers < 1:
        serve()
        return
    with reserved():
        others = [_workers().submit(serve) for _ in range(helpers)]
        try:
            serve()
        finally:
            wait(others)
        for other in others:
            other.result()


def _workers() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="unskew-replicas")
        return _pool


def _forget() -> None:
    """Drop the pool: a forked process has none of its parent's threads."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
