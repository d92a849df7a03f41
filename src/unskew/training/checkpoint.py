"""Checkpoints: a journal of a job's trainings, from which the same job goes on after it was killed.

While a :class:`Checkpoint` is in effect, every call of :func:`unskew.training.train` is recorded. A call that
is done has its weights and its history in the folder, and is read instead of run; the one that was running
goes on from its last state. All else of a job is a function of its inputs and is done again.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from unskew import __version__
from unskew.base import processes
from unskew.base.errors import CheckpointWarning, RunFolderError
from unskew.base.estimator import require
from unskew.base.files import LEFT_BY_SYSTEMS, RUN, Lock
from unskew.base.tensors import Tensor, torch
from unskew.data.splitting import parse_duration
from unskew.training.state import PARTIAL, DamagedStateError, SavedState, read_state, write_state

FORMAT = 3
"""Raised when a folder of an earlier version can no longer be read."""

STATE = ".safetensors"
JOB = f"job{STATE}"
"""The state that says whose checkpoint a folder is."""

EVERY = "5m"
ANEW = "remove the folder, or give another, to start anew"
LONGEST = 60
"""Characters up to which a value that differs is shown; a digest, say, tells a person nothing."""

Status = Literal["running", "saving", "done"]

_current: ContextVar[Checkpoint | None] = ContextVar("checkpoint", default=None)


def checkpoint_in_effect() -> Checkpoint | None:
    """Return the checkpoint in effect."""
    return _current.get()


class JobDoneError(RunFolderError):
    """The job of a checkpoint is done, and its run is in place."""


class Checkpoint:
    """A folder from which trainings go on after a kill, as if there had been none.

    In effect inside ``with``, where every training is recorded: networks, optimisers, best weights, history,
    what the method keeps between steps, random state, and the place in the epoch. Run the same lines again,
    and trainings that were done are read from the folder, the one that was running goes on from its last
    state. On a CPU the result is the same to the last bit. At the end of the block the states are removed.

    Parameters
    ----------
    folder
        A folder of its own; it is made if it is not there. Only one process can use it at once.
    every
        The least time between two states of a training: ``"5m"``, ``"90s"``, or a number of seconds. A state
        takes as long as writing three to four times the weights.

    Attributes
    ----------
    goes_on
        Whether there was a job to go on with when it was opened.

    Examples
    --------
    >>> import unskew as us
    >>> log = us.load("synthetic", n_users=40, n_items=30, density=0.2).train
    >>> with us.Checkpoint("night", every="5m"):                       # doctest: +SKIP
    ...     model = us.IPS().fit(log, propensity=us.Propensity().fit(log))
    ...     model.save("run")
    """

    def __init__(self, folder: str | Path, every: str | float = EVERY) -> None:
        self.folder = Path(folder)
        if processes.world() > 1:
            self.folder /= f"rank-{processes.rank()}"
        self.seconds = (
            parse_duration(every) / np.timedelta64(1, "s") if isinstance(every, str) else float(every)
        )
        require(self.seconds >= 0, f"every must not be negative, not {every}", "give 5m, for example")
        self.goes_on = False
        self._lock: Lock | None = None
        self._about: dict[str, Any] = {}
        self._calls = 0
        self._saved_at = 0.0
        self._tokens: list[Token[Checkpoint | None]] = []

    # The folder.

    def open(self, about: Mapping[str, Any] | None = None) -> None:
        """Take the folder for this process, and begin the job or go on with it.

        Parameters
        ----------
        about
            What the job is, in plain values: a checkpoint of another one is refused.

        Raises
        ------
        JobDoneError
            The job is done, and its run is where it was put.
        RunFolderError
            Another process uses the folder, or it is of another job, or of something else.
        """
        self._about = {
            "unskew": __version__,
            "torch": torch.__version__,
            "processes": processes.world(),
            **json.loads(json.dumps(about or {}, default=repr)),
        }
        # Of several processes each has states of its own, and all do what the first one finds.
        out = processes.exchange(lambda: (self._begin(), {}))[0][0]
        if out is not None:
            self._end(out)
            self.close()
            raise JobDoneError(
                f"this job is done: its run is {out}",
                where=str(self.folder),
                remedy=f"use the run, or {ANEW}",
            )

    def _begin(self) -> str | None:
        """Begin a job or go on with it; the place of its run if it is done."""
        self._take()
        try:
            self._clean()
            self._calls, self._saved_at, self.goes_on = 0, time.monotonic(), False
            job = self._job()
            differs = None if job is None else difference(job["about"], self._about)
            if job is not None and differs is None and job["out"] and RUN.marks(Path(job["out"])):
                return str(job["out"])
            if job is None or job["status"] == "done":
                self._remove_states()
                self._write_job("running")
            elif differs is not None:
                raise self.refused(
                    f"is the checkpoint of another job: {differs}", f"repeat the job as it was, or {ANEW}"
                )
            else:
                self.goes_on = True
        except BaseException:
            self.close()
            raise
        return None

    def close(self) -> None:
        """Leave the folder to others, as it is."""
        if self._lock is not None:
            self._lock.close()
        self._lock = None

    @contextmanager
    def saving(self, out: Path) -> Iterator[None]:
        """Put the run folder of the job in place; then the job is done, and its states are removed.

        What stays is a line that says so, by which the same job knows that there is nothing left to do: it
        may be killed after its run is in place and before it could say so.
        """
        if self._lock is None:
            yield
            return
        self._write_job("saving", out)
        yield
        self._end(str(out))
        self.close()

    @property
    def so_far(self) -> str:
        """Return how far the job had got, in words: trainings that are done, and the epoch of the one that
        ran."""
        states = self.files("training-")
        done = {path.stem.rpartition("-")[0] for path in states if path.stem.endswith("-done")}
        running = [path for path in states if path.stem.rpartition("-")[0] not in done]
        words = f"{len(done)} training{'' if len(done) == 1 else 's'} done"
        with suppress(DamagedStateError, LookupError):
            facts = read_state(running[-1]).facts
            return f"{words}, '{facts['about']['trains']}' at epoch {facts['epoch'] + 1}"
        return words

    def files(self, start: str = "") -> list[Path]:
        """Return the files of states whose names begin so, in order."""
        return sorted(self.folder.glob(f"{start}*{STATE}"))

    def wrote(self, out: Path) -> bool:
        """Return whether a run folder may be the one that the job of this checkpoint left.

        Whether it is the same job with the same data is found out when it is opened.
        """

        def recorded() -> bool:
            with suppress(DamagedStateError):
                job = read_state(self.folder / JOB).facts
                return job.get("status") in ("saving", "done") and job.get("out") == os.path.abspath(out)
            return False

        return bool(processes.exchange(lambda: (recorded(), {}))[0][0])

    def _take(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            there = {path.name for path in self.folder.iterdir()} - LEFT_BY_SYSTEMS
        except OSError as error:
            raise self._unwritable(error) from error
        whole = [name for name in there if not name.endswith(PARTIAL)]
        if whole and (JOB not in whole or any(not name.endswith(STATE) for name in whole)):
            raise self.refused("is a folder with other things in it", "choose another folder")
        lock = Lock(self.folder)
        if lock.take() is False:
            problem = "another process is using this checkpoint"
            raise self.refused(problem, "wait for it, or give another folder")
        self._lock = lock

    def _job(self) -> Mapping[str, Any] | None:
        """Return what the folder says of its job; None where it is new."""
        if not (self.folder / JOB).exists():
            return None
        try:
            job = read_state(self.folder / JOB).facts
        except DamagedStateError as error:
            raise self.refused(f"is damaged: {error}", ANEW) from error
        if job.get("format") != FORMAT:
            problem = f"was written in format {job.get('format')}, and this version reads {FORMAT}"
            raise self.refused(problem, ANEW)
        return job

    def _write_job(self, status: Status, out: Path | None = None) -> None:
        facts = {"format": FORMAT, "about": self._about, "status": status}
        where = None if out is None else os.path.abspath(out)
        try:
            write_state(self.folder / JOB, {**facts, "out": where}, {})
        except OSError as error:
            if status == "running":
                raise self._unwritable(error) from error
            # Its training is over: no folder of states is worth its run.
            self.warn(f"cannot be written: {error.strerror}: that this job is {status} is not kept there")

    def refused(self, problem: str, remedy: str) -> RunFolderError:
        """Return the error for a folder that this job cannot use."""
        return RunFolderError(problem, where=str(self.folder), remedy=remedy)

    def _unwritable(self, error: OSError) -> RunFolderError:
        return self.refused(f"cannot be written: {error.strerror}", "choose another folder")

    def _end(self, out: str | None) -> None:
        # The states that are no longer needed may be what fills the disk.
        self._remove_states()
        self._write_job("done", None if out is None else Path(out))

    def _remove_states(self) -> None:
        for path in self.files():
            if path.name != JOB:
                path.unlink(missing_ok=True)
        self._clean()

    def _clean(self) -> None:
        """Remove what a process that was killed left half done."""
        for path in self.folder.glob(f".*{PARTIAL}"):
            path.unlink(missing_ok=True)

    # In effect.

    def __enter__(self) -> Self:
        if self._lock is None:
            self.open()
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _current.reset(self._tokens.pop())
        if kind is None:
            self._end(None)
        self.close()

    @contextmanager
    def in_effect(self) -> Iterator[None]:
        """Record trainings inside, and leave the folder open and its states where they are."""
        token = _current.set(self)
        try:
            yield
        except BaseException:
            self.close()
            raise
        finally:
            _current.reset(token)

    # The journal.

    def call(self, about: Mapping[str, Any]) -> Call:
        """Return the next training of the job.

        Parameters
        ----------
        about
            What is trained, in plain values; another training in its place is refused.
        """
        self._calls += 1
        return Call(self, self._calls, json.loads(json.dumps(about, default=repr)))

    def take_back(self, call: Call) -> None:
        """Take back the last training, which came to nothing: another takes its place."""
        call.drop()
        self._calls -= 1

    @property
    def is_due(self) -> bool:
        """Return whether it is time for another state."""
        return time.monotonic() - self._saved_at >= self.seconds

    def write(self, name: str, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bool:
        """Write a state of a training; False, with a warning, where it cannot be written."""
        try:
            write_state(self.folder / name, facts, tensors)
        except OSError as error:
            self._clean()
            # A full disk is no reason to lose hours of training.
            self.warn(f"no checkpoint can be written ({error.strerror}); training goes on without")
            return False
        finally:
            self._saved_at = time.monotonic()
        return True

    def warn(self, what: str) -> None:
        """Warn with a line about the folder."""
        warnings.warn(f"{self.folder}: {what}", CheckpointWarning, stacklevel=2)


class Call:
    """One training in the journal of a checkpoint."""

    def __init__(self, checkpoint: Checkpoint, number: int, about: Mapping[str, Any]) -> None:
        self._checkpoint = checkpoint
        self._about = about
        self._start = f"training-{number:04d}-"
        self._done = f"{self._start}done{STATE}"
        self._saves = 0

    @property
    def is_due(self) -> bool:
        """Return whether it is time for a state."""
        return self._checkpoint.is_due

    def done(self) -> SavedState | None:
        """Return what it left, if it is done."""
        path = self._checkpoint.folder / self._done
        return self._read(path) if path.exists() else None

    def latest(self) -> SavedState | None:
        """Return its last state that is whole, if it was running."""
        running = [path for path in self._states() if path.name != self._done]
        if running:
            self._saves = int(running[-1].stem.rpartition("-")[2])
        states = (self._read(path) for path in reversed(running))
        return next((state for state in states if state is not None), None)

    def save(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Keep a state, and the one before it in case that this one is damaged."""
        self._saves += 1
        if self._write(f"{self._start}{self._saves:06d}{STATE}", facts, tensors):
            for path in self._states()[:-2]:
                path.unlink(missing_ok=True)

    def finish(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Keep what the training left; its states on the way are no longer needed."""
        if self._write(self._done, facts, tensors):
            self.drop(keep=self._done)

    def drop(self, keep: str | None = None) -> None:
        """Remove its states."""
        for path in self._states():
            if path.name != keep:
                path.unlink(missing_ok=True)

    def _states(self) -> list[Path]:
        return self._checkpoint.files(self._start)

    def _write(self, name: str, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bool:
        return self._checkpoint.write(name, {"about": self._about, **facts}, tensors)

    def _read(self, path: Path) -> SavedState | None:
        try:
            state = read_state(path)
        except DamagedStateError as error:
            self._checkpoint.warn(f"{error}: it is left out, and training goes on from before it")
            return None
        differs = difference(state.facts["about"], self._about)
        if differs is not None:
            problem = f"is the checkpoint of another training: {differs}"
            raise self._checkpoint.refused(problem, f"repeat the job as it was, or {ANEW}")
        return state


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return the first thing in which two tables of plain values differ, in words; None if they do not.

    Examples
    --------
    >>> difference({"method": "ips", "seeds": 10}, {"method": "ips", "seeds": 5})
    'seeds was 10 and is 5'
    """
    old, new = dict(flat(before)), dict(flat(now))
    for name in dict.fromkeys((*old, *new)):
        was, is_now = (repr(each.get(name)) for each in (old, new))
        if was != is_now:
            short = max(len(was), len(is_now)) <= LONGEST
            return f"{name} was {was} and is {is_now}" if short else f"{name} differs"
    return None


def flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and values of a table; those of a table inside it with its name in front:
    ``outer.inner``."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
