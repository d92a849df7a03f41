"""Files and folders that are whole or not there: written beside their place and moved into it.

A process that is killed leaves the old file or folder, or the new one, and perhaps a hidden partial one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unskew.base.errors import RunFolderError
from unskew.base.manifest import MANIFEST, MODEL_CARD

CONFIG = "config.toml"
"""What marks a folder as a run folder."""

SCHEMA = "schema.json"
"""What the networks of a run folder read."""

FEATURES = "features.safetensors"
"""Features of the users and items of a run folder."""

ROW_FEATURES = "row_features.parquet"
"""Those of the rows of its log."""

CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors that only writing gives, whichever file they name."""

LEFT_BY_SYSTEMS = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
"""Files that a system puts into folders which a person looked at."""

PLACED: list[Path] = []
"""What this process put in place, for the message after an interrupt."""


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder that may be replaced by another of its kind.

    Parameters
    ----------
    holds
        What such a folder holds, for the message.
    marker, read, keys
        The file that tells such a folder from others, which are never replaced; what reads it, with a
        ``ValueError`` where it cannot; and what it must tell.
    files, parts
        All that such a folder may hold, by name, and by a pattern of numbered names; one with anything else
        in it is not replaced.
    """

    holds: str
    marker: str
    read: Callable[[str], Any]
    keys: frozenset[str]
    files: frozenset[str]
    parts: re.Pattern[str] | None = None

    def marks(self, folder: Path) -> bool:
        """Return whether a folder is of this kind."""
        if not (folder / self.marker).is_file():
            # A pipe would wait for somebody to write into it.
            return False
        try:
            content = self.read((folder / self.marker).read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            return False
        return isinstance(content, dict) and self.keys <= content.keys()

    def owns(self, name: str) -> bool:
        """Return whether such a folder may hold a file of this name."""
        return name in self.files or (self.parts is not None and self.parts.fullmatch(name) is not None)


RUN = FolderKind(
    holds="a run",
    marker=CONFIG,
    read=tomllib.loads,
    keys=frozenset({"unskew", "format"}),
    files=frozenset({CONFIG, SCHEMA, FEATURES, ROW_FEATURES, MODEL_CARD, MANIFEST})
    | {"model.safetensors", "propensity.safetensors", "calibrator.json", "users.parquet", "items.parquet"}
    | {"propensities.parquet", "metrics.json", "report.html", "overview.svg", "recalibration.json"},
)

AUDIT = FolderKind(
    holds="an audit",
    marker="audit.json",
    read=json.loads,
    keys=frozenset({"files", "columns", "verdict", "healthy"}),
    files=frozenset({"audit.json", "report.html", "sketch.npz"}),
)


class Lock:
    """A lock of the system (``flock``) on a file or a folder, until it is closed or the process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def take(self, *, seconds: float = 0.0) -> bool | None:
        """Return whether the lock is ours now; None where the system has no locks."""
        if os.name != "posix":
            return None
        import fcntl

        ends = time.monotonic() + seconds
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            while True:
                try:
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                except BlockingIOError:
                    if time.monotonic() >= ends:
                        self.close()
                        return False
                    time.sleep(0.005)
        except OSError:
            self.close()
            return None

    def close(self) -> None:
        """Give the lock back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


def real(path: Path) -> Path:
    """Return where links lead; unlike ``Path.resolve`` this does not fail where they lead in a circle."""
    return Path(os.path.realpath(path))


def check_place(folder: Path) -> None:
    """Raise an error if no folder could be made there, or if a file is there."""
    _require_meant(folder, str(folder))
    parent = real(folder).parent
    existing = next(path for path in (parent, *parent.parents) if path.exists())
    problem = ""
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        problem = f"cannot write into {existing}"
    elif folder.exists() and not folder.is_dir():
        problem = "is a file"
    elif folder.is_dir() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        problem = "may not be read and written"
    if problem:
        raise RunFolderError(problem, where=str(folder), remedy="choose another --out")


def check_target(folder: Path, *, overwrite: bool, kind: FolderKind = RUN) -> None:
    """Raise an error if a folder of results could not be put there. Call it before the long work.

    With ``overwrite`` an earlier folder of the same kind may be replaced, where it holds nothing else.
    """
    where, other = str(folder), "choose another --out"
    if os.path.ismount(folder):
        problem, remedy = (
            "is a mount point, which no folder can replace",
            "choose a folder inside it as --out",
        )
        raise RunFolderError(problem, where=where, remedy=remedy)
    check_place(folder)
    heal(folder)
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    if not names:
        return
    if not kind.marks(folder):
        raise RunFolderError("is a folder with other things in it", where=where, remedy=other)
    if not overwrite:
        remedy = f"{other}, or give --overwrite (overwrite=True)"
        raise RunFolderError(f"holds {kind.holds} already", where=where, remedy=remedy)
    for name in names:
        if not kind.owns(name) and name not in LEFT_BY_SYSTEMS:
            problem = f"holds {kind.holds}, and {name!r} which does not belong to it"
            raise RunFolderError(problem, where=where, remedy=f"move {name!r} elsewhere, or {other}")


@contextmanager
def whole_folder(folder: Path, *, overwrite: bool, kind: FolderKind = RUN) -> Iterator[Path]:
    """Give a new folder beside the target, and move it into its place at the end; a failure leaves nothing.

    Where the target is a link, it stays one, and the folder that it leads to is replaced.
    """
    check_target(folder, overwrite=overwrite, kind=kind)
    target = real(folder)
    made = [path for path in (target.parent, *target.parent.parents) if not path.exists()]
    beside = _name_beside(target)
    try:
        with _errors_of(folder):
            target.parent.mkdir(parents=True, exist_ok=True)
            beside.mkdir()
            yield beside
            for path in beside.rglob("*"):
                if path.is_file():
                    _sync(path)
            try:
                check_target(folder, overwrite=overwrite, kind=kind)
            except RunFolderError as error:
                raise _taken(folder) from error
            _put(beside, folder)
            PLACED.append(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        for path in made:
            with suppress(OSError):
                path.rmdir()
        raise


def _put(beside: Path, folder: Path) -> None:
    """Move a folder into its place; :func:`heal` knows what to do if this is killed in the middle."""
    target = real(folder)
    aside = _aside(target)
    shutil.rmtree(aside, ignore_errors=True)
    if target.exists():
        os.rename(target, aside)
    try:
        os.rename(beside, target)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise _taken(folder) from error
        heal(folder)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def heal(folder: Path) -> None:
    """Put back the old folder of a process that was killed before it moved the new one into place."""
    target = real(folder)
    if not os.path.lexists(target):
        with suppress(FileNotFoundError):
            os.rename(_aside(target), target)


def _require_meant(path: Path, where: str) -> None:
    """Raise an error for an output that nobody wants under this name: an unexpanded home, an option."""
    first = path.parts[0] if path.parts else ""
    if first.startswith("~"):
        problem = f"{first!r} was not expanded by the shell"
        raise RunFolderError(problem, where=where, remedy="write $HOME in its place")
    if first.startswith("--"):
        problem = "looks like an option, not like a file"
        raise RunFolderError(problem, where=where, remedy="give the name of the output before it")


def _is_stream(path: Path) -> bool:
    """Return whether a path is a terminal, a null device, or a standard stream such as ``/dev/stdout``."""
    return path.is_char_device() or str(path).startswith(("/dev/std", "/dev/fd/", "/proc/self/fd/"))


def check_file(path: Path, where: str | None = None) -> None:
    """Raise an error, which calls the file ``where``, if it could not be written. Call it before the work."""
    where = where or str(path)
    if _is_stream(path):
        return
    _require_meant(path, where)
    parent = real(path).parent
    problem, remedy = "", "give the name of a file"
    if path.is_dir():
        problem = "is a folder"
    elif path.exists() and not path.is_file():
        problem = "is a device or a pipe"
    elif not parent.is_dir():
        problem, remedy = "its folder does not exist", "create the folder first"
    elif not os.access(parent, os.W_OK | os.X_OK):
        problem, remedy = f"cannot write into {parent}", "choose another folder"
    if problem:
        raise RunFolderError(problem, where=where, remedy=remedy)


@dataclass(frozen=True)
class NewFile:
    """A file that is to be written, and whether it may replace another."""

    path: Path
    overwrite: bool


def check_new_file(path: Path, *, overwrite: bool) -> NewFile:
    """Return a file to write; raise an error if it could not be put there, or may not be replaced."""
    check_file(path)
    if path.exists() and not overwrite:
        remedy = "choose another -o, or give --overwrite"
        raise RunFolderError("exists already", where=str(path), remedy=remedy)
    return NewFile(path, overwrite)


@contextmanager
def whole_file(target: Path | NewFile) -> Iterator[Path]:
    """Give a new file beside the target, and move it into its place at the end; a failure leaves nothing.

    Where the target is a link, it stays one, and the file that it leads to is replaced. A standard stream
    (``/dev/stdout``) is appended to.
    """
    path, overwrite = (target.path, target.overwrite) if isinstance(target, NewFile) else (target, True)
    check_file(path)
    with _errors_of(path):
        if _is_stream(path):
            with tempfile.TemporaryDirectory(prefix="unskew-") as folder:
                yield Path(folder) / "content"
                sys.stdout.flush()
                with (Path(folder) / "content").open("rb") as source, path.open("ab") as sink:
                    shutil.copyfileobj(source, sink)
            return
        final = real(path)
        beside = _name_beside(final)
        try:
            beside.touch()
            yield beside
            _sync(beside)
            if not overwrite and final.exists():
                raise _taken(path)
            os.replace(beside, final)
        finally:
            beside.unlink(missing_ok=True)
        PLACED.append(path)


def _taken(path: Path) -> RunFolderError:
    return RunFolderError(
        "another process wrote there meanwhile, and what it wrote was left",
        where=str(path),
        remedy="choose another place, or re-run with --overwrite",
    )


def _sync(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _name_beside(target: Path) -> Path:
    """Return a name that nobody has."""
    return target.with_name(f".{target.name[:40]}.partial-{os.urandom(6).hex()}")


def _aside(target: Path) -> Path:
    """Return where the old folder is in the last moment."""
    return target.with_name(f".{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}.replaced")


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Raise a full disk and the like as an error of the target, which a person knows."""
    try:
        yield
    except OSError as error:
        if error.errno not in CANNOT_WRITE and ".partial-" not in str(error.filename or ""):
            raise
        raise RunFolderError(
            f"cannot be written: {os.strerror(error.errno or errno.EIO)}",
            where=str(path),
            remedy="see to space and permissions there, or choose another place",
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a file of text that is whole or not there."""
    with whole_file(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON; NaN and infinities, which JSON cannot hold, become null."""
    write_text(path, json.dumps(finite(value), indent=2, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """Return plain values with None for numbers that JSON cannot hold."""
    if isinstance(value, Mapping):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
