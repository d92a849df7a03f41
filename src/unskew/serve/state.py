"""The folder that a service keeps: models made ready, sketches, scores that wait for outcomes.

It is not in the run folder, which is replaced as a whole when a new run comes, and whose manifest says what
belongs there. One service at a time has it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from unskew.errors import RunFolderError
from unskew.io.files import Lock, check_place, write_json

MARKER = "unskew-serve.json"
MODELS, SKETCHES, ANSWERED = "models", "sketches", "answered.bin"

KEPT_MODELS = 3
"""Models made ready that are kept: to put an earlier run back takes no time."""


class State:
    """The folder, made where it is not there, and locked until the process ends."""

    def __init__(self, folder: Path) -> None:
        check_place(folder)
        if folder.is_dir() and any(folder.iterdir()) and not (folder / MARKER).is_file():
            raise RunFolderError(
                "is a folder with other things in it", where=str(folder), remedy="give another --state"
            )
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._lock = Lock(folder)
        if self._lock.take() is False:
            raise RunFolderError(
                "another service has this state", where=str(folder), remedy="end it, or give another --state"
            )
        self._record: dict[str, Any] = {"unskew_serve": 1, "models": []}
        if (folder / MARKER).is_file():
            self._record |= _read(folder / MARKER)
        self._write()
        self.models = folder / MODELS
        self.models.mkdir(exist_ok=True)

    @property
    def sketches(self) -> Path:
        """Where sketches are."""
        return self.folder / SKETCHES

    @property
    def answered(self) -> Path:
        """The file of scores that wait for outcomes."""
        return self.folder / ANSWERED

    @property
    def served(self) -> list[str]:
        """Names of models that were served, the last one last."""
        return [each for each in self._record["models"] if (self.models / each).is_dir()]

    def serve(self, name: str) -> None:
        """A model is served now; those before the last few are removed."""
        names = [each for each in self.served if each != name] + [name]
        self._record["models"] = names[-KEPT_MODELS:]
        self._write()
        for path in self.models.iterdir():
            if path.name not in self._record["models"]:
                shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Let another service have it."""
        self._lock.close()

    def _write(self) -> None:
        write_json(self.folder / MARKER, self._record)


def _read(path: Path) -> dict[str, Any]:
    """The record; what is not ours in it is left out, and models are found again by their run."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    models = record.get("models") if isinstance(record, dict) else None
    if not isinstance(models, list):
        return {}
    return {"models": [each for each in models if isinstance(each, str) and each.isalnum()]}
