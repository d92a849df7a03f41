"""What a service is asked to do, and its limits; checked once, before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from unskew.errors import ParameterError
from unskew.estimator import require
from unskew.own_code import require_own_code

Unseen = Literal["error", "nan", "other"]
"""What a row with an id that was not there in training gets: a refusal of the request, null, or what the
features tell."""

What = Literal["conversion", "propensity"]

PACKAGES = ("uvicorn", "httptools", "starlette", "orjson", "onnxruntime", "onnx", "prometheus_client")
"""What the extra ``serve`` installs and the service cannot do without."""


@dataclass(frozen=True)
class ServeSettings:
    """One service.

    Parameters
    ----------
    run
        The run folder, which is looked at again while the service runs.
    state
        Its own folder: models made ready, sketches, scores that wait for outcomes. One service each.
    what, method
        Which of the run's models.
    unseen
        None is the model's own rule: ``"other"`` where it reads features, ``"nan"`` where it reads ids alone.
    host, port
        Where it listens; port 0 is any that is free.
    token
        What requests must bear, if anything.
    body_bytes, rows
        Of one request, at most.
    queue, queue_bytes
        Requests that are taken and not answered yet, and bytes of their bodies; what comes beyond gets 429.
    timeout
        Seconds in which a request must have come in, and then be answered.
    remember
        Rows whose scores wait for outcomes by request id, the latest; 16 bytes each on disk.
    save_every, look_every
        Seconds between savings of the sketch, and between looks at the run folder.
    drain
        Seconds between the signal to end and the closing of connections that ask for nothing.
    threads
        Of the model, for large requests.
    log_requests
        A line in the log for every request; otherwise for those that failed.
    own_code
        Files that are run before a model is made ready, in that process alone: they register its method or
        backbone.
    """

    run: Path
    state: Path
    what: What = "conversion"
    method: str | None = None
    unseen: Unseen | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    body_bytes: int = 8 << 20
    rows: int = 100_000
    queue: int = 512
    queue_bytes: int = 256 << 20
    timeout: float = 10.0
    remember: int = 1 << 20
    save_every: float = 2.0
    look_every: float = 1.0
    drain: float = 1.0
    threads: int = 1
    log_requests: bool = False
    own_code: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        for name, allowed in (("what", get_args(What)), ("unseen", (None, *get_args(Unseen)))):
            value = getattr(self, name)
            words = ", ".join(str(each) for each in allowed if each is not None)
            require(value in allowed, f"{name} must be one of {words}, not {value!r}", "give one of these")
        require(
            self.method is None or self.what == "conversion",
            "a method goes with what='conversion'",
            "leave one of them out",
        )
        require(0 <= self.port <= 65535, f"port {self.port} is none", "give one from 0 to 65535")
        for name in ("body_bytes", "rows", "queue", "queue_bytes", "remember", "threads"):
            value = getattr(self, name)
            require(value >= 1, f"{name} must be at least 1, not {value}", "give a whole number")
        for name in ("timeout", "save_every", "look_every"):
            value = getattr(self, name)
            require(0 < value <= 3600, f"{name} must be seconds up to an hour, not {value}", "give 5, say")
        require(0 <= self.drain <= 3600, f"drain must be seconds, not {self.drain}", "give 1, say")
        require(
            self.rows <= self.remember,
            f"a request may have {self.rows:,} rows, and {self.remember:,} are remembered",
            "remember as many as a request may have, or more",
        )
        for path in self.own_code:
            require_own_code(path)
        if self.token is not None and len(self.token) < 8:
            raise ParameterError("a token of fewer than 8 characters is guessed", remedy="give a longer one")


def require_packages() -> None:
    """An error with its remedy where the extra ``serve`` is not installed."""
    from importlib.util import find_spec

    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ParameterError(
            f"to serve needs {', '.join(missing)}, which is not installed",
            remedy="pip install 'unskew[serve]'",
        )
