"""Standard output and error of the command line: a reader that leaves (``| head -1``) changes nothing."""

from __future__ import annotations

import io
import sys

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
    """From now on a closed pipe ends no command: what it writes is written, and its exit code is its own."""
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
