"""Tensors in files, and the states of a training in a folder; each is whole or not there, and never a pickle.

A state is two files, ``NAME.safetensors`` and then ``NAME.json``, which has the size and the digest of the
first and a digest of itself. Both are written beside and moved into place: of a process that is killed at any
moment nothing is left that could be taken for a state.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import Tensor

PARTIAL = ".partial"
"""The end of the name of a file that is being written."""

FACTS, TENSORS = ".json", ".safetensors"


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a file of tensors that whoever may read a new file may read."""
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file({name: each.detach().contiguous().cpu().numpy() for name, each in tensors.items()}, path)
    except SafetensorError as error:
        # It says what the system said in words.
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        code = int(number[1])
        raise OSError(code, os.strerror(code), str(path)) from error
    path.chmod(mode)


class DamagedStateError(Exception):
    """A state that is not what was written; its text says in what way."""


@dataclass(frozen=True)
class SavedState:
    """What was saved of a training, or of a value."""

    facts: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


class StateFiles:
    """The states of a folder, which belongs to this process alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self, start: str) -> list[str]:
        """Return the states whose names begin so, in order."""
        return sorted(path.stem for path in self.folder.glob(f"{start}*{FACTS}"))

    def write(self, name: str, facts: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> None:
        """Save a state; one of this name that is there is replaced."""
        sealed: dict[str, Any] = {"facts": facts, "tensors": None}
        if tensors is not None:
            beside = self._beside(name + TENSORS)
            write_tensors(beside, tensors)
            sealed["tensors"] = _seal(beside)
            os.replace(beside, self.folder / (name + TENSORS))
        sealed["sha256"] = _digest_of(sealed)
        beside = self._beside(name + FACTS)
        beside.write_text(json.dumps(sealed) + "\n", encoding="utf-8")
        _seal(beside)
        os.replace(beside, self.folder / (name + FACTS))

    def read(self, name: str) -> SavedState:
        """Return a state as it was written; :class:`DamagedStateError` if it is not."""
        sealed, path = self._sealed(name), self.folder / (name + TENSORS)
        if sealed["tensors"] is None:
            return SavedState(sealed["facts"], {})
        try:
            if _seal(path) != sealed["tensors"]:
                raise DamagedStateError(f"{path.name} was cut or changed")
            return SavedState(sealed["facts"], load_file(path))
        except (OSError, SafetensorError) as error:
            raise DamagedStateError(f"{path.name} cannot be read") from error

    def facts(self, name: str) -> Mapping[str, Any]:
        """Return what a state says of itself, whatever became of its tensors."""
        facts: Mapping[str, Any] = self._sealed(name)["facts"]
        return facts

    def _sealed(self, name: str) -> dict[str, Any]:
        try:
            sealed = json.loads((self.folder / (name + FACTS)).read_text(encoding="utf-8"))
            whole = isinstance(sealed, dict) and sealed.pop("sha256", "") == _digest_of(sealed)
        except (OSError, ValueError, RecursionError) as error:
            raise DamagedStateError(f"{name}{FACTS} cannot be read") from error
        if not whole or sealed.keys() != {"facts", "tensors"}:
            raise DamagedStateError(f"{name}{FACTS} was changed")
        return dict(sealed)

    def remove(self, name: str) -> None:
        """Remove a state, its facts first: without them its tensors are nothing."""
        for end in (FACTS, TENSORS):
            (self.folder / (name + end)).unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove what a process that was killed left half done."""
        for path in self.folder.glob(f".*{PARTIAL}"):
            path.unlink(missing_ok=True)
        for path in self.folder.glob(f"*{TENSORS}"):
            if not path.with_suffix(FACTS).exists():
                path.unlink(missing_ok=True)

    def _beside(self, name: str) -> Path:
        return self.folder / f".{name}{PARTIAL}"


def _seal(path: Path) -> dict[str, Any]:
    """Bring a file to the disk; return its size and its digest."""
    with path.open("rb") as file:
        # Some file systems cannot; what a loss of power did is then found out by the digest.
        with suppress(OSError):
            os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": digest}


def _digest_of(sealed: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(sealed, sort_keys=True).encode()).hexdigest()
