"""``unskew serve``: a run folder as a service that audits itself."""

from __future__ import annotations

import os
from pathlib import Path

from unskew.base.errors import ParameterError
from unskew.base.own_code import require_own_code
from unskew.cli.options import check_outputs
from unskew.serve.settings import TOKEN_VARIABLE, ServeSettings

SHORTEST_TOKEN, LONGEST_TOKEN = 8, 4096
"""Characters of a token."""


def serve(settings: ServeSettings, own_code: tuple[Path, ...]) -> None:
    """Serve a run: POST /score and /outcomes; GET /calibration, /metrics, /model, /healthz and /readyz."""
    for path in own_code:
        require_own_code(path)
    token = _token(settings.token_file)
    if token is not None and len(token) < SHORTEST_TOKEN:
        problem = f"a token of fewer than {SHORTEST_TOKEN} characters is guessed"
        raise ParameterError(problem, remedy="give a longer one")
    check_outputs(read=[settings.run], state=settings.folder)
    if settings.forget is not None:
        from unskew.serve.store import forget_model

        forget_model(settings.folder, settings.forget)
        print(f"forgot the outcomes of {settings.forget}")
        return
    from unskew.serve.server import serve as serve_run

    serve_run(
        settings, token, own_code, lambda address: print(f"serving {settings.run} at {address}", flush=True)
    )


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
