"""What ends a command from outside, SIGTERM and SIGHUP, ends it like an interrupt from the keyboard.

So partial files are removed, one line says what was written, and the exit code is 128 + the signal's number.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

_received: list[int] = []


def listen() -> None:
    """From now on these signals are interrupts; one that is ignored (``nohup``) stays so."""
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def ignore() -> None:
    """From now on they, and an interrupt, change nothing: the work has ended, and its exit code is known."""
    for number in (signal.SIGINT, *ENDING):
        signal.signal(number, signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    raise KeyboardInterrupt


def what_happened() -> str:
    """``interrupted``, or by which signal the command was ended."""
    return f"ended by {signal.Signals(_received[0]).name}" if _received else "interrupted"


def exit_code() -> int:
    """By convention 128 and the signal's number."""
    return 128 + (_received[0] if _received else signal.SIGINT)


def open_standard_descriptors() -> None:
    """Let 0, 1 and 2 lead nowhere where they are closed, so that no file becomes one of them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    # Python has no stream where there was no descriptor, and few who print ask for that.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
