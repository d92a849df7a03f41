"""Progress on long work: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from unskew.plain_text import plain

MOST_COUNTED = 100_000
"""Steps up to which their number tells a person something."""


class Tracker(Protocol):
    """One task's progress."""

    def advance(self, steps: int = 1) -> None:
        """So many steps are done."""
        ...

    def say(self, what: str) -> None:
        """What it is about at the moment."""
        ...

    def finish(self) -> None:
        """The task ended, perhaps early."""
        ...


class Progress(Protocol):
    """Makes a tracker for each task."""

    def task(self, description: str, total: int) -> Tracker:
        """A new task of ``total`` steps."""
        ...


class _Silent:
    def task(self, description: str, total: int) -> _Silent:
        return self

    def advance(self, steps: int = 1) -> None:
        return None

    def say(self, what: str) -> None:
        return None

    def finish(self) -> None:
        return None


SILENT = _Silent()
"""Shows nothing."""


class _Bars:
    def __init__(self, bars: object) -> None:
        self._bars = bars

    def task(self, description: str, total: int) -> _Bar:
        return _Bar(self._bars, description, total)


class _Bar:
    def __init__(self, bars: object, description: str, total: int) -> None:
        from rich.progress import Progress as Rich

        assert isinstance(bars, Rich)
        self._bars, self._description = bars, description
        self._task = bars.add_task(description, total=total)

    def advance(self, steps: int = 1) -> None:
        self._bars.advance(self._task, steps)

    def say(self, what: str) -> None:
        self._bars.update(self._task, description=plain(f"{self._description} · {what}", 80))

    def finish(self) -> None:
        self._bars.update(self._task, description=self._description)
        task = next(task for task in self._bars.tasks if task.id == self._task)
        self._bars.update(self._task, completed=task.total)


@contextmanager
def progress_bars(show: bool | None = None) -> Iterator[Progress]:
    """Bars on standard error while inside; by default only where it is a terminal."""
    if not (sys.stderr.isatty() if show is None else show):
        yield SILENT
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Rich
    from rich.progress import Task as RichTask
    from rich.text import Text

    class Done(MofNCompleteColumn):
        """Steps that a person can count, else a share."""

        def render(self, task: RichTask) -> Text:
            if task.total is None or task.total <= MOST_COUNTED:
                return super().render(task)
            return Text(f"{task.percentage:.0f} %", style="progress.download")

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        Done(),
        TimeRemainingColumn(),
    )
    with Rich(*columns, console=Console(stderr=True)) as bars:
        yield _Bars(bars)
