"""Logs of the service and of uvicorn: one JSON object a line on standard error, failures limited."""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any

from unskew.base.plain_text import plain

FAILURES_A_SECOND = 20
"""Lines about failed requests and from uvicorn; a later line counts those beyond."""

SERVICE = logging.getLogger("unskew.serve")
"""Events of the service itself, which are never left out."""

REQUESTS = logging.getLogger("unskew.serve.requests")


class JsonLines(logging.StreamHandler[Any]):
    """Writes records as JSON lines; the facts of an event are in the record's ``facts``."""

    _second = _count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written: an event of the service, or one of few failures a second."""
        if record.name == SERVICE.name or record.levelno < logging.WARNING:
            return True
        second, left_out = int(time.monotonic()), self._count - FAILURES_A_SECOND
        if second != self._second:
            self._second, self._count = second, 0
            if left_out > 0:
                write("lines left out", logging.WARNING, count=left_out)
        self._count += 1
        return self._count <= FAILURES_A_SECOND

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        facts = dict(getattr(record, "facts", {}))
        if record.exc_info and record.exc_info[0]:
            # The text of an exception may quote a request; its type does not.
            facts["error"] = record.exc_info[0].__name__
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "level": record.levelname.lower(), "event": plain(record.getMessage().strip())}
        texts = {name: plain(value) if isinstance(value, str) else value for name, value in facts.items()}
        return json.dumps({**line, **texts}, default=str)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Go on: a log that nobody reads any more must not end the service."""


def configure() -> None:
    """Send the log of the service and of uvicorn through one handler."""
    handler = JsonLines(sys.stderr)
    for name, level in ((SERVICE.name, logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def write(event: str, level: int = logging.INFO, /, **facts: Any) -> None:
    """Log an event of the service."""
    SERVICE.log(level, event, extra={"facts": facts})
