"""The settings of a service, which are the options of ``unskew serve``, checked before anything is opened."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from unskew.base.estimator import require
from unskew.base.settings import Settings, option

Unseen = Literal["error", "nan", "other"]
"""The answer to an id that was not seen in training: 422, null, or what the features tell."""

TOKEN_VARIABLE = "UNSKEW_TOKEN"

PACKAGES = ("uvicorn", "starlette", "onnxruntime", "onnx", "prometheus_client")
"""What the extra ``serve`` installs."""


class ServeSettings(Settings):
    """The settings of one service."""

    run: Path = option(
        ...,
        "A run folder; a new one moved into its place is served next.",
        flag="argument",
        metavar="RUN",
    )
    host: str = option("127.0.0.1", "Address to listen at.")
    port: int = option(8000, "0 is any that is free.", ge=0, le=65535)
    state: Path | None = option(
        None, "The service's own folder: outcomes, scores that wait for theirs [RUN.serve]."
    )
    what: str = option("all", "all, conversion or propensity, as in export.", shown=False)
    method: str | None = option(None, "Which of the run's models [its main one].")
    unseen: Unseen | None = option(
        None,
        "For an id that was not seen in training: error (422), nan (null) or other (of a model that reads"
        " features: by these) [other with features, else nan].",
    )
    token_file: Path | None = option(
        None, f"A file with the token that requests must bear [${TOKEN_VARIABLE}, else none]."
    )
    max_body: int = option(2 << 20, "Bytes of a request at most.", shown=False, ge=1, le=1 << 30)
    max_rows: int = option(10_000, "Rows of a request at most.", shown=False, ge=1, le=1_000_000)
    timeout: float = option(
        10.0, "Seconds for a request to arrive and be answered.", shown=False, gt=0, le=3600
    )
    remember: int = option(
        1 << 20,
        "Rows whose scores wait for outcomes, the latest.",
        shown=False,
        ge=1,
        le=1 << 40,
    )
    reload_every: float = option(1.0, "Seconds between looks at the run folder.", shown=False, gt=0, le=3600)
    drain: float = option(
        1.0, "Seconds from SIGTERM to the end of idle connections.", shown=False, ge=0, le=3600
    )
    log_requests: bool = option(False, "A line for every request.")
    forget: str | None = option(
        None, "Delete the outcomes of this model from the state, and end.", metavar="MODEL"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
        require(
            not missing,
            f"to serve needs {', '.join(missing)}, which is not installed",
            "pip install 'unskew[serve]'",
        )
        require(
            self.max_rows <= self.remember,
            f"a request may have {self.max_rows:,} rows, and {self.remember:,} are remembered",
            "remember at least as many rows as a request may have",
        )
        return self

    @property
    def folder(self) -> Path:
        """The folder of the service."""
        return self.state or Path(f"{os.path.normpath(self.run)}.serve")
