"""Progress on long work: a bar on a terminal, a line a minute elsewhere, and a log for machines."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from unskew import processes
from unskew.errors import ParameterError
from unskew.plain_text import plain

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


class Tracker(Protocol):
    """One task's progress."""

    def advance(self, steps: int = 1) -> None:
        """So many steps are done."""
        ...

    def go_on(self, steps: int) -> None:
        """So many steps were done before it began."""
        ...

    def may_end(self, steps: int) -> None:
        """It may end early: after so many steps more at the earliest."""
        ...

    def say(self, what: str) -> None:
        """What it is about at the moment."""
        ...

    def observe(self, part: float, rows: int, figures: Mapping[str, float]) -> None:
        """What is known within a step.

        Parameters
        ----------
        part
            The share of the next step that is done.
        rows
            Rows that were worked on since the last time.
        figures
            By name: ``loss``, ``epoch``, …
        """
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
    """Shows nothing of any task; a tracker begins as one, and shows what it can."""

    def task(self, description: str, total: int) -> Tracker:
        """A new task of ``total`` steps."""
        return self

    def advance(self, steps: int = 1) -> None:
        """So many steps are done."""

    def go_on(self, steps: int) -> None:
        """So many steps were done before it began."""

    def may_end(self, steps: int) -> None:
        """It may end early: after so many steps more at the earliest."""

    def say(self, what: str) -> None:
        """What it is about at the moment."""

    def observe(self, part: float, rows: int, figures: Mapping[str, float]) -> None:
        """What is known within a step."""

    def finish(self) -> None:
        """The task ended, perhaps early."""


SILENT = _Silent()
"""Shows nothing."""


class Watch:
    """What a task has done, how fast, and how long it may still take."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.part, self.rows = total, 0, 0.0, 0
        self.figures: dict[str, float] = {}
        self.ended = False
        self._before, self._earliest = 0, total
        self._start = time.monotonic()

    def advance(self, steps: int) -> None:
        """So many steps are done."""
        self.done += steps
        self.part = 0.0

    def go_on(self, steps: int) -> None:
        """So many steps were done before it began."""
        self.done = self._before = steps

    def may_end(self, steps: int) -> None:
        """It may end early: after so many steps more at the earliest."""
        self._earliest = min(self.done + steps, self.total)

    def observe(self, part: float, rows: int, figures: Mapping[str, float]) -> None:
        """What is known within a step."""
        self.part = part
        self.rows += rows
        self.figures |= figures

    @property
    def share(self) -> float:
        """Of the whole task that is done."""
        return min((self.done + self.part) / self.total, 1.0) if self.total else 1.0

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._start

    @property
    def rows_per_second(self) -> float | None:
        """Since it began; None where it counts no rows."""
        return self.rows / self.seconds if self.rows and self.seconds > 0 else None

    @property
    def ends_early(self) -> bool:
        """Whether it may end before all steps are done."""
        return self._earliest < self.total

    @property
    def seconds_left(self) -> float | None:
        """Until all steps are done, or at the least where it may end early; None before anything is done."""
        here = self.done + self.part - self._before
        if self.ended:
            return 0.0
        left = max(self._earliest - self.done - self.part, 0.0)
        return self.seconds * left / here if here > 0 else None

    @property
    def left(self) -> str | None:
        """The same in words."""
        seconds = self.seconds_left
        if seconds is None or self.share == 1:
            return None
        return (
            f"at least {duration_in_words(seconds)} left"
            if self.ends_early
            else f"{duration_in_words(seconds)} left"
        )

    def shown(self) -> list[str]:
        """Rows a second and the loss, in words."""
        rows, loss = self.rows_per_second, self.figures.get("loss")
        return [
            *([] if rows is None else [f"{rows:,.0f} rows/s"]),
            *([] if loss is None else [f"loss {loss:.4g}"]),
        ]


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


@dataclass(frozen=True)
class _Place:
    """Where tasks are shown, each by a tracker of its own."""

    tracker: Callable[[str, int], Tracker]

    def task(self, description: str, total: int) -> Tracker:
        """A new task of ``total`` steps."""
        return self.tracker(description, total)


class _WatchedTask(_Silent):
    """A tracker that keeps a watch."""

    def __init__(self, description: str, total: int) -> None:
        self._description, self._about, self._watch = description, "", Watch(total)

    def say(self, what: str) -> None:
        self._about = what

    def advance(self, steps: int = 1) -> None:
        self._watch.advance(steps)
        self._show()

    def go_on(self, steps: int) -> None:
        self._watch.go_on(steps)

    def may_end(self, steps: int) -> None:
        self._watch.may_end(steps)

    def observe(self, part: float, rows: int, figures: Mapping[str, float]) -> None:
        self._watch.observe(part, rows, figures)
        self._show()

    def _show(self) -> None:
        """Show what the watch says."""


class _Bar(_WatchedTask):
    def __init__(self, bars: Bars, description: str, total: int) -> None:
        super().__init__(description, total)
        self._bars, self._task = bars, bars.add_task(description, total=total, early=None)

    def say(self, what: str) -> None:
        self._bars.update(self._task, description=plain(f"{self._description} · {what}", 80))

    def _show(self) -> None:
        early = self._watch.left if self._watch.ends_early else None
        self._bars.update(self._task, completed=self._watch.done + self._watch.part, early=early)
        if shown := self._watch.shown():
            self.say(", ".join(shown))

    def finish(self) -> None:
        self._bars.update(self._task, description=self._description, completed=self._watch.total)


class Lines:
    """A line on standard error now and then, for logs of jobs that no terminal shows.

    Parameters
    ----------
    quiet, between
        Seconds before the first line, and from one line to the next.
    """

    def __init__(self, quiet: float = QUIET_SECONDS, between: float = SECONDS_BETWEEN_LINES) -> None:
        self._next, self._between = time.monotonic() + quiet, between

    def task(self, description: str, total: int) -> Tracker:
        """A new task of ``total`` steps."""
        return _Line(self, description, total)

    @property
    def is_due(self) -> bool:
        """Whether the last line was written long enough ago."""
        return time.monotonic() >= self._next and sys.stderr is not None

    def write(self, line: str) -> None:
        """Write a line."""
        self._next = time.monotonic() + self._between
        print(line, file=sys.stderr, flush=True)


class _Line(_WatchedTask):
    def __init__(self, lines: Lines, description: str, total: int) -> None:
        super().__init__(description, total)
        self._lines = lines

    def _show(self) -> None:
        if not self._lines.is_due:
            return
        watch = self._watch
        most = "at most " if watch.ends_early else ""
        count = f"{watch.done} of {most}{watch.total}" if watch.total <= MOST_COUNTED else ""
        # Of a task that may end early nobody knows the share that is done.
        share = "" if count and most else f"{100 * watch.share:.0f} %"
        about = f" · {self._about}" if self._about else ""
        left, memory = watch.left, memory_mb()
        shown = [
            *filter(None, (count, share)),
            f"after {duration_in_words(watch.seconds)}",
            *([] if left is None else [left]),
            *watch.shown(),
            *([] if memory is None else [f"{memory / 1000:.1f} GB"]),
        ]
        self._lines.write(f"{plain(self._description + about, 80)}: {', '.join(shown)}")


class JsonLog:
    """One JSON object a line, appended to a file: what began, how far it is, what ended.

    ``time`` (UTC), ``phase``, ``event`` (start, progress, end), ``done`` of ``total`` steps, ``share``,
    ``seconds``, ``seconds_left`` (at the least, where ``ends_early`` is true: until held-out loss may have
    stopped to fall; 0 at the end), ``rows``, ``rows_per_second``, ``memory_mb``, and what the task tells of
    itself: ``about``, ``epoch``, ``step``, ``loss``, ``validation``, ….
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115

    def task(self, description: str, total: int) -> Tracker:
        """A new task of ``total`` steps."""
        return _JsonTracker(self, description, total)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a line; what JSON cannot hold is null."""
        plainly = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in record.items()
        }
        self._file.write(json.dumps(plainly, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Nothing is written afterwards."""
        self._file.close()


class _JsonTracker(_WatchedTask):
    def __init__(self, log: JsonLog, description: str, total: int) -> None:
        super().__init__(description, total)
        self._log = log
        self._write("start")

    def advance(self, steps: int = 1) -> None:
        self._watch.advance(steps)
        if steps:
            self._write("progress")

    def _show(self) -> None:
        if self._watch.part and time.monotonic() >= self._next:
            self._write("progress")

    def finish(self) -> None:
        self._watch.ended = True
        self._write("end")

    def _write(self, event: str) -> None:
        self._next = time.monotonic() + SECONDS_BETWEEN_RECORDS
        watch = self._watch
        shown = {
            "share": watch.share,
            "seconds": watch.seconds,
            "seconds_left": watch.seconds_left,
            "rows_per_second": watch.rows_per_second,
            "memory_mb": memory_mb(),
            **watch.figures,
        }
        self._log.write(
            {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "phase": self._description,
                **({"about": self._about} if self._about else {}),
                "event": event,
                "done": watch.done,
                "total": watch.total,
                "ends_early": watch.ends_early,
                "rows": watch.rows,
                **{
                    name: value if value is None or isinstance(value, int) else float(f"{value:.6g}")
                    for name, value in shown.items()
                },
            }
        )


class _Figures(_WatchedTask):
    """Figures of each step to TensorBoard or MLflow."""

    def __init__(self, send: Callable[[str, float, int], object], description: str, total: int) -> None:
        super().__init__(description, total)
        self._send = send

    def advance(self, steps: int = 1) -> None:
        self._watch.advance(steps)
        rows = self._watch.rows_per_second
        figures = self._watch.figures | ({} if rows is None else {"rows_per_second": rows})
        for name, value in figures.items():
            self._send(f"{self._description}/{name}", value, self._watch.done)


class _Several:
    """A task in several places."""

    def __init__(self, places: Sequence[Progress], description: str, total: int) -> None:
        self._trackers = [each.task(description, total) for each in places]

    def advance(self, steps: int = 1) -> None:
        for each in self._trackers:
            each.advance(steps)

    def go_on(self, steps: int) -> None:
        for each in self._trackers:
            each.go_on(steps)

    def may_end(self, steps: int) -> None:
        for each in self._trackers:
            each.may_end(steps)

    def say(self, what: str) -> None:
        for each in self._trackers:
            each.say(what)

    def observe(self, part: float, rows: int, figures: Mapping[str, float]) -> None:
        for each in self._trackers:
            each.observe(part, rows, figures)

    def finish(self) -> None:
        for each in self._trackers:
            each.finish()


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
        A file to which a line of JSON is appended for each step (:class:`JsonLog`).
    tensorboard
        A folder for TensorBoard, if it is installed: losses and rows a second by step.
    mlflow
        The same as metrics of MLflow's active run (or a new one), if it is installed.
    """
    with ExitStack() as stack:
        places: list[Progress] = [stack.enter_context(_shown(show))]
        if processes.is_writer():
            if log_json is not None:
                log = JsonLog(Path(log_json))
                stack.callback(log.close)
                places.append(log)
            if tensorboard is not None:
                send = stack.enter_context(_tensorboard(Path(tensorboard)))
                places.append(_Place(partial(_Figures, send)))
            if mlflow:
                places.append(_Place(partial(_Figures, stack.enter_context(_mlflow()))))
        yield places[0] if len(places) == 1 else _Place(partial(_Several, places))


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
def _shown(show: bool | None) -> Iterator[Progress]:
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

    class Left(TimeRemainingColumn):
        """Until all steps are done; of what may end early, at the least."""

        def render(self, task: RichTask) -> Text:
            early = task.fields.get("early")
            return super().render(task) if early is None else Text(early, style="progress.remaining")

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        Done(),
        Left(),
    )
    with Rich(*columns, console=Console(stderr=True)) as bars:
        yield _Place(partial(_Bar, bars))
