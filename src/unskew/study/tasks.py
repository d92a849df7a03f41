"""The work of a study, task by task: what makes which cell, and its share of the progress bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unskew.progress import Progress, Tracker
from unskew.study.cells import CellStore


@dataclass(frozen=True)
class Task:
    """One cell to make; ``work`` is its expected share of the time, in networks × rows."""

    key: str
    label: str
    work: int
    run: Callable[[Progress], None]


def missing_work(tasks: Sequence[Task], store: CellStore) -> int:
    """The work of the tasks whose cells are not there."""
    return sum(task.work for task in tasks if not store.has(task.key))


def make_missing(tasks: Sequence[Task], store: CellStore, bar: Tracker) -> None:
    """Run the tasks whose cells are not there, in order."""
    for number, task in enumerate(tasks, start=1):
        if not store.has(task.key):
            bar.say(f"{number} of {len(tasks)}: {task.label}")
            share = _Share(bar, task.work)
            task.run(share)
            share.done()


class _Share:
    """The progress of one task, as its share of the whole study's bar."""

    def __init__(self, bar: Tracker, work: int) -> None:
        self._bar, self._left = bar, work
        self._step = 0

    def task(self, description: str, total: int) -> _Share:
        self._step = self._left // (2 * max(total, 1))
        return self

    def advance(self, steps: int = 1) -> None:
        """Half the share goes with the epochs, of which early stopping leaves an unknown number undone."""
        moved = min(self._left, self._step * steps)
        self._left -= moved
        self._bar.advance(moved)

    def say(self, what: str) -> None:
        return None

    def finish(self) -> None:
        return None

    def done(self) -> None:
        self._bar.advance(self._left)
        self._left = 0
