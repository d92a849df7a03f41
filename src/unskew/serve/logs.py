"""Structured logs: a JSON object a line, on standard error."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from unskew.plain_text import plain

Level = Literal["info", "warning", "error"]


def write(event: str, *, level: Level = "info", **facts: Any) -> None:
    """One line: when, how grave, what, and the facts of it."""
    said = {name: plain(each) if isinstance(each, str) else each for name, each in facts.items()}
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, "event": event}
    with suppress(OSError):
        # A log that nobody reads any more ends no service.
        sys.stderr.write(orjson.dumps({**line, **said}, default=str).decode() + "\n")
        sys.stderr.flush()
