"""Progress on long work: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from unskew import processes
from unskew.plain_text import plain

MOST_COUNTED = 100_000
"""Steps up to which their number tells a person something."""

QUIET_SECONDS = 20.0
"""Without a terminal, work that is done sooner says nothing."""

SECONDS_BETWEEN_LINES = 30.0
"""Without a terminal, the least time from one line to the next."""


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


class Lines:
    """A line on standard error now and then, for logs of jobs that no terminal shows.

    Parameters
    ----------
    quiet, between
        Seconds before the first line, and from one line to the next.
    """

    def __init__(self, quiet: float = QUIET_SECONDS, between: float = SECONDS_BETWEEN_LINES) -> None:
        self._next, self._between = time.monotonic() + quiet, between

    def task(self, description: str, total: int) -> _Line:
        """A new task of ``total`` steps."""
        return _Line(self, description, total)

    def write(self, line: str) -> None:
        """Write a line, unless one was written a moment ago."""
        now = time.monotonic()
        if now >= self._next and sys.stderr is not None:
            self._next = now + self._between
            print(line, file=sys.stderr, flush=True)


class _Line:
    def __init__(self, lines: Lines, description: str, total: int) -> None:
        self._lines, self._description, self._total = lines, description, total
        self._about, self._done, self._start = "", 0, time.monotonic()

    def advance(self, steps: int = 1) -> None:
        self._done += steps
        count = f"{self._done} of {self._total}, " if self._total <= MOST_COUNTED else ""
        share = self._done / self._total if self._total else 1.0
        about = f" · {self._about}" if self._about else ""
        seconds = time.monotonic() - self._start
        self._lines.write(
            f"{plain(self._description + about, 80)}: {count}{100 * share:.0f} %, after {seconds:.0f} s"
        )

    def say(self, what: str) -> None:
        self._about = what

    def finish(self) -> None:
        return None


@contextmanager
def progress_bars(show: bool | None = None) -> Iterator[Progress]:
    """Bars on standard error while inside, where it is a terminal; elsewhere a line now and then.

    Parameters
    ----------
    show
        True draws bars in any case, False shows nothing; of several processes one shows something.
    """
    if show is False or not processes.is_writer():
        yield SILENT
        return
    if show is None and not (sys.stderr is not None and sys.stderr.isatty()):
        yield Lines()
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
