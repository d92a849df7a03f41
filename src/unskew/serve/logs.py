"""Logs of the service and of uvicorn: a JSON object a line on standard error, failures limited in number."""

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


class JsonHandler(logging.Handler):
    """Writes records as JSON lines; the facts of an event are in the record's ``facts``."""

    def __init__(self) -> None:
        super().__init__()
        self._second, self._count = 0, 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, unless this second has had enough failures."""
        if record.name != SERVICE.name and record.levelno >= logging.WARNING:
            second, left_out = int(time.monotonic()), self._count - FAILURES_A_SECOND
            if second != self._second:
                self._second, self._count = second, 0
                if left_out > 0:
                    _write("warning", "lines left out", {"count": left_out})
            self._count += 1
            if self._count > FAILURES_A_SECOND:
                return
        facts = dict(getattr(record, "facts", {}))
        if record.exc_info and record.exc_info[0]:
            # The text of an exception may quote a request; its type does not.
            facts["error"] = record.exc_info[0].__name__
        _write(record.levelname.lower(), record.getMessage().strip(), facts)


def _write(level: str, event: str, facts: dict[str, Any]) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    said = {name: plain(value) if isinstance(value, str) else value for name, value in facts.items()}
    line = json.dumps({"time": now, "level": level, "event": plain(event), **said}, default=str)
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError:
        # Nobody reads the log any more; that must not end the service.
        return


def configure() -> None:
    """Send the log of the service and of uvicorn through one handler."""
    handler = JsonHandler()
    for name, level in ((SERVICE.name, logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def write(event: str, level: int = logging.INFO, /, **facts: Any) -> None:
    """Log an event of the service."""
    SERVICE.log(level, event, extra={"facts": facts})
