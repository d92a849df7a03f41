"""``unskew serve``: a run folder as a service that audits itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from unskew.base.errors import ParameterError
from unskew.base.settings import Settings, option

TOKEN_VARIABLE = "UNSKEW_TOKEN"

LONGEST_TOKEN = 4096
"""Characters of a token."""


class ServeOptions(Settings):
    """The options of ``unskew serve``."""

    run: Path = option(
        ...,
        "A run folder; a new one moved into its place is served next.",
        flag="argument",
        metavar="RUN",
    )
    host: str = option("127.0.0.1", "Address to listen at.")
    port: int = option(8000, "0 is any that is free.")
    state: Path | None = option(
        None, "The service's own folder: outcomes, scores that wait for theirs [RUN.serve]."
    )
    what: str = option("all", "all, conversion or propensity, as in export.", shown=False)
    method: str | None = option(None, "Which of the run's models [its main one].")
    unseen: Literal["error", "nan", "other"] | None = option(
        None,
        "For an id that was not seen in training: error (422), nan (null) or other (of a model that reads"
        " features: by these) [other with features, else nan].",
    )
    token_file: Path | None = option(
        None, f"A file with the token that requests must bear [${TOKEN_VARIABLE}, else none]."
    )
    max_body: int = option(2 << 20, "Bytes of a request at most.", shown=False)
    max_rows: int = option(10_000, "Rows of a request at most.", shown=False)
    timeout: float = option(10.0, "Seconds for a request to arrive and be answered.", shown=False)
    remember: int = option(
        1 << 20, "Rows whose scores wait for outcomes by request id, the latest.", shown=False
    )
    reload_every: float = option(1.0, "Seconds between looks at the run folder.", shown=False)
    drain: float = option(1.0, "Seconds from SIGTERM to the end of idle connections.", shown=False)
    threads: int = option(1, "Threads of the model, for large requests.")
    log_requests: bool = option(False, "A line for every request.")
    forget: str | None = option(
        None, "Delete the outcomes of this model from the state, and end.", metavar="MODEL"
    )


def serve(options: ServeOptions, own_code: tuple[Path, ...]) -> None:
    """Serve a run: POST /score and /outcomes; GET /calibration, /metrics, /model, /healthz and /readyz."""
    from unskew.serve.settings import ServeSettings, require_packages

    require_packages()
    same = {"run", "what", "method", "unseen", "host", "port", "timeout", "remember", "drain", "threads"}
    settings = ServeSettings(
        **options.model_dump(include=same | {"log_requests"}),
        state=options.state or Path(f"{os.path.normpath(options.run)}.serve"),
        token=_token(options.token_file),
        body_bytes=options.max_body,
        rows=options.max_rows,
        look_every=options.reload_every,
        own_code=own_code,
    )

    from unskew.cli.places import check_outputs

    check_outputs({}, folders={"--state": settings.state}, read=[options.run])

    if options.forget is not None:
        from unskew.serve.store import forget_model

        forget_model(settings.state, options.forget)
        print(f"forgot the outcomes of {options.forget}")
        return
    from unskew.serve.server import serve as serve_run

    serve_run(settings, ready=lambda address: print(f"serving {options.run} at {address}", flush=True))


def _token(file: Path | None) -> str | None:
    """Read the token from a file, not from the command line, which every user of the machine can read."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    where, remedy = f"--token-file {file}", "give a file with one line of text"
    if not file.is_file():
        raise ParameterError("is not a regular file", where=where, remedy=remedy)
    try:
        with file.open("rb") as opened:
            token = opened.read(LONGEST_TOKEN + 1).decode().strip()
    except (OSError, ValueError) as error:
        raise ParameterError(f"cannot be read ({error})", where=where, remedy=remedy) from error
    if not token or len(token) > LONGEST_TOKEN or not token.isprintable():
        raise ParameterError("holds no token", where=where, remedy=remedy)
    if os.name == "posix" and file.stat().st_mode & 0o044:
        from unskew.cli import say

        say(f"unskew: other users can read {file}. To fix: chmod 600.")
    return token
