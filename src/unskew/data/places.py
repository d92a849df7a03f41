"""Where files lie: paths, folders and globs of this machine, or of one of pyarrow's file systems."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.fs

from unskew.base.errors import DataError
from unskew.base.tables import (
    PARQUET_SUFFIXES,
    Paths,
    expand_paths,
    file_identity,
    require_once,
    several_paths,
)

SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://")
"""How a place begins that is not a path of this machine."""

OF_THIS_MACHINE = "file://"


@dataclass(frozen=True)
class FileElsewhere:
    """A file that one of pyarrow's file systems opens."""

    system: Any = field(compare=False)
    path: str
    uri: str

    def __str__(self) -> str:
        return self.uri

    def open(self) -> Any:
        """Open it for reading."""
        return self.system.open_input_file(self.path)

    @property
    def stamp(self) -> tuple[int, int | None]:
        """Its size, and when it changed; None where nobody knows."""
        info = self.system.get_file_info(self.path)
        return info.size, info.mtime_ns


File = Path | FileElsewhere


def files_of(paths: Paths) -> list[File]:
    """Return the files of paths, folders and globs, here or elsewhere (``s3://bucket/logs/**/*.parquet``).

    A place with a scheme is opened by pyarrow's file system of that scheme, but ``file://`` is a path like
    any other; ``s3://`` and ``gs://`` are tested with other systems in their place. What counts in folders
    and globs is what :func:`unskew.base.tables.expand_paths` has.
    """
    files: list[File] = []
    for place in [paths] if isinstance(paths, str | Path) else several_paths(paths):
        text = str(place)
        if text.startswith(OF_THIS_MACHINE):
            path = text.removeprefix(OF_THIS_MACHINE).removeprefix("localhost")
            if not path.startswith("/"):
                raise DataError(
                    "is no path of this machine",
                    where=text,
                    remedy=f"write {OF_THIS_MACHINE}/ and the path from the root, or the path alone",
                )
            files += expand_paths(
                path if os.path.exists(path) or glob.glob(path, recursive=True) else unquote(path)
            )
        elif SCHEME.match(text):
            files += _elsewhere(text)
        else:
            files += expand_paths(place)
    systems: list[Any] = []

    def identity(file: File) -> object:
        if isinstance(file, Path):
            return file_identity(file)
        if file.system not in systems:
            systems.append(file.system)
        return systems.index(file.system), file.path

    require_once(files, identity)
    for file in files:
        if not isinstance(file, Path) and not file.path.lower().endswith(PARQUET_SUFFIXES):
            raise DataError(
                "only Parquet files are read from elsewhere",
                where=str(file),
                remedy="write Parquet, or copy the file to this machine",
            )
    return files


def _elsewhere(uri: str) -> list[FileElsewhere]:
    try:
        system, paths = _found(uri)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"cannot be read: {str(error).strip().partition(chr(10))[0]}",
            where=uri,
            remedy="check the place and its keys",
        ) from error
    if not paths:
        raise DataError("no such file, and no folder or glob that matches one", where=uri, remedy="check it")
    scheme = SCHEME.match(uri)
    assert scheme is not None
    return [FileElsewhere(system, path, f"{scheme[0]}{path}") for path in sorted(paths)]


def _found(uri: str) -> tuple[Any, list[str]]:
    """A file system, and the files there that a file, a folder or a glob names."""
    fixed = re.split(r"[*?\[]", uri, maxsplit=1)[0]
    is_glob = fixed != uri
    try:
        # A mark of a glob may be part of a name.
        system, base = system_of(uri)
        kind = system.get_file_info(base).type
    except (pa.ArrowException, OSError, ValueError):
        if not is_glob:
            raise
        kind = pa.fs.FileType.NotFound
    if kind == pa.fs.FileType.File:
        return system, [base]
    if kind == pa.fs.FileType.Directory or not is_glob:
        return system, [path for path, parts in _files_below(system, base) if _counts(parts)]
    root = fixed.rpartition("/")[0] or fixed
    system, base = system_of(root)
    pattern = uri[len(root) :].strip("/").split("/")
    return system, [path for path, parts in _files_below(system, base) if _matches(parts, pattern)]


def system_of(uri: str) -> tuple[Any, str]:
    """What opens a place, and its path there."""
    # A path with spaces is no URI; what is one already (%20) stays as it is.
    escaped = re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", uri)
    system, path = pa.fs.FileSystem.from_uri(quote(escaped, safe="/:%?=&@+~"))
    return system, path


def _files_below(system: Any, base: str) -> Iterator[tuple[str, list[str]]]:
    """The paths of all files in a folder and its subfolders, and their parts from there."""
    for each in system.get_file_info(pa.fs.FileSelector(base, recursive=True, allow_not_found=True)):
        if each.type == pa.fs.FileType.File:
            yield each.path, each.path[len(base) :].strip("/").split("/")


def _counts(parts: Sequence[str]) -> bool:
    """Whether a file of a folder is one of data."""
    return not any(part.startswith(("_", ".")) for part in parts) and parts[-1].lower().endswith(
        PARQUET_SUFFIXES
    )


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a glob means a path: ``**`` any number of folders, no mark a dot at the beginning."""
    if not pattern:
        return not parts
    first, *rest = pattern
    if first == "**" and _matches(parts, rest):
        return True
    if not parts or (parts[0].startswith(".") and not first.startswith(".")):
        return False
    if first == "**":
        return _matches(parts[1:], pattern)
    return fnmatchcase(parts[0], first) and _matches(parts[1:], rest)
