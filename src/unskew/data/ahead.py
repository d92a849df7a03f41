"""Work that threads do before its results are asked for, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def ahead(items: Iterator[T], depth: int) -> Iterator[T]:
    """The same items, ``depth`` of which another thread makes before they are asked for, from now on.

    What goes wrong there is raised here; the thread ends, after the item that it is at, once no more are
    asked for.
    """
    pool = ThreadPoolExecutor(1)
    pending = deque(pool.submit(next, items, None) for _ in range(depth))

    def given() -> Iterator[T]:
        try:
            while (item := pending.popleft().result()) is not None:
                pending.append(pool.submit(next, items, None))
                yield item
        finally:
            pool.shutdown(cancel_futures=True)

    return given()


def mapped(function: Callable[[S], T], items: Iterator[S], threads: int) -> Iterator[T]:
    """``function`` of each item, in order, of so many items at a time; what goes wrong is raised in its
    turn."""
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[T]] = deque()
        failed: Exception | None = None
        while failed is None:
            try:
                item = next(items)
            except StopIteration:
                break
            except Exception as error:
                failed = error
                break
            pending.append(pool.submit(function, item))
            # Not held here too while it waits for its turn.
            del item
            if len(pending) == threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        if failed is not None:
            raise failed
