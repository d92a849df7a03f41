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

MOST_COUNTED = 100_000
"""Steps up to which their number tells a person something."""

QUIET_SECONDS, SECONDS_BETWEEN_LINES = 20.0, 60.0
"""Without a terminal: work that is done sooner says nothing, and the least time from one line to the next."""

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
    def numbers(self) -> dict[str, Any]:
        """How far it is: the share that is done, seconds, those that are left at the least, rows a second."""
        seconds, done = time.monotonic() - self._start, self.done + self.part
        left = max(self._earliest - done, 0.0)
        here = done - self._before
        return {
            "done": self.done,
            "total": self.total,
            "ends_early": self._earliest < self.total,
            "rows": self.rows,
            "share": min(done / self.total, 1.0) if self.total else 1.0,
            "seconds": seconds,
            "seconds_left": 0.0 if self._ended else seconds * left / here if here > 0 else None,
            "rows_per_second": self.rows / seconds if self.rows and seconds > 0 else None,
        }

    def in_words(self) -> tuple[str, str, list[str]]:
        """Return how far it is, how long it may still take, and how fast it goes."""
        numbers = self.numbers
        share, early = numbers["share"], numbers["ends_early"]
        steps = f"{self.done} of {'at most ' if early else ''}{self.total}"
        # Of a task that may end early nobody knows the share that is done.
        words = [steps] if self.total <= MOST_COUNTED else []
        words += [] if words and early else [f"{100 * share:.0f} %"]
        seconds, rows, loss = numbers["seconds_left"], numbers["rows_per_second"], self.figures.get("loss")
        left = "" if seconds is None or share == 1 else f"{duration_in_words(seconds)} left"
        speed = [] if rows is None else [f"{rows:,.0f} rows/s"]
        speed += [] if loss is None else [f"loss {loss:.4g}"]
        return ", ".join(words), f"at least {left}" if left and early else left, speed


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


def lines(quiet: float = QUIET_SECONDS, between: float = SECONDS_BETWEEN_LINES) -> View:
    """Return a view that writes a line on standard error now and then, for jobs that no terminal shows.

    Parameters
    ----------
    quiet, between
        Seconds before the first line, and from one line to the next.
    """
    due = time.monotonic() + quiet

    def show(tracker: Tracker, event: Event) -> None:
        nonlocal due
        if event not in ("step", "within") or time.monotonic() < due or sys.stderr is None:
            return
        due = time.monotonic() + between
        far, left, speed = tracker.in_words()
        memory = memory_mb()
        words = [far, f"after {duration_in_words(tracker.numbers['seconds'])}", left, *speed]
        words += [] if memory is None else [f"{memory / 1000:.1f} GB"]
        about = f" · {tracker.about}" if tracker.about else ""
        shown = f"{plain(tracker.description + about, 80)}: {', '.join(filter(None, words))}"
        print(shown, file=sys.stderr, flush=True)

    return show


def json_log(file: TextIO) -> View:
    """Return a view that appends one JSON object a line: what began, how far it is, what ended.

    ``time`` (UTC), ``phase``, ``event`` (start, progress, end), ``done`` of ``total`` steps, ``share``,
    ``seconds``, ``seconds_left`` (at the least, where ``ends_early`` is true: until held-out loss may have
    stopped to fall; 0 at the end), ``rows``, ``rows_per_second``, ``memory_mb``, and what the task tells of
    itself: ``about``, ``epoch``, ``step``, ``loss``, ``validation``, …. What JSON cannot hold is null.
    """
    due = 0.0

    def show(tracker: Tracker, event: Event) -> None:
        nonlocal due
        if event == "say" or (event == "within" and not (tracker.part and time.monotonic() >= due)):
            return
        due = time.monotonic() + SECONDS_BETWEEN_RECORDS
        record = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "phase": tracker.description,
            **({"about": tracker.about} if tracker.about else {}),
            "event": event if event in ("start", "end") else "progress",
            **tracker.numbers,
            "memory_mb": memory_mb(),
            **tracker.figures,
        }
        finite = {name: _plainly(value) for name, value in record.items()}
        file.write(json.dumps(finite, ensure_ascii=False) + "\n")

    return show


def _plainly(value: Any) -> Any:
    """Return a number of six digits, or None where JSON cannot hold it; other values as they are."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _figures(send: Callable[[str, float, int], object]) -> View:
    """Return a view that sends the figures of each step to TensorBoard or MLflow."""

    def show(tracker: Tracker, event: Event) -> None:
        rows = tracker.numbers["rows_per_second"]
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
    """Show bars on standard error while inside, where it is a terminal; elsewhere a line a minute.

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
                views.append(_bars(stack))
            elif show is None:
                views.append(lines())
            if log_json is not None:
                views.append(
                    json_log(stack.enter_context(open(log_json, "a", encoding="utf-8", buffering=1)))
                )
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


def _bars(stack: ExitStack) -> View:
    """Return a view that draws each task as one of several bars."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
    status = TextColumn("{task.fields[status]}", markup=False)
    bars: RichProgress = stack.enter_context(Progress(*columns, status, console=Console(stderr=True)))
    tasks: dict[Tracker, Any] = {}

    def show(tracker: Tracker, event: Event) -> None:
        if event == "start":
            tasks[tracker] = bars.add_task(tracker.description, total=tracker.total, status="")
            return
        far, left, speed = tracker.in_words()
        about = ", ".join(filter(None, (tracker.about, *speed)))
        text = f"{tracker.description} · {about}" if about and event != "end" else tracker.description
        done = tracker.total if event == "end" else tracker.done + tracker.part
        status = "done" if event == "end" else ", ".join(filter(None, (far, left)))
        bars.update(tasks[tracker], description=plain(text, 80), completed=done, status=status)

    return show
