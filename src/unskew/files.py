"""Files that are whole or not there: written beside and moved into place. And TOML, written plainly."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unskew.errors import RunFolderError
from unskew.manifest import MANIFEST

CONFIG = "config.toml"
"""What marks a folder as a run folder."""

LONGEST_NAME = 160
"""Bytes of a name up to which what lies beside it is called after it; file systems end at 255."""

CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors that only writing gives, whichever file they name."""

LEFT_BY_SYSTEMS = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
"""Files that a system puts into folders which a person looked at."""


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
    files
        All that such a folder may hold; one with anything else in it is not replaced.
    """

    holds: str
    marker: str
    read: Callable[[str], Any]
    keys: frozenset[str]
    files: frozenset[str]

    def marks(self, folder: Path) -> bool:
        """Whether the marker is there, and ours."""
        if not (folder / self.marker).is_file():
            # A pipe would wait for somebody to write into it.
            return False
        try:
            told = self.read((folder / self.marker).read_text(encoding="utf-8"))
        except (FileNotFoundError, IsADirectoryError, ValueError):
            return False
        return isinstance(told, dict) and self.keys <= told.keys()


def _from_toml(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


RUN = FolderKind(
    holds="a run",
    marker=CONFIG,
    read=_from_toml,
    keys=frozenset({"unskew", "format"}),
    files=frozenset(
        {CONFIG, "model.safetensors", "propensity.safetensors", "calibrator.json", "users.parquet"}
        | {"items.parquet", "propensities.parquet", "metrics.json", "report.html", "overview.svg", MANIFEST}
    ),
)

AUDIT = FolderKind(
    holds="an audit",
    marker="audit.json",
    read=json.loads,
    keys=frozenset({"files", "columns", "verdict", "healthy"}),
    files=frozenset({"audit.json", "report.html", "sketch.npz"}),
)


def real(path: Path) -> Path:
    """Where links lead; unlike ``Path.resolve`` it stays where they lead in a circle."""
    return Path(os.path.realpath(path))


def check_place(folder: Path) -> None:
    """An error if no folder could be made there, or if a file is there."""
    parent = real(folder).parent
    existing = next(path for path in (parent, *parent.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise RunFolderError(
            f"cannot write into {existing}", where=str(folder), remedy="choose another --out"
        )
    if folder.exists() and not folder.is_dir():
        raise RunFolderError("is a file", where=str(folder), remedy="choose another --out")
    if folder.is_dir() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise RunFolderError("may not be read and written", where=str(folder), remedy="choose another --out")


def check_target(folder: Path, *, overwrite: bool, kind: FolderKind = RUN) -> None:
    """An error if a folder of results could not be put there; call it before the long work.

    With ``overwrite`` an earlier folder of the same kind may be replaced, where it holds nothing else.
    """
    check_place(folder)
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not kind.marks(folder):
        raise RunFolderError(
            "is a folder with other things in it", where=str(folder), remedy="choose another --out"
        )
    if not overwrite:
        raise RunFolderError(
            f"holds {kind.holds} already",
            where=str(folder),
            remedy="choose another --out, or give --overwrite (overwrite=True)",
        )
    others = sorted(each.name for each in folder.iterdir() if each.name not in kind.files | LEFT_BY_SYSTEMS)
    if others:
        raise RunFolderError(
            f"holds {kind.holds}, and {others[0]!r} which does not belong to it",
            where=str(folder),
            remedy=f"move {others[0]!r} elsewhere, or choose another --out",
        )


@contextmanager
def whole_folder(folder: Path, *, overwrite: bool, kind: FolderKind = RUN) -> Iterator[Path]:
    """A new folder beside the target, moved into its place at the end; nothing is left of a failure.

    Where the target is a link, it stays one, and the folder that it leads to is replaced.
    """
    check_target(folder, overwrite=overwrite, kind=kind)
    target = real(folder)
    beside, old = _beside(target, "partial"), _beside(target, "replaced")
    with _told_of(folder, beside):
        target.parent.mkdir(parents=True, exist_ok=True)
        beside.mkdir()
        try:
            yield beside
            if target.exists():
                target.rename(old)
            beside.rename(target)
        except BaseException:
            if old.exists() and not target.exists():
                old.rename(target)
            raise
        finally:
            shutil.rmtree(beside, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
        _remove_leftovers(target)


def check_file(path: Path, where: str | None = None) -> None:
    """An error, which calls the file ``where``, if none could be put there; call it before the long work."""
    where = where or str(path)
    target = real(path)
    if path.is_dir():
        raise RunFolderError("is a folder", where=where, remedy="give the name of a file")
    if path.exists() and not path.is_file():
        raise RunFolderError("is a device or a pipe", where=where, remedy="give the name of a file")
    if not target.parent.is_dir():
        raise RunFolderError("its folder does not exist", where=where, remedy="create the folder first")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise RunFolderError(
            f"cannot write into {target.parent}", where=where, remedy="choose another folder"
        )


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A new file beside the target, moved into its place at the end; nothing is left of a failure.

    Where the target is a link, it stays one, and the file that it leads to is replaced.
    """
    check_file(path)
    target = real(path)
    beside = _beside(target, "partial")
    with _told_of(path, beside):
        try:
            yield beside
            os.replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)
        _remove_leftovers(target)


def _beside(target: Path, what: str) -> Path:
    """A name that nobody has, with the process that writes there."""
    return target.with_name(f".{_called(target)}.{what}-{os.getpid()}-{os.urandom(4).hex()}")


def _called(target: Path) -> str:
    name = os.fsencode(target.name)
    if len(name) <= LONGEST_NAME:
        return target.name
    import hashlib

    return hashlib.sha256(name).hexdigest()


def _remove_leftovers(target: Path) -> None:
    """What processes that were killed left beside the target."""
    if os.name != "posix" or not os.access(target.parent, os.R_OK):
        return
    for what in ("partial", "replaced"):
        start = f".{_called(target)}.{what}-"
        for left in [each for each in os.listdir(target.parent) if each.startswith(start)]:
            process, path = left.removeprefix(start).split("-")[0], target.with_name(left)
            if process.isdecimal() and not _lives(int(process)):
                # Another process may remove it at the same time, and another user's may not be removed.
                with suppress(FileNotFoundError, PermissionError):
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def _told_of(path: Path, beside: Path) -> Iterator[None]:
    """A full disk and the like as an error of the target, which a person knows, not of what lies beside."""
    try:
        yield
    except OSError as error:
        named = str(error.filename or "").startswith(str(beside))
        if error.errno not in CANNOT_WRITE and not named:
            raise
        raise RunFolderError(
            f"cannot be written: {error.strerror}",
            where=str(path),
            remedy="see to space and permissions there, or choose another place",
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Indented JSON; NaN and infinities, which JSON cannot say, become null."""
    with whole_file(path) as beside:
        beside.write_text(json.dumps(_finite(value), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
