"""Finished parts of a study, each kept under a hash of its inputs; each is whole or not there."""

from __future__ import annotations

import hashlib
import inspect
import json
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unskew
from unskew.base.errors import RunFolderError
from unskew.base.estimator import Estimator
from unskew.base.files import Lock, whole_file
from unskew.data import Log
from unskew.data.datasets import Dataset
from unskew.data.digest import digest_of

WITHOUT_NUMBERS = ("cli", "report", "audit")
"""Packages that no number of a study depends on: changing them leaves its results as they are."""

FACTS = "facts"


@dataclass(frozen=True)
class TaskResult:
    """The outcome of a task: plain facts and arrays."""

    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


class ResultStore:
    """The results in a folder, a file each, written beside and moved into place.

    A process that is killed leaves at most a file that nobody reads, and the next one removes it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def opened(self) -> Iterator[ResultStore]:
        """Open the store for this process alone: two studies at once in a folder are refused."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(
                f"cannot be written: {error.strerror}", where=str(self.folder), remedy="choose another --out"
            ) from error
        lock = Lock(self.folder)
        if lock.take() is False:
            raise RunFolderError(
                "another study is running there",
                where=str(self.folder),
                remedy="wait, or choose another --out",
            )
        try:
            for left in self.folder.glob(".*.partial-*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            yield self
        finally:
            lock.close()

    def path(self, key: str) -> Path:
        """Return the file of a result."""
        return self.folder / f"{key}.npz"

    def subfolder(self, key: str) -> Path:
        """Return the folder of a result that holds a model."""
        return self.folder / key

    def sketch(self, key: str) -> Path:
        """Return the file of a sketch, which is written before its result of propensities."""
        return self.folder / f"{key}.sketch"

    def has(self, key: str) -> bool:
        """Return whether a result is finished, and whole."""
        return _holds_model(self.subfolder(key)) or self.read(key) is not None

    def remove(self, key: str) -> None:
        """Make room for a result whose folder is damaged."""
        if self.subfolder(key).is_dir():
            shutil.rmtree(self.subfolder(key))

    def read(self, key: str) -> TaskResult | None:
        """Read a result; return None where it is not finished, or damaged."""
        if not self.path(key).is_file():
            return None
        try:
            # np.load leaves a damaged file open unless it is opened for it.
            with open(self.path(key), "rb") as opened, np.load(opened, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            return TaskResult(facts=json.loads(str(arrays.pop(FACTS))), arrays=arrays)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def write(
        self, key: str, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None
    ) -> None:
        """Keep a result."""
        with whole_file(self.path(key)) as beside, open(beside, "wb") as file:
            np.savez(file, allow_pickle=False, **{FACTS: np.array(json.dumps(facts)), **(arrays or {})})


def _holds_model(folder: Path) -> bool:
    """Return whether a folder has a trained propensity that can be read back, with its timing."""
    from unskew.propensity import load_propensity
    from unskew.training.saved import SavedFolder

    try:
        saved = SavedFolder(folder)
        timing = saved.entry("timing", kind=dict)
        return load_propensity(saved, device="cpu") is not None and all(
            isinstance(value, int | float) for value in timing.values()
        )
    except RunFolderError:
        return False


def result_key(kind: str, **inputs: Any) -> str:
    """Return a hash of the inputs of a result; equal inputs and equal code give equal keys.

    Examples
    --------
    >>> result_key("toy", seeds=[0, 1]) == result_key("toy", seeds=(0, 1)) != result_key("toy", seeds=[0])
    True
    """
    text = json.dumps({"kind": kind, "code": code_version(), **inputs}, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def code_version() -> str:
    """Return a hash of the package's source files and of the versions of its libraries."""
    import scipy
    import torch

    digest = hashlib.sha256(f"{torch.__version__} {np.__version__} {scipy.__version__}".encode())
    home = Path(unskew.__file__).parent
    for path in sorted(home.rglob("*.py")):
        place = path.relative_to(home)
        if place.parts[0] not in WITHOUT_NUMBERS:
            digest.update(place.as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def dataset_hash(dataset: Dataset, *tests: Log | None) -> str:
    """Return a hash of a dataset's content, and of further test logs, wherever their files lie."""
    logs = (dataset.train, dataset.test, dataset.validation, *tests)
    truth = None if dataset.truth is None else dataset.truth.propensity
    return digest_of(*(None if log is None else log.digest for log in logs), truth)


def described(estimator: Estimator) -> dict[str, Any]:
    """Return an estimator as plain values, with a hash of its source if it is not the package's."""
    params = estimator.get_params(deep=False)
    plain: dict[str, Any] = {"name": type(estimator).name, "class": type(estimator).__qualname__}
    if not type(estimator).__module__.startswith("unskew."):
        # mypy takes the hash of a class for that of its objects.
        plain["source"] = source_hash(type(estimator))  # type: ignore[arg-type]
    for name, value in params.items():
        plain[name] = described(value) if isinstance(value, Estimator) else value
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return repr(value)


@cache
def source_hash(kind: type) -> str:
    """Return a hash of the file that defines a class, or of its source where there is no file."""
    file = Path(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
    if file.is_file():
        return hashlib.sha256(file.read_bytes()).hexdigest()
    try:
        text = inspect.getsource(kind)
    except (OSError, TypeError):
        text = f"{kind.__module__}.{kind.__qualname__}"
    return hashlib.sha256(text.encode()).hexdigest()
