"""Rows written as they come: into one Parquet file, or into a folder of part files; whole or not there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from unskew import __version__
from unskew.base.errors import ParameterError
from unskew.base.files import FolderKind, NewFile, check_new_file, check_target, whole_file, whole_folder
from unskew.data.files import PARQUET_SUFFIXES

PART_ROWS = 1 << 23
"""Most rows of a part file, about: a batch is not cut."""

MARKER = "_unskew.json"
"""What tells a folder of part files that was written here from others. Names that begin so are no rows to
those who read a folder of Parquet files."""

PARTS = FolderKind(
    holds="rows of unskew",
    marker=MARKER,
    read=json.loads,
    keys=frozenset({"unskew", "rows", "parts"}),
    files=frozenset({MARKER}),
    parts=re.compile(r"part-\d{5}-\d{5}\.parquet"),
)


@dataclass(frozen=True)
class NewFolder:
    """A folder of part files that is to be written, and whether it may replace another."""

    path: Path
    overwrite: bool


Target = NewFile | NewFolder
"""Where rows are written."""


def is_folder(out: str | Path) -> bool:
    """Return whether an output is a folder of part files: it ends in a slash, is one, or has no suffix."""
    text = os.fspath(out)
    return text.endswith(("/", os.sep)) or os.path.isdir(text) or not Path(text).suffix


def check_rows_target(out: str | Path, *, overwrite: bool) -> Target:
    """Return where rows are to be written; an error if they could not be. Call it before the long work."""
    path = Path(out)
    if is_folder(out):
        check_target(path, overwrite=overwrite, kind=PARTS)
        return NewFolder(path, overwrite)
    if path.suffix not in PARQUET_SUFFIXES:
        raise ParameterError(
            f"{path} must end in .parquet", remedy="give -o FILE.parquet, or -o FOLDER/ for part files"
        )
    return check_new_file(path, overwrite=overwrite)


class RowsWriter:
    """Batches into a Parquet file, or into part files, in their order, by a thread of its own.

    Parameters
    ----------
    place
        The file, or the folder of part files.
    plain
        Columns of which hardly two values are the same: no dictionary is tried on them.
    """

    def __init__(self, place: Path, schema: Any, *, parts: bool, plain: tuple[str, ...]) -> None:
        self._place, self._schema, self._parts = place, schema, parts
        self._dictionary = [field.name for field in schema if field.name not in plain]
        self._pool = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None
        self._writer: Any = None
        self._in_part = 0
        self._file, self._number = -1, 0
        self.rows = 0
        self.names: list[str] = []

    def write(self, columns: list[Any], file: int) -> None:
        """Write a batch; the last one is waited for.

        Parameters
        ----------
        file
            The number of the file that the rows come from: those of two are not in one part file.
        """
        record = pa.record_batch(columns, schema=self._schema)
        self._wait()
        self._pending = self._pool.submit(self._write, record, file)

    def close(self, *, whole: bool) -> None:
        """Write what is left; of a failure, only close."""
        try:
            if whole:
                self._wait()
                if self._writer is None and not self._parts:
                    self._open(0)
        finally:
            self._pool.shutdown(wait=True)
            if self._writer is not None:
                self._writer.close()

    def _wait(self) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def _write(self, record: Any, file: int) -> None:
        if self._writer is None or (self._parts and (file != self._file or self._in_part >= PART_ROWS)):
            self._open(file)
        self._writer.write_batch(record)
        self._in_part += record.num_rows
        self.rows += record.num_rows

    def _open(self, file: int) -> None:
        if self._writer is not None:
            self._writer.close()
        target = self._place
        if self._parts:
            self._number = self._number + 1 if file == self._file else 0
            self._file, self._in_part = file, 0
            self.names.append(f"part-{file:05d}-{self._number:05d}.parquet")
            target = target / self.names[-1]
        self._writer = pa.parquet.ParquetWriter(target, self._schema, use_dictionary=self._dictionary)


@contextmanager
def rows_writer(target: Target, schema: Any, *, plain: tuple[str, ...] = ()) -> Iterator[RowsWriter]:
    """Give a writer beside the target, which is moved there at the end; nothing is left of a failure."""
    if isinstance(target, NewFile):
        with (
            whole_file(target) as beside,
            _closing(RowsWriter(beside, schema, parts=False, plain=plain)) as writer,
        ):
            yield writer
        return
    placing = whole_folder(target.path, overwrite=target.overwrite, kind=PARTS)
    with placing as folder:
        with _closing(RowsWriter(folder, schema, parts=True, plain=plain)) as writer:
            yield writer
        marker = {"unskew": __version__, "rows": writer.rows, "parts": writer.names}
        (folder / MARKER).write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")


@contextmanager
def _closing(writer: RowsWriter) -> Iterator[RowsWriter]:
    try:
        yield writer
    except BaseException:
        writer.close(whole=False)
        raise
    writer.close(whole=True)
