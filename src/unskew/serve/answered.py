"""Scores that were given and wait for their outcomes: the latest rows, in one file that outlives a kill.

The file is mapped into memory, so that what was written is the system's when the process dies. A request id
names the first of its rows, by a number that goes on and on; the place of a row is its number modulo the
size. A place that a later row took says so, and so does one whose outcome is known already.
"""

from __future__ import annotations

import mmap
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.errors import DataError, RunFolderError

MAGIC = b"unskew answered 1"
HEADER_BYTES = 64
TAG_BYTES = 4

COLUMNS = (("row", np.uint64), ("score", np.float32), ("model", np.uint32), ("known", np.uint8))
"""Of each place: the number of its row + 1, its score, by which model, and whether the outcome came."""

WAITS, FORGOTTEN, KNOWN = "waits", "forgotten", "known"


class Answered:
    """The latest rows that were scored.

    Parameters
    ----------
    path
        The file; one of another size is begun anew, and what waited in it is forgotten.
    size
        Rows that are remembered.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.size = size
        bytes_needed = HEADER_BYTES + sum(np.dtype(kind).itemsize for _, kind in COLUMNS) * size
        self.begun_anew = not _is_ours(path, size, bytes_needed)
        if self.begun_anew:
            _make(path, size, bytes_needed)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), bytes_needed)
        self._next: NDArray[np.uint64] = np.frombuffer(self._map, np.uint64, 1, 32)
        self.tag = bytes(self._map[40 : 40 + TAG_BYTES]).hex()
        start = HEADER_BYTES
        columns: list[NDArray[Any]] = []
        for _, kind in COLUMNS:
            columns.append(np.frombuffer(self._map, kind, size, start))
            start += np.dtype(kind).itemsize * size
        self._columns = columns

    def add(self, score: NDArray[np.float32], model: int) -> int:
        """Remember rows, of more than there are places the latest; the number of the first of all."""
        first = int(self._next[0])
        kept = score[-self.size :]
        number = first + len(score) - len(kept)
        start = number % self.size
        fits = min(len(kept), self.size - start)
        self._put(start, number, kept[:fits], model)
        if fits < len(kept):
            self._put(0, number + fits, kept[fits:], model)
        self._next[0] = first + len(score)
        return first

    def _put(self, place: int, first: int, score: NDArray[np.float32], model: int) -> None:
        rows, scores, models, known = self._columns
        at = slice(place, place + len(score))
        # Not a row while it is written: killed in between, it is forgotten, and not another's.
        rows[at] = 0
        scores[at] = score
        models[at] = model
        known[at] = 0
        # NumPy's range costs more than all of these, where there is one row.
        start = first + 1
        rows[at] = start if len(score) == 1 else np.arange(start, start + len(score), dtype=np.uint64)

    def request_id(self, first: int) -> str:
        """What outcomes of a request are sent with."""
        return f"{self.tag}-{first:x}"

    def row_of(self, request: str, row: int) -> int | None:
        """The number of a row of a request; None where the id is of another file, an error if it is none."""
        tag, _, digits = request.partition("-")
        if len(tag) != 2 * TAG_BYTES or not 0 < len(digits) <= 16 or not _is_hex(tag + digits):
            raise DataError(f"{request!r} is no request id", remedy="give what /score answered with")
        return int(digits, 16) + row if tag == self.tag else None

    def find(self, number: int | None) -> str:
        """Whether a row waits for its outcome, has it, or is no longer (or was never) remembered."""
        rows, _, _, known = self._columns
        if number is None or rows[number % self.size] != number + 1:
            return FORGOTTEN
        return KNOWN if known[number % self.size] else WAITS

    def take(self, numbers: list[int]) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
        """Scores and models of rows that wait; from now on their outcomes are known."""
        at = np.array(numbers, dtype=np.int64) % self.size
        _, scores, models, known = self._columns
        known[at] = 1
        return scores[at], models[at]


def _is_hex(text: str) -> bool:
    return all(letter in "0123456789abcdef" for letter in text)


def _is_ours(path: Path, size: int, bytes_needed: int) -> bool:
    if not path.is_file() or path.stat().st_size != bytes_needed:
        return False
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES)
    return head.startswith(MAGIC) and int.from_bytes(head[48:56], "little") == size


def _make(path: Path, size: int, bytes_needed: int) -> None:
    """A new file with all its blocks: met through a map, a full disk would be a signal and no error."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            header = MAGIC.ljust(32, b"\0") + bytes(8) + secrets.token_bytes(TAG_BYTES)
            header = header.ljust(48, b"\0") + size.to_bytes(8, "little")
            file.write(header.ljust(HEADER_BYTES, b"\0"))
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, bytes_needed)
            else:
                file.write(bytes(bytes_needed - HEADER_BYTES))
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise RunFolderError(
            f"cannot be written: {error.strerror}", where=str(path), remedy="see to space, or --remember less"
        ) from error
