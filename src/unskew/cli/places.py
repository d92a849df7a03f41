"""Checks of output paths before any work: writable, distinct, and not among the inputs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from unskew.base.errors import ParameterError


def check_outputs(
    files: Mapping[str, Path | None],
    *,
    folders: Mapping[str, Path] | None = None,
    read: Iterable[str | Path] = (),
) -> None:
    """Raise if an output cannot be written there, or would take the place of something else.

    Parameters
    ----------
    files
        Files to write, by the flag that names them; None is left out.
    folders
        Folders to write, by their flags; whether they may be is for ``check_target`` to tell.
    read
        Files and folders that the command reads. No output may be one of them or, where it is a folder, lie
        in it; nor may they lie in a folder that is written.
    """
    from unskew.base.files import check_file

    outputs = {flag: path for flag, path in files.items() if path is not None}
    for flag, path in outputs.items():
        check_file(path, f"{flag} {path}")
    written = [*outputs.items(), *(folders or {}).items()]
    for number, (flag, path) in enumerate(written):
        for source in map(Path, read):
            if _within(path, source) or _within(source, path):
                raise ParameterError(
                    f"{flag} {path} would change {source}, which is read", remedy=f"give another {flag}"
                )
        for other, taken in written[number + 1 :]:
            if _within(path, taken) or _within(taken, path):
                raise ParameterError(
                    f"{flag} {path} and {other} {taken} overlap", remedy=f"give another {flag}"
                )


def rows_outputs(out: str) -> tuple[dict[str, Path], dict[str, Path]]:
    """Return ``--out`` of rows for :func:`check_outputs`: as a file, or as a folder of part files."""
    from unskew.data.row_files import is_folder

    found = {"--out": Path(out)}
    return ({}, found) if is_folder(out) else (found, {})


def table_files(given: Iterable[str]) -> list[Path]:
    """Return the files that tables are read from; an empty name, which would mean all files, is an error."""
    from unskew.data.files import expand_paths

    names = list(given)
    if not all(names):
        raise ParameterError("the name of a file is empty", remedy="give a file, a folder or a glob")
    return expand_paths(names)


def name_of_tables(given: str, otherwise: str) -> str:
    """Return what outputs of some files are called after: the file, or the last folder with a name."""
    from unskew.data.files import GLOB_MARKS

    for part in reversed(Path(given).parts):
        name = part.split(".")[0] if part == Path(given).name else part
        if name.strip("./") and GLOB_MARKS.isdisjoint(name):
            return name
    return otherwise


def run_files(run: Path) -> list[Path]:
    """Return a run folder as something that is read."""
    from unskew.base.files import CONFIG

    return [run] if (run / CONFIG).exists() else []


def plain_name(name: str, what: str) -> str:
    """Return a name that may become a folder's; one that leads elsewhere is an error."""
    if name in ("", ".", "..") or any(mark in name for mark in ("/", "\\", "\0")):
        raise ParameterError(f"{what} {name!r} cannot be the name of a folder", remedy="give --out FOLDER")
    return name


def _within(path: Path, place: Path) -> bool:
    """Return whether a path is a place or lies in it, wherever links lead."""
    if path.exists() and place.exists() and path.samefile(place):
        return True
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(place))
