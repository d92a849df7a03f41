"""Arrays in memory, or mapped from files of a folder where they are large. Nobody downstream can tell."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError

Lines = NDArray[np.integer[Any]] | NDArray[np.bool_] | slice
"""Numbers or marks of rows, or a range of them, which are taken as a view."""

MAPPED_BYTES = 1 << 28
"""The arrays of a log that take more than this are mapped from files; those that take less are in memory."""

TAKEN_BYTES = 1 << 26
"""What is taken of a mapped array is mapped too where it takes more than this."""

PIECE_ROWS = 1 << 18
"""Rows of a mapped array that are worked on at a time."""


def pieces(rows: int) -> Iterator[slice]:
    """Yield ranges of at most :data:`PIECE_ROWS` rows that cover all rows."""
    for start in range(0, rows, PIECE_ROWS):
        yield slice(start, min(start + PIECE_ROWS, rows))


def require_disk(folder: Path, needed: int) -> None:
    """Raise an error where a folder has no room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise _full(folder, f"the log needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free")


def mapped(file: Path, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return a new ``.npy`` file as a writable array; its room on the disk is taken at once."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    try:
        with open(file, "wb") as target:
            header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False}
            np.lib.format.write_array_header_1_0(target, {**header, "shape": shape})
            start = target.tell()
            if size:
                # A mapped page without room on the disk would kill the process.
                os.posix_fallocate(target.fileno(), start, size)
        if not size:
            return np.empty(shape, dtype)
        return np.memmap(file, dtype=dtype, mode="r+", offset=start, shape=shape)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise _full(file.parent, "the disk is full") from error


def temporary(folder: Path, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return a mapped array whose file is gone with it, however the process ends."""
    descriptor, name = tempfile.mkstemp(suffix=".npy", dir=folder)
    os.close(descriptor)
    try:
        return mapped(Path(name), shape, dtype)
    finally:
        os.unlink(name)


def folder_of(array: NDArray[Any]) -> Path | None:
    """Return the folder of the cache that an array is mapped from; None of one in memory."""
    name = getattr(array, "filename", None)
    if not isinstance(array, np.memmap) or name is None:
        return None
    folder = Path(name).parent
    return folder if folder.is_dir() else Path(tempfile.gettempdir())


def empty_like(array: NDArray[Any], shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return a new array, mapped where ``array`` is and the new one is large."""
    folder = folder_of(array)
    if folder is None or int(np.prod(shape)) * np.dtype(dtype).itemsize < TAKEN_BYTES:
        return np.empty(shape, dtype)
    return temporary(folder, shape, dtype)


def lines_of(values: NDArray[Any], at: Lines) -> NDArray[Any]:
    """Return some of an array's lines; many lines of a mapped array are mapped too."""
    if isinstance(at, slice):
        return values[at]
    if folder_of(values) is None:
        # By numbers it is several times as fast as an index where lines are short.
        return values[at] if at.dtype == bool else values.take(at, axis=0)
    rows = np.flatnonzero(at) if at.dtype == bool else at
    lines = empty_like(values, (len(rows), *values.shape[1:]), values.dtype)
    for piece in pieces(len(rows)):
        lines[piece] = values[rows[piece]]
    return lines


def _full(folder: Path, problem: str) -> DataError:
    return DataError(
        problem,
        where=str(folder),
        remedy="make room there, or name another folder with cache= (--cache DIR)",
    )
