"""The settings of a service and their limits, checked before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unskew.base.errors import ParameterError
from unskew.base.estimator import require, require_choice, require_range
from unskew.base.own_code import require_own_code

Unseen = Literal["error", "nan", "other"]
"""The answer to an id that was not seen in training: 422, null, or what the features tell."""

PACKAGES = ("uvicorn", "starlette", "onnxruntime", "onnx", "prometheus_client")
"""What the extra ``serve`` installs."""

LIMITS: dict[str, tuple[int, int, str]] = {
    "port": (0, 65535, "8000"),
    "body_bytes": (1, 1 << 30, "2097152"),
    "rows": (1, 1_000_000, "10000"),
    "timeout": (0, 3600, "10"),
    "remember": (1, 1 << 40, "1048576"),
    "look_every": (0, 3600, "1"),
    "drain": (0, 3600, "1"),
    "threads": (1, 1024, "1"),
}
"""Smallest and largest value of each number, and an example."""


@dataclass(frozen=True)
class ServeSettings:
    """The settings of one service.

    Parameters
    ----------
    run
        The run folder, which the service looks at again every ``look_every`` seconds.
    state
        The folder of the service itself: exported models, and a database. One service has it at a time.
    what, method
        Which model of the run, as in ``unskew export``.
    unseen
        None is ``"other"`` for a model that reads features and ``"nan"`` for one that reads ids alone.
    host, port
        The address; port 0 is any free port.
    token
        The bearer token that requests must send, if any.
    body_bytes, rows
        The largest request.
    timeout
        Seconds for a request to arrive, to be answered and to be read.
    remember
        Rows whose scores wait for outcomes, the latest.
    drain
        Seconds between SIGTERM and the closing of idle connections.
    threads
        Threads of onnxruntime.
    log_requests
        Log every request, not only those that failed.
    own_code
        Python files that the exporting process runs first; they register a method or a backbone.
    """

    run: Path
    state: Path
    what: str = "all"
    method: str | None = None
    unseen: Unseen | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    body_bytes: int = 2 << 20
    rows: int = 10_000
    timeout: float = 10.0
    remember: int = 1 << 20
    look_every: float = 1.0
    drain: float = 1.0
    threads: int = 1
    log_requests: bool = False
    own_code: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        require_choice("unseen", self.unseen, (None, "error", "nan", "other"))
        for name, (low, high, example) in LIMITS.items():
            require_range(name, getattr(self, name), low, high, example)
        require(self.timeout > 0 and self.look_every > 0, "timeout and look_every must be above 0", "give 1")
        require(
            self.rows <= self.remember,
            f"a request may have {self.rows:,} rows, and {self.remember:,} are remembered",
            "remember at least as many rows as a request may have",
        )
        for path in self.own_code:
            require_own_code(path)
        if self.token is not None and len(self.token) < 8:
            raise ParameterError("a token of fewer than 8 characters is guessed", remedy="give a longer one")


def require_packages() -> None:
    """Raise an error with its remedy where the extra ``serve`` is not installed."""
    from importlib.util import find_spec

    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ParameterError(
            f"to serve needs {', '.join(missing)}, which is not installed",
            remedy="pip install 'unskew[serve]'",
        )
