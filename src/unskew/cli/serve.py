"""``unskew serve``: a run folder as a service that audits itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from unskew.base.errors import ParameterError

TOKEN_VARIABLE = "UNSKEW_TOKEN"

LONGEST_TOKEN = 4096
"""Characters of a token."""


def serve(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run folder; a new one moved into its place is served next.")],
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 is any that is free.")] = 8000,
    state: Annotated[
        Path | None,
        typer.Option(help="The service's own folder: outcomes, scores that wait for theirs [RUN.serve]."),
    ] = None,
    what: Annotated[str, typer.Option(help="all, conversion or propensity, as in export.")] = "all",
    method: Annotated[str | None, typer.Option(help="Which of the run's models [its main one].")] = None,
    unseen: Annotated[
        str | None,
        typer.Option(
            help="For an id that was not seen in training: error (422), nan (null) or other (of a model that"
            " reads features: what these tell) [other with features, else nan]."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help=f"A file with the token that requests must bear [${TOKEN_VARIABLE}, else none]."),
    ] = None,
    max_body: Annotated[int, typer.Option(help="Bytes of a request at most.")] = 2 << 20,
    max_rows: Annotated[int, typer.Option(help="Rows of a request at most.")] = 10_000,
    timeout: Annotated[float, typer.Option(help="Seconds for a request to arrive and be answered.")] = 10.0,
    remember: Annotated[
        int, typer.Option(help="Rows whose scores wait for outcomes by request id, the latest.")
    ] = 1 << 20,
    reload_every: Annotated[float, typer.Option(help="Seconds between looks at the run folder.")] = 1.0,
    drain: Annotated[float, typer.Option(help="Seconds from SIGTERM to the end of idle connections.")] = 1.0,
    threads: Annotated[int, typer.Option(help="Of the model, for large requests.")] = 1,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="A line for every request.")] = False,
    forget: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Delete the outcomes of this model from the state, and end."),
    ] = None,
) -> None:
    """Serve a run: POST /score and /outcomes; GET /calibration, /metrics, /model, /healthz and /readyz."""
    from unskew.serve.settings import ServeSettings, require_packages

    require_packages()
    settings = ServeSettings(
        run=run,
        state=state or Path(f"{os.path.normpath(run)}.serve"),
        what=what,
        method=method,
        unseen=unseen,  # type: ignore[arg-type]
        host=host,
        port=port,
        token=_token(token_file),
        body_bytes=max_body,
        rows=max_rows,
        timeout=timeout,
        remember=remember,
        look_every=reload_every,
        drain=drain,
        threads=threads,
        log_requests=log_requests,
        own_code=context.obj or (),
    )

    from unskew.cli.places import check_outputs

    check_outputs({}, folders={"--state": settings.state}, read=[run])

    if forget is not None:
        from unskew.serve.store import forget_model

        forget_model(settings.state, forget)
        print(f"forgot the outcomes of {forget}")
        return
    from unskew.serve.server import serve as serve_run

    serve_run(settings, ready=lambda address: print(f"serving {run} at {address}", flush=True))


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
