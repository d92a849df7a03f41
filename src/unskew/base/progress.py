"""Progress on long work: a bar on a terminal, a line a minute elsewhere, and a log for machines."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO

from unskew.base import processes
from unskew.base.errors import ParameterError
from unskew.base.plain_text import plain

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

MOST_COUNTED = 100_000
"""Steps up to which their number tells a person something."""

QUIET_SECONDS = 20.0
"""Without a terminal, work that is done sooner says nothing."""

SECONDS_BETWEEN_LINES = 60.0
"""Without a terminal, the least time from one line to the next."""

SECONDS_BETWEEN_RECORDS = 10.0
"""In a log for machines, the least time from one line to the next within a step."""

Event = Literal["start", "step", "within", "say", "end"]
"""What happened to a task: it began, steps of it are done, it has a new subject, or it ended."""


class Tracker:
    """One task: what it has done, how fast, and how long it may still take. Views show it at every event."""

    def __init__(self, description: str, total: int, views: Sequence[View] = ()) -> None:
        self.description, self.about = description, ""
        self.total, self.done, self.part, self.rows = total, 0, 0.0, 0
        self.figures: dict[str, float] = {}
        self._before, self._earliest, self._ended = 0, total, False
        self._start = time.monotonic()
        self._views = views
        self._show("start")

    def advance(self, steps: int = 1) -> None:
        """Note that so many steps are done."""
        self.done += steps
        self.part = 0.0
        self._show("step" if steps else "within")

    def go_on(self, steps: int) -> None:
        """Note that so many steps were done before it began."""
        self.done = self._before = steps

    def may_end(self, steps: int) -> None:
        """Note that it may end early: after so many steps more at the earliest."""
        self._earliest = min(self.done + steps, self.total)

    def say(self, what: str) -> None:
        """Name what it is about at the moment."""
        self.about = what
        self._show("say")

    def observe(self, part: float, rows: int, figures: Mapping[str, float]) -> None:
        """Note what is known within a step: the share of it that is done, further rows, and figures."""
        self.part = part
        self.rows += rows
        self.figures |= figures
        self._show("within")

    def finish(self) -> None:
        """End the task, perhaps early."""
        self._ended = True
        self._show("end")

    def _show(self, event: Event) -> None:
        for view in self._views:
            view(self, event)

    @property
    def share(self) -> float:
        """The share of the whole task that is done."""
        return min((self.done + self.part) / self.total, 1.0) if self.total else 1.0

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._start

    @property
    def rows_per_second(self) -> float | None:
        """Rows a second since it began; None where it counts no rows."""
        return self.rows / self.seconds if self.rows and self.seconds > 0 else None

    @property
    def ends_early(self) -> bool:
        """Whether it may end before all steps are done."""
        return self._earliest < self.total

    @property
    def seconds_left(self) -> float | None:
        """Until all steps are done, or at the least where it may end early; None before anything is done."""
        here = self.done + self.part - self._before
        if self._ended:
            return 0.0
        left = max(self._earliest - self.done - self.part, 0.0)
        return self.seconds * left / here if here > 0 else None

    @property
    def left(self) -> str:
        """The same in words; empty where it is not known or nothing is left."""
        seconds = self.seconds_left
        if seconds is None or self.share == 1:
            return ""
        return f"{'at least ' if self.ends_early else ''}{duration_in_words(seconds)} left"

    @property
    def speed(self) -> list[str]:
        """Rows a second and the loss, in words."""
        rows, loss = self.rows_per_second, self.figures.get("loss")
        words = [] if rows is None else [f"{rows:,.0f} rows/s"]
        return words if loss is None else [*words, f"loss {loss:.4g}"]


View = Callable[[Tracker, Event], None]
"""Shows tasks in one place."""


class Progress(Protocol):
    """Makes a tracker for each task."""

    def task(self, description: str, total: int) -> Tracker:
        """Return the tracker of a new task of ``total`` steps."""
        ...


class Views:
    """Shows every task in some places; in none it shows nothing."""

    def __init__(self, *views: View) -> None:
        self._views = views

    def task(self, description: str, total: int) -> Tracker:
        """Return the tracker of a new task of ``total`` steps."""
        return Tracker(description, total, self._views)


SILENT = Views()
"""Shows nothing."""


def memory_mb() -> float | None:
    """Return the resident memory of this process; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def duration_in_words(seconds: float) -> str:
    """Return seconds as a person says them.

    Examples
    --------
    >>> duration_in_words(41.3), duration_in_words(3000), duration_in_words(9000)
    ('41 s', '50 min', '2 h 30 min')
    """
    minutes = round(seconds / 60)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


class Lines(Views):
    """A line on standard error now and then, for logs of jobs that no terminal shows.

    Parameters
    ----------
    quiet, between
        Seconds before the first line, and from one line to the next.
    """

    def __init__(self, quiet: float = QUIET_SECONDS, between: float = SECONDS_BETWEEN_LINES) -> None:
        super().__init__(self.show)
        self._next, self._between = time.monotonic() + quiet, between

    def show(self, tracker: Tracker, event: Event) -> None:
        """Write a line if it is time."""
        if event not in ("step", "within") or time.monotonic() < self._next or sys.stderr is None:
            return
        self._next = time.monotonic() + self._between
        most = "at most " if tracker.ends_early else ""
        count = f"{tracker.done} of {most}{tracker.total}" if tracker.total <= MOST_COUNTED else ""
        # Of a task that may end early nobody knows the share that is done.
        share = "" if count and most else f"{100 * tracker.share:.0f} %"
        about, memory = f" · {tracker.about}" if tracker.about else "", memory_mb()
        size = "" if memory is None else f"{memory / 1000:.1f} GB"
        time_taken = f"after {duration_in_words(tracker.seconds)}"
        words = filter(None, (count, share, time_taken, tracker.left, *tracker.speed, size))
        line = f"{plain(tracker.description + about, 80)}: {', '.join(words)}"
        print(line, file=sys.stderr, flush=True)


class JsonLog:
    """Appends one JSON object a line to a file: what began, how far it is, what ended.

    ``time`` (UTC), ``phase``, ``event`` (start, progress, end), ``done`` of ``total`` steps, ``share``,
    ``seconds``, ``seconds_left`` (at the least, where ``ends_early`` is true: until held-out loss may have
    stopped to fall; 0 at the end), ``rows``, ``rows_per_second``, ``memory_mb``, and what the task tells of
    itself: ``about``, ``epoch``, ``step``, ``loss``, ``validation``, …. What JSON cannot hold is null.
    """

    def __init__(self, file: TextIO) -> None:
        self._file, self._due = file, 0.0

    def show(self, tracker: Tracker, event: Event) -> None:
        """Write a record."""
        if event == "say" or (event == "within" and not (tracker.part and time.monotonic() >= self._due)):
            return
        self._due = time.monotonic() + SECONDS_BETWEEN_RECORDS
        names = ("done", "total", "ends_early", "rows", "share", "seconds", "seconds_left", "rows_per_second")
        numbers = {name: getattr(tracker, name) for name in names} | {"memory_mb": memory_mb()}
        record = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "phase": tracker.description,
            **({"about": tracker.about} if tracker.about else {}),
            "event": event if event in ("start", "end") else "progress",
            **{name: _plainly(value) for name, value in {**numbers, **tracker.figures}.items()},
        }
        self._file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _plainly(value: float | None) -> float | None:
    """Return a number of six digits, or None where JSON cannot hold it."""
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _figures(send: Callable[[str, float, int], object]) -> View:
    """Return a view that sends the figures of each step to TensorBoard or MLflow."""

    def show(tracker: Tracker, event: Event) -> None:
        rows = tracker.rows_per_second
        figures = tracker.figures | ({} if rows is None else {"rows_per_second": rows})
        for name, value in figures.items() if event == "step" else ():
            send(f"{tracker.description}/{name}", value, tracker.done)

    return show


@contextmanager
def progress_bars(
    show: bool | None = None,
    *,
    log_json: str | Path | None = None,
    tensorboard: str | Path | None = None,
    mlflow: bool = False,
) -> Iterator[Progress]:
    """Bars on standard error while inside, where it is a terminal; elsewhere a line a minute.

    Parameters
    ----------
    show
        True draws bars in any case, False shows nothing.
    log_json
        A file to which lines of JSON are appended: what began, how far it is and what ended.
    tensorboard
        A folder for TensorBoard, if it is installed: losses and rows a second by step.
    mlflow
        The same as metrics of MLflow's active run (or a new one), if it is installed.
    """
    with ExitStack() as stack:
        views: list[View] = []
        if processes.is_writer():
            if show or (show is None and sys.stderr is not None and sys.stderr.isatty()):
                views.append(_bars(stack.enter_context(_rich())))
            elif show is None:
                views.append(Lines().show)
            if log_json is not None:
                file = stack.enter_context(open(log_json, "a", encoding="utf-8", buffering=1))
                views.append(JsonLog(file).show)
            if tensorboard is not None:
                module = _installed("torch.utils.tensorboard", "TensorBoard", "tensorboard")
                views.append(_figures(stack.enter_context(module.SummaryWriter(str(tensorboard))).add_scalar))
            if mlflow:
                tracking = _installed("mlflow", "MLflow", "mlflow")
                if tracking.active_run() is None:
                    stack.enter_context(tracking.start_run())
                views.append(_figures(lambda name, value, step: tracking.log_metric(name, value, step=step)))
        yield Views(*views) if views else SILENT


def _installed(module: str, name: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        remedy = f"pip install {package}, or leave --{package} out"
        raise ParameterError(f"{name} is not installed", remedy=remedy) from None


def _bars(bars: RichProgress) -> View:
    """Return a view that draws each task as one of several bars."""
    tasks: dict[Tracker, TaskID] = {}

    def show(tracker: Tracker, event: Event) -> None:
        if event == "start":
            tasks[tracker] = bars.add_task(tracker.description, total=tracker.total, early="")
        elif event == "end":
            bars.update(tasks[tracker], description=tracker.description, completed=tracker.total)
        else:
            about = tracker.about if event == "say" else ", ".join(tracker.speed)
            text = {"description": plain(f"{tracker.description} · {about}", 80)} if about else {}
            early = tracker.left if tracker.ends_early else ""
            bars.update(tasks[tracker], completed=tracker.done + tracker.part, early=early, **text)  # type: ignore[arg-type]

    return show


def _rich() -> RichProgress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Done(MofNCompleteColumn):
        """Steps that a person can count, else a share."""

        def render(self, task: Task) -> Text:
            if task.total is None or task.total <= MOST_COUNTED:
                return super().render(task)
            return Text(f"{task.percentage:.0f} %", style="progress.download")

    class Left(TimeRemainingColumn):
        """Until all steps are done; of what may end early, at the least."""

        def render(self, task: Task) -> Text:
            early = task.fields.get("early")
            return Text(early, style="progress.remaining") if early else super().render(task)

    text = TextColumn("{task.description}", markup=False)
    return Progress(SpinnerColumn(), text, BarColumn(), Done(), Left(), console=Console(stderr=True))
