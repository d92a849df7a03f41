"""States of a training in a folder: tensors as safetensors, facts as JSON; each is whole or not there.

A state is two files, ``NAME.safetensors`` and then ``NAME.json``, which has the size and the digest of the
first and a digest of itself. Both are written beside and moved into place: of a process that is killed at any
moment nothing is left that could be taken for a state. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from unskew.training.tensor_file import parts_of

PARTIAL = ".partial"
"""The end of the name of a file that is being written."""

FACTS, TENSORS = ".json", ".safetensors"


class DamagedStateError(Exception):
    """A state that is not what was written; its text says in what way."""


@dataclass(frozen=True)
class SavedState:
    """What was saved of a training, or of a value."""

    facts: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


class _Stored(Mapping[str, Tensor]):
    """Tensors of a file, each read when it is asked for: all of them are as large as a training."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with safe_open(path, "pt") as file:
            self._names = dict.fromkeys(file.keys())

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        # Pages of the file count as memory of the process as long as it is open.
        with safe_open(self._path, "pt") as file:
            found: Tensor = file.get_tensor(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class StateFiles:
    """The states of a folder, which belongs to this process alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self, start: str) -> list[str]:
        """States whose names begin so, in order."""
        return sorted(path.stem for path in self.folder.glob(f"{start}*{FACTS}"))

    def write(self, name: str, facts: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> None:
        """Save a state; one of this name that is there is replaced."""
        sealed: dict[str, Any] = {"facts": facts, "tensors": None}
        if tensors is not None:
            beside = self._beside(name + TENSORS)
            sealed["tensors"] = write_sealed(beside, tensors)
            os.replace(beside, self.folder / (name + TENSORS))
        sealed["sha256"] = _digest_of(sealed)
        beside = self._beside(name + FACTS)
        with beside.open("w", encoding="utf-8") as file:
            file.write(json.dumps(sealed) + "\n")
            _to_disk(file)
        os.replace(beside, self.folder / (name + FACTS))

    def read(self, name: str) -> SavedState:
        """A state as it was written; :class:`DamagedStateError` if it is not."""
        sealed = self._sealed(name)
        return SavedState(sealed["facts"], {} if sealed["tensors"] is None else self._tensors(name, sealed))

    def facts(self, name: str) -> Mapping[str, Any]:
        """What a state says of itself, whatever became of its tensors; :class:`DamagedStateError` too."""
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

    def _tensors(self, name: str, sealed: Mapping[str, Any]) -> Mapping[str, Tensor]:
        path = self.folder / (name + TENSORS)
        try:
            with path.open("rb") as file:
                found = {
                    "bytes": os.fstat(file.fileno()).st_size,
                    "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
                }
            if found != sealed["tensors"]:
                raise DamagedStateError(f"{path.name} was cut or changed")
            return _Stored(path)
        except (OSError, SafetensorError) as error:
            raise DamagedStateError(f"{path.name} cannot be read") from error

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


def write_sealed(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """A file of tensors, its size and its digest."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for part in parts_of(tensors):
            digest.update(part)
            file.write(part)
        _to_disk(file)
        return {"bytes": file.tell(), "sha256": digest.hexdigest()}


def _to_disk(file: IO[Any]) -> None:
    file.flush()
    # Some file systems cannot; what a loss of power did is then found out by the digest.
    with suppress(OSError):
        os.fsync(file.fileno())


def _digest_of(sealed: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(sealed, sort_keys=True).encode()).hexdigest()
