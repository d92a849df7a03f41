"""Files and folders that are whole or not there: written beside and moved into place.

Nothing that came to a place while the work was done is replaced; what is replaced stays until the new one is
there, in one step where the system can. What processes that were killed left beside is put back or removed by
the next one that writes there.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unskew.errors import RunFolderError
from unskew.io.manifest import MANIFEST, MODEL_CARD
from unskew.io.moving import (
    OURS,
    Lock,
    descriptor_of,
    exchange,
    is_writable,
    lives,
    locked,
    move_new,
    write_through,
)

CONFIG = "config.toml"
"""What marks a folder as a run folder."""

SCHEMA = "schema.json"
"""What the networks of a run folder read."""

FEATURES = "features.safetensors"
"""Features of the users and items of a run folder."""

ROW_FEATURES = "row_features.parquet"
"""Those of the rows of its log."""

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
        """Whether the marker is there, and ours."""
        if not (folder / self.marker).is_file():
            # A pipe would wait for somebody to write into it.
            return False
        try:
            content = self.read((folder / self.marker).read_text(encoding="utf-8"))
        except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
            return False
        return isinstance(content, dict) and self.keys <= content.keys()

    def owns(self, name: str) -> bool:
        """Whether such a folder may hold a file of this name."""
        return name in self.files or (self.parts is not None and self.parts.fullmatch(name) is not None)


def _from_toml(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


RUN = FolderKind(
    holds="a run",
    marker=CONFIG,
    read=_from_toml,
    keys=frozenset({"unskew", "format"}),
    files=frozenset(
        {
            CONFIG,
            SCHEMA,
            FEATURES,
            ROW_FEATURES,
            "model.safetensors",
            "propensity.safetensors",
            "calibrator.json",
            "users.parquet",
        }
        | {"items.parquet", "propensities.parquet", "metrics.json", "report.html", "overview.svg"}
        | {MODEL_CARD, MANIFEST}
    ),
)

AUDIT = FolderKind(
    holds="an audit",
    marker="audit.json",
    read=json.loads,
    keys=frozenset({"files", "columns", "verdict", "healthy"}),
    files=frozenset({"audit.json", "report.html", "sketch.npz"}),
)


PLACED: list[Path] = []
"""What this process put in place, for the word after an interrupt."""


@dataclass(frozen=True)
class Found:
    """What was at a place when the work began: nothing (None), or that file or folder and no other."""

    identity: tuple[int, ...] | None

    @classmethod
    def file(cls, path: Path) -> Found:
        """What is there, where a file is to be written."""
        try:
            info = os.stat(path)
        except FileNotFoundError:
            return cls(None)
        return cls((info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns))

    @classmethod
    def folder(cls, path: Path, kind: FolderKind) -> Found:
        """What is there, where a folder is to be written; an empty one is nothing.

        Files that a person adds or edits in it do not make it another.
        """
        try:
            if not any(path.iterdir()):
                return cls(None)
            info = os.stat(path)
        except FileNotFoundError:
            return cls(None)
        return cls((info.st_dev, info.st_ino, *(cls.file(path / kind.marker).identity or ())))


def real(path: Path) -> Path:
    """Where links lead; unlike ``Path.resolve`` it stays where they lead in a circle."""
    return Path(os.path.realpath(path))


def check_place(folder: Path) -> None:
    """An error if no folder could be made there, or if a file is there."""
    _require_meant(folder, str(folder))
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


def check_target(folder: Path, *, overwrite: bool, kind: FolderKind = RUN) -> Found:
    """What is there; an error if a folder of results could not be put there. Call it before the long work.

    With ``overwrite`` an earlier folder of the same kind may be replaced, where it holds nothing else.
    """
    if os.path.ismount(folder):
        raise RunFolderError(
            "is a mount point, which no folder can replace",
            where=str(folder),
            remedy="choose a folder inside it as --out",
        )
    check_place(folder)
    heal(folder)
    if not folder.exists() or not any(folder.iterdir()):
        return Found(None)
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
    names = (each.name for each in folder.iterdir())
    others = sorted(name for name in names if not kind.owns(name) and name not in LEFT_BY_SYSTEMS)
    if others:
        raise RunFolderError(
            f"holds {kind.holds}, and {others[0]!r} which does not belong to it",
            where=str(folder),
            remedy=f"move {others[0]!r} elsewhere, or choose another --out",
        )
    return Found.folder(folder, kind)


@contextmanager
def whole_folder(
    folder: Path, *, overwrite: bool, kind: FolderKind = RUN, found: Found | None = None
) -> Iterator[Path]:
    """A new folder beside the target, moved into its place at the end; nothing is left of a failure.

    Where the target is a link, it stays one, and the folder that it leads to is replaced. Killed at any
    moment, the whole old or the whole new folder is there; on systems that cannot exchange two folders, the
    next process that writes or reads there puts the old one back.

    Parameters
    ----------
    found
        What :func:`check_target` found when the work began: nothing else is replaced. By default what is
        there now.
    """
    now = check_target(folder, overwrite=overwrite, kind=kind)
    expected = now if found is None else found
    target = real(folder)
    made = [each for each in (target.parent, *target.parent.parents) if not each.exists()]
    try:
        with _errors_of(folder):
            target.parent.mkdir(parents=True, exist_ok=True)
            with _beside(target, os.mkdir) as beside:
                yield beside
                with locked(target.parent):
                    if Found.folder(target, kind) != expected:
                        raise _taken(folder)
                    _put_folder(beside, target)
            PLACED.append(folder)
            _remove_leftovers(target)
    except BaseException:
        for each in made:
            with suppress(OSError):
                each.rmdir()
        raise


def _put_folder(beside: Path, target: Path) -> None:
    """Move a whole folder into its place; what was there is beside afterwards, if anything."""
    if target.exists() and any(target.iterdir()):
        if not exchange(beside, target):
            _put_in_two_steps(beside, target)
        return
    try:
        move_new(beside, target)
    except FileExistsError as error:
        raise _taken(target) from error


def _put_in_two_steps(beside: Path, target: Path) -> None:
    """The same where two folders cannot be exchanged: between the steps :func:`heal` knows what to do."""
    old = _name_beside(target, REPLACED)
    os.rename(target, old)
    try:
        os.rename(beside, target)
    except BaseException:
        os.rename(old, target)
        raise
    os.rename(old, beside)


def heal(folder: Path) -> None:
    """Put back what a process moved aside that was killed before it moved the new one into place."""
    target = real(folder)
    if os.path.lexists(target) or not _left(target, REPLACED):
        return
    with locked(target.parent) as alone:
        aside = [path for path in _left(target, REPLACED) if alone and _abandoned(path)]
        if aside and not os.path.lexists(target):
            os.rename(max(aside, key=lambda path: path.stat().st_mtime_ns), target)


def _require_meant(path: Path, where: str) -> None:
    """An error for an output that nobody wants under this name: a home that no shell expanded, an option."""
    first = path.parts[0] if path.parts else ""
    if first.startswith("~"):
        raise RunFolderError(
            f"{first!r} was not expanded by the shell", where=where, remedy="write $HOME in its place"
        )
    if first.startswith("--"):
        raise RunFolderError(
            "looks like an option, not like a file",
            where=where,
            remedy="give the name of the output before it",
        )


def check_file(path: Path, where: str | None = None) -> None:
    """An error, which calls the file ``where``, if none could be put there; call it before the long work."""
    where = where or str(path)
    descriptor = descriptor_of(path)
    if descriptor is not None:
        if not is_writable(descriptor):
            raise RunFolderError("is not open for writing", where=where, remedy="give the name of a file")
        return
    _require_meant(path, where)
    target = real(path)
    if path.is_dir():
        raise RunFolderError("is a folder", where=where, remedy="give the name of a file")
    if path.is_char_device() and os.access(path, os.W_OK):
        return
    if path.exists() and not path.is_file():
        raise RunFolderError("is a device or a pipe", where=where, remedy="give the name of a file")
    if not target.parent.is_dir():
        raise RunFolderError("its folder does not exist", where=where, remedy="create the folder first")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise RunFolderError(
            f"cannot write into {target.parent}", where=where, remedy="choose another folder"
        )


@dataclass(frozen=True)
class NewFile:
    """A file that is to be written, and what was there when the work began."""

    path: Path
    found: Found


def check_new_file(path: Path, *, overwrite: bool) -> NewFile:
    """A file to write; an error if it could not be put there, or is there without leave to replace it."""
    check_file(path)
    if path.exists() and not overwrite:
        raise RunFolderError(
            "exists already", where=str(path), remedy="choose another -o, or give --overwrite"
        )
    return NewFile(path, Found.file(path))


@contextmanager
def whole_file(target: Path | NewFile) -> Iterator[Path]:
    """A new file beside the target, moved into its place at the end; nothing is left of a failure.

    Where the target is a link, it stays one, and the file that it leads to is replaced. An open descriptor
    (``/dev/stdout``) or a terminal is written to where it is, and never cut.

    Parameters
    ----------
    target
        A path, where whatever is there is replaced; or what :func:`check_new_file` gave when the work began:
        then nothing else than what was there is replaced.
    """
    path, found = (target.path, target.found) if isinstance(target, NewFile) else (target, None)
    check_file(path)
    if descriptor_of(path) is not None or path.is_char_device():
        with _errors_of(path), _passed_through(path) as passing:
            yield passing
        return
    place = real(path)
    with _errors_of(path):
        with _beside(place, _make_file) as beside:
            yield beside
            with locked(place.parent):
                if found is not None and Found.file(place) != found:
                    raise _taken(path)
                if found is None or found.identity is not None:
                    os.replace(beside, place)
                else:
                    try:
                        move_new(beside, place)
                    except FileExistsError as error:
                        raise _taken(path) from error
        PLACED.append(path)
        _remove_leftovers(place)


@contextmanager
def _passed_through(path: Path) -> Iterator[Path]:
    """A file elsewhere, whose content is written to a descriptor or a device at the end."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="unskew-") as folder:
        yield Path(folder) / "passing"
        given = descriptor_of(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY) if given is None else given
        try:
            write_through(descriptor, Path(folder) / "passing")
        finally:
            if given is None:
                os.close(descriptor)


def _taken(path: Path) -> RunFolderError:
    return RunFolderError(
        "another process wrote there meanwhile, and what it wrote was left",
        where=str(path),
        remedy="choose another place, or re-run with --overwrite",
    )


PARTIAL, REPLACED = "partial", "replaced"
"""What lies beside a target for a while: what is being written, and what was moved aside."""


@contextmanager
def _beside(target: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """A new file or folder beside the target, ours as long as its lock is; removed at the end."""
    beside = _name_beside(target, PARTIAL)
    lock = Lock(beside)
    try:
        # Whoever removes leftovers asks for the same lock, and so never meets one that is not locked yet.
        with locked(target.parent):
            make(beside)
            lock.take()
        OURS.add(beside)
        yield beside
    finally:
        OURS.discard(beside)
        _remove(beside)
        lock.close()


def _make_file(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


def _name_beside(target: Path, what: str) -> Path:
    """A name that nobody has, with the process that writes there."""
    return target.with_name(f".{_called(target)}.{what}-{os.getpid()}-{os.urandom(4).hex()}")


def _called(target: Path) -> str:
    name = os.fsencode(target.name)
    if len(name) <= LONGEST_NAME:
        return target.name
    import hashlib

    return hashlib.sha256(name).hexdigest()


def _left(target: Path, what: str) -> list[Path]:
    """What lies beside a target, whoever put it there."""
    start = f".{_called(target)}.{what}-"
    try:
        return [target.with_name(name) for name in os.listdir(target.parent) if name.startswith(start)]
    except OSError:
        return []


def _abandoned(path: Path) -> bool:
    """Whether nobody writes it any more."""
    lock = Lock(path)
    try:
        taken = lock.take()
    finally:
        lock.close()
    if taken is not None:
        return taken
    # No locks here: is there still a process of that number?
    process = path.name.rpartition(f".{PARTIAL}-")[2] or path.name.rpartition(f".{REPLACED}-")[2]
    number = process.split("-")[0]
    return os.name == "posix" and number.isdecimal() and not lives(int(number))


def _remove_leftovers(target: Path) -> None:
    """What processes that were killed left beside the target, which is there."""
    if not (_left(target, PARTIAL) or _left(target, REPLACED)):
        return
    with locked(target.parent) as alone:
        for path in _left(target, PARTIAL) + _left(target, REPLACED):
            if alone and os.path.lexists(target) and _abandoned(path):
                _remove(path)


def _remove(path: Path) -> None:
    # Another user's may not be removed.
    with suppress(OSError):
        is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
        shutil.rmtree(path, ignore_errors=True) if is_folder else os.unlink(path)


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """A full disk and the like as an error of the target, which a person knows, not of what lies beside."""
    try:
        yield
    except OSError as error:
        named = f".{_called(real(path))}.{PARTIAL}-" in str(error.filename or "")
        if error.errno not in CANNOT_WRITE and not named:
            raise
        raise RunFolderError(
            f"cannot be written: {os.strerror(error.errno or errno.EIO)}",
            where=str(path),
            remedy="see to space and permissions there, or choose another place",
        ) from error


def write_text(path: Path, text: str) -> None:
    """A file of text that is whole or not there."""
    with whole_file(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Indented JSON; NaN and infinities, which JSON cannot say, become null."""
    write_text(path, json.dumps(_finite(value), indent=2, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
