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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO

from unskew.base import processes
from unskew.base.errors import ParameterError
from unskew.base.plain_text import plain

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

MOST_COUNTED = 100_000
"""Steps up to which their number tells a person something."""

QUIET_SECONDS = 20.0
"""Without a terminal, work that is done sooner says nothing."""

SECONDS_BETWEEN_LINES = 60.0
"""Without a terminal, the least time from one line to the next."""

SECONDS_BETWEEN_RECORDS = 10.0
"""In a log for machines, the least time from one line to the next within a step."""


Event = Literal["start", "step", "within", "say", "end"]
"""Something that follows tasks: one began, steps of it are done, it has a new subject, or it ended."""


class Tracker:
    """One task: what it has done, how fast, how long it may still take, and the places that show it."""

    def __init__(self, description: str, total: int, places: Sequence[Place] = ()) -> None:
        self.description, self.about = description, ""
        self.total, self.done, self.part, self.rows = total, 0, 0.0, 0
        self.figures: dict[str, float] = {}
        self._before, self._earliest, self._ended = 0, total, False
        self._start = time.monotonic()
        self._views = [place(self) for place in places]
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
        """Note what is known within a step.

        Parameters
        ----------
        part
            The share of the next step that is done.
        rows
            Rows that were worked on since the last time.
        figures
            By name: ``loss``, ``epoch``, …
        """
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
            view(event)

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
    def left(self) -> str | None:
        """The same in words."""
        seconds = self.seconds_left
        if seconds is None or self.share == 1:
            return None
        return f"{'at least ' if self.ends_early else ''}{duration_in_words(seconds)} left"

    def shown(self) -> list[str]:
        """Return rows a second and the loss, in words."""
        rows, loss = self.rows_per_second, self.figures.get("loss")
        return [
            *([] if rows is None else [f"{rows:,.0f} rows/s"]),
            *([] if loss is None else [f"loss {loss:.4g}"]),
        ]


class Progress(Protocol):
    """Makes a tracker for each task."""

    def task(self, description: str, total: int) -> Tracker:
        """Return the tracker of a new task of ``total`` steps."""
        ...


Place = Callable[[Tracker], Callable[[Event], None]]
"""Where tasks are shown: gives each task what shows it there."""


class Places:
    """Shows every task in some places; in none it shows nothing."""

    def __init__(self, *places: Place) -> None:
        self._places = places

    def task(self, description: str, total: int) -> Tracker:
        """Return the tracker of a new task of ``total`` steps."""
        return Tracker(description, total, self._places)


SILENT = Places()
"""Shows nothing."""


def memory_mb() -> float | None:
    """Resident memory of this process; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def duration_in_words(seconds: float) -> str:
    """Seconds as a person says them.

    Examples
    --------
    >>> duration_in_words(41.3), duration_in_words(3000), duration_in_words(9000)
    ('41 s', '50 min', '2 h 30 min')
    """
    minutes = round(seconds / 60)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _bar(bars: Bars, tracker: Tracker) -> Callable[[Event], None]:
    """Return what shows a task as one of several bars."""
    task = bars.add_task(tracker.description, total=tracker.total, early=None)

    def show(event: Event) -> None:
        if event == "start":
            return
        if event == "end":
            bars.update(task, description=tracker.description, completed=tracker.total)
            return
        about = tracker.about
        if event != "say":
            early = tracker.left if tracker.ends_early else None
            bars.update(task, completed=tracker.done + tracker.part, early=early)
            about = ", ".join(tracker.shown())
        if about:
            bars.update(task, description=plain(f"{tracker.description} · {about}", 80))

    return show


class Lines(Places):
    """A line on standard error now and then, for logs of jobs that no terminal shows.

    Parameters
    ----------
    quiet, between
        Seconds before the first line, and from one line to the next.
    """

    def __init__(self, quiet: float = QUIET_SECONDS, between: float = SECONDS_BETWEEN_LINES) -> None:
        super().__init__(self.place)
        self._next, self._between = time.monotonic() + quiet, between

    def place(self, tracker: Tracker) -> Callable[[Event], None]:
        """Return what shows a task."""
        return partial(self._show, tracker)

    def _show(self, tracker: Tracker, event: Event) -> None:
        if event not in ("step", "within") or time.monotonic() < self._next or sys.stderr is None:
            return
        most = "at most " if tracker.ends_early else ""
        count = f"{tracker.done} of {most}{tracker.total}" if tracker.total <= MOST_COUNTED else ""
        # Of a task that may end early nobody knows the share that is done.
        share = "" if count and most else f"{100 * tracker.share:.0f} %"
        about = f" · {tracker.about}" if tracker.about else ""
        left, memory = tracker.left, memory_mb()
        shown = [
            *filter(None, (count, share)),
            f"after {duration_in_words(tracker.seconds)}",
            *([] if left is None else [left]),
            *tracker.shown(),
            *([] if memory is None else [f"{memory / 1000:.1f} GB"]),
        ]
        self._next = time.monotonic() + self._between
        line = f"{plain(tracker.description + about, 80)}: {', '.join(shown)}"
        print(line, file=sys.stderr, flush=True)


def _json_log(file: TextIO, tracker: Tracker) -> Callable[[Event], None]:
    """Return what appends one JSON object a line to a file: what began, how far it is, what ended.

    ``time`` (UTC), ``phase``, ``event`` (start, progress, end), ``done`` of ``total`` steps, ``share``,
    ``seconds``, ``seconds_left`` (at the least, where ``ends_early`` is true: until held-out loss may have
    stopped to fall; 0 at the end), ``rows``, ``rows_per_second``, ``memory_mb``, and what the task tells of
    itself: ``about``, ``epoch``, ``step``, ``loss``, ``validation``, …. What JSON cannot hold is null.
    """
    due = 0.0

    def show(event: Event) -> None:
        nonlocal due
        if event == "say" or (event == "within" and not (tracker.part and time.monotonic() >= due)):
            return
        due = time.monotonic() + SECONDS_BETWEEN_RECORDS
        names = ("share", "seconds", "seconds_left", "rows_per_second")
        shown = {name: getattr(tracker, name) for name in names} | {"memory_mb": memory_mb()}
        record = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "phase": tracker.description,
            **({"about": tracker.about} if tracker.about else {}),
            "event": event if event in ("start", "end") else "progress",
            **{name: getattr(tracker, name) for name in ("done", "total", "ends_early", "rows")},
            **{name: _plainly(value) for name, value in {**shown, **tracker.figures}.items()},
        }
        file.write(json.dumps(record, ensure_ascii=False) + "\n")

    return show


def _plainly(value: float | None) -> float | None:
    """Return a number of six digits, or None where JSON cannot hold it."""
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _figures(send: Callable[[str, float, int], object], tracker: Tracker) -> Callable[[Event], None]:
    """Return what sends the figures of each step to TensorBoard or MLflow."""

    def show(event: Event) -> None:
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
        places: list[Place] = []
        if processes.is_writer():
            if show is not False:
                places.append(stack.enter_context(_shown(show)))
            if log_json is not None:
                file = stack.enter_context(open(log_json, "a", encoding="utf-8", buffering=1))
                places.append(partial(_json_log, file))
            if tensorboard is not None:
                places.append(partial(_figures, stack.enter_context(_tensorboard(Path(tensorboard)))))
            if mlflow:
                places.append(partial(_figures, stack.enter_context(_mlflow())))
        yield Places(*places) if places else SILENT


@contextmanager
def _tensorboard(folder: Path) -> Iterator[Any]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ParameterError(
            "TensorBoard is not installed", remedy="pip install tensorboard, or leave --tensorboard out"
        ) from None
    writer = SummaryWriter(str(folder))
    try:
        yield writer.add_scalar
    finally:
        writer.close()


@contextmanager
def _mlflow() -> Iterator[Any]:
    try:
        import mlflow
    except ImportError:
        raise ParameterError(
            "MLflow is not installed", remedy="pip install mlflow, or leave --mlflow out"
        ) from None
    with ExitStack() as stack:
        if mlflow.active_run() is None:
            stack.enter_context(mlflow.start_run())
        yield lambda name, value, step: mlflow.log_metric(name, value, step=step)


@contextmanager
def _shown(show: bool | None) -> Iterator[Place]:
    if show is None and not (sys.stderr is not None and sys.stderr.isatty()):
        yield Lines().place
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

    class Left(TimeRemainingColumn):
        """Until all steps are done; of what may end early, at the least."""

        def render(self, task: RichTask) -> Text:
            early = task.fields.get("early")
            return super().render(task) if early is None else Text(early, style="progress.remaining")

    text = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), text, BarColumn(), Done(), Left())
    with Rich(*columns, console=Console(stderr=True)) as bars:
        yield partial(_bar, bars)
