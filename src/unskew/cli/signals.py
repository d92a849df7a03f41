"""Signals that end a command, and pipes whose reader leaves.

SIGTERM and SIGHUP end it like an interrupt from the keyboard: partial files are removed, one line says what
was written, and the exit code is 128 + the signal's number. A reader that leaves (``| head -1``) changes
nothing.
"""

from __future__ import annotations

import io
import signal
import sys
from types import FrameType

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

_received: list[int] = []


def listen() -> None:
    """Turn ending signals into interrupts from now on; one that is ignored (``nohup``) stays so."""
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def ignore() -> None:
    """Ignore ending signals and interrupts from now on: the work is done, and its exit code is known."""
    for number in (signal.SIGINT, *ENDING):
        signal.signal(number, signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    raise KeyboardInterrupt


def what_happened() -> str:
    """Return ``interrupted``, or the signal that ended the command."""
    return f"ended by {signal.Signals(_received[0]).name}" if _received else "interrupted"


def exit_code() -> int:
    """Return the exit code: by convention, 128 plus the signal's number."""
    return 128 + (_received[0] if _received else signal.SIGINT)


_REPLACED: list[io.TextIOWrapper] = []
"""The streams whose descriptors are used: forgotten, they would close them."""


class _Leaving(io.FileIO):
    """A stream whose reader may leave: what is written afterwards goes nowhere."""

    def write(self, data: object, /) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            return len(memoryview(data))  # type: ignore[arg-type]


def let_readers_leave() -> None:
    """Let a closed pipe end no command: what it writes is written, and its exit code is its own."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        stream.flush()
        raw = _Leaving(stream.fileno(), "wb", closefd=False)
        replaced = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, replaced)
        _REPLACED.append(stream)
