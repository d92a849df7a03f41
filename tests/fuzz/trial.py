"""One generated case: it calls unskew in a folder of its own, and all that must always hold is checked.

Whatever the input, a command ends in time with a documented code; bad input gets one line with a remedy; it
says nothing that a terminal would obey, leaves nothing but what it was asked to write, and changes nothing
that it reads.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from unskew.base.errors import UnskewError
from unskew.cli import main

DOCUMENTED = {"audit": frozenset({0, 1, 2}), "compare": frozenset({0, 1, 2})}
CODES = frozenset({0, 2})
"""Codes that a verb may end with; 70, a defect of unskew, is none of them."""

LONGEST_LINE = 4000
"""Characters of a line of an error."""

SECONDS = 60.0
"""Time of the processor for one call, many times what the slowest takes; a busy machine changes little."""

WAITING = 600.0
"""Time that passes for one call, which may wait for what never comes; a busy machine must not reach it."""

LEFTOVERS = (".partial-", ".replaced-", ".part", ".tmp", "~")


class TookTooLongError(BaseException):
    """The call did not end in time; not an ``Exception``, so that nothing in unskew can catch it."""


@dataclass
class Trial:
    """A case that runs: its folder, its source of chance, and what was found wrong.

    Attributes
    ----------
    folder
        Where the case lives; commands run inside it.
    rng
        All chance of the case.
    assets
        Things made once for all cases: a run folder, a log.
    """

    folder: Path
    rng: np.random.Generator
    assets: Path
    seconds: float = SECONDS
    problems: list[str] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)

    def cli(
        self, arguments: Sequence[str], *, outputs: Sequence[str] = (), codes: Sequence[int] | None = None
    ) -> tuple[int, str, str]:
        """Run a command line; gives its code and what it printed.

        Parameters
        ----------
        outputs
            Names in the folder that it was asked to write.
        codes
            Those that it may end with; by default the documented ones.
        """
        verb = next((each for each in arguments if not each.startswith("-")), "")
        allowed = frozenset(codes) if codes is not None else DOCUMENTED.get(verb, CODES)
        self.story.append(json.dumps(list(arguments)))
        before = _contents(self.folder)
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape") for _ in "ab")
        code: int | str
        with _inside(self.folder), redirect_stdout(out), redirect_stderr(err), self._warned():
            try:
                with _time_limit(self.seconds):
                    code = main(list(arguments))
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except TookTooLongError:
                code = "hang"
            except Exception as error:
                code = "escaped"
                self.problems.append(f"{type(error).__name__} escaped: {error}")
        told = [_text(each) for each in (out, err)]
        self.codes[f"{verb} {code}" if verb in VERBS else f"(no verb) {code}"] += 1
        if code not in allowed:
            self.problems.append(f"exit code {code}, not one of {sorted(allowed)}: {told[1][:2000]}")
        self.problems += _said(code, *told)
        self.problems += _left(before, _contents(self.folder), outputs if code in (0, 1) else ())
        return (code if isinstance(code, int) else -1), told[0], told[1]

    def call(self, what: str, work: Callable[[], Any]) -> Any:
        """Call a function; an error must be one of unskew's, in one line. Gives None after an error."""
        self.story.append(what)
        try:
            with _time_limit(self.seconds), self._warned():
                result = work()
        except UnskewError as error:
            self.codes[type(error).__name__] += 1
            if "\n" in str(error) or "To fix: " not in str(error) or _obeyed(str(error)):
                self.problems.append(f"{what}: a message of another form: {str(error)!r}")
            return None
        except TookTooLongError:
            self.problems.append(f"{what}: it did not end in {self.seconds:g} s of work")
            return None
        except Exception as error:
            self.codes["other error"] += 1
            self.problems.append(f"{what}: {type(error).__name__}: {error}")
            return None
        self.codes["value"] += 1
        return result

    def must(self, holds: bool, what: str) -> None:
        """A problem unless something holds."""
        if not holds:
            self.problems.append(what)

    def chance(self, share: float) -> bool:
        """True so often."""
        return bool(self.rng.random() < share)

    def pick(self, options: Sequence[Any]) -> Any:
        """One of the options, as it is."""
        return options[int(self.rng.integers(len(options)))]

    @contextmanager
    def _warned(self) -> Iterator[None]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for each in caught:
            # Those of unskew's own are words to the user; those of libraries are faults that nobody saw.
            ours = each.category.__module__.startswith("unskew")
            if not ours or "\n" in str(each.message) or _obeyed(str(each.message)):
                self.problems.append(f"a warning: {each.category.__name__}: {each.message}")


VERBS = ("run", "audit", "weights", "score", "export", "compare", "methods", "reproduce", "study")


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    home = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(home)


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """A call that does not end, busy or waiting, is ended; where there are no such signals it is not."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TookTooLongError

    if not hasattr(signal, "setitimer"):
        yield
        return
    clocks = (
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, max(seconds, WAITING)),
    )
    before = {number: signal.signal(number, ring) for _, number, _ in clocks}
    for clock, _, limit in clocks:
        signal.setitimer(clock, limit)
    try:
        yield
    finally:
        for clock, _, _ in clocks:
            signal.setitimer(clock, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8", errors="surrogateescape")


def _obeyed(text: str) -> list[str]:
    """Characters that a terminal obeys instead of showing them."""
    return sorted({c for c in text if unicodedata.category(c) == "Cc" and c not in "\n\t"})


def _said(code: int | str, out: str, err: str) -> Iterator[str]:
    """What is wrong with what was printed."""
    for name, text in (("output", out), ("errors", err)):
        if obeyed := _obeyed(text):
            yield f"control characters {obeyed} on the {name}"
        if "Traceback (most recent call last)" in text:
            yield f"a traceback on the {name}: {text[-2000:]}"
    lines = err.splitlines()
    if code == 2 and len(lines) != 1:
        yield f"{len(lines)} lines on the errors for code 2: {err[:1000]!r}"
    if code == 2 and lines and not ("To fix: " in lines[0] or "tells more)" in lines[0]):
        yield f"no remedy: {lines[0][:1000]!r}"
    if any(len(line) > LONGEST_LINE for line in lines):
        yield f"a line of {max(map(len, lines))} characters on the errors"


def _contents(folder: Path) -> dict[str, str]:
    """Every file and folder with a digest of what it holds."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in folders:
            found[os.path.relpath(os.path.join(place, name), folder)] = "folder"
        for name in files:
            path = os.path.join(place, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = hashlib.file_digest(file, "sha1").hexdigest()
    return found


def _left(before: dict[str, str], after: dict[str, str], outputs: Sequence[str]) -> Iterator[str]:
    """What changed beside what was asked for."""
    wanted = [os.path.normpath(each) for each in outputs]
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) == after.get(name):
            continue
        asked = any(
            name == each or name.startswith(each + os.sep) or each.startswith(name + os.sep)
            for each in wanted
        )
        if name not in after:
            yield f"{name!r} was removed"
        elif name in before and not asked:
            yield f"{name!r} was changed"
        elif not asked:
            yield f"{name!r} was left behind"
        elif any(mark in os.path.basename(name) for mark in LEFTOVERS):
            yield f"{name!r} is a file that should be gone"
