"""Processes that are forked from one that has loaded the library, which takes seconds, once."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

LOADED = (
    *("numba", "pandas", "pytest", "torch.distributed"),
    *("unskew.audit.weights", "unskew.cli.app", "unskew.report.audit_report", "unskew.run"),
    "unskew.study.engine",
)
"""Before a process is forked, and so by none of them."""

SAID = ("out", "error")
"""Files of what a process says."""

SECONDS = 240
"""After which a process that does not end is ended."""


class Forked:
    """A process that calls a function of a file; what it says goes to files."""

    def __init__(
        self, file: str, function: str, *given: object, variables: Mapping[str, str] | None = None
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(LOADED))
        self._said = tempfile.TemporaryDirectory()
        for name in SAID:
            # Before it starts: it may be killed before it has said anything.
            (Path(self._said.name) / name).touch()
        arguments = (file, function, given, dict(variables or {}), Path(self._said.name))
        self._process = context.Process(target=_work, args=arguments, daemon=True)
        self._process.start()

    def poll(self) -> int | None:
        """Its exit code; None as long as it works."""
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def wait(self, seconds: float = SECONDS) -> int | None:
        """Its exit code; None if it works on."""
        self._process.join(seconds)
        return self._process.exitcode

    def ended(self) -> tuple[int, str, str]:
        """Exit code, standard output and standard error, when it has ended."""
        code = self.wait()
        if code is None:
            self.kill()
            self._process.join()
        said, error = ((Path(self._said.name) / name).read_bytes().decode() for name in SAID)
        self._said.cleanup()
        assert code is not None, f"it did not end: {error}"
        return code, said, error


def _work(file: str, function: str, given: tuple[object, ...], variables: dict[str, str], said: Path) -> None:
    import torch

    os.environ.update(variables)
    for number, name in enumerate(SAID, 1):
        os.dup2(os.open(said / name, os.O_WRONLY | os.O_APPEND), number)
    torch.set_num_threads(1)
    runpy.run_path(file)[function](*given)
    sys.stdout.flush()
