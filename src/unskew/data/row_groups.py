"""Row groups of Parquet files, on this machine or wherever one of pyarrow's file systems finds them.

Files are opened one at a time, and read in any order of their row groups. What columns mean is left to
others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.tables import (
    Paths,
    Table,
    cast,
    in_its_file,
    index_levels,
    is_time,
    lacking,
    reading,
    require_columns,
    united,
)
from unskew.data.file_types import ArrowSchema
from unskew.data.parquet_places import File, parquet_files, source_of
from unskew.data.stream import BATCH_BYTES, RecordBatch, parquet_buffer, piece_rows, value_bytes

COUNT_OF_ROWS = re.compile(r" \(\d+ such rows\)|; \d+ such rows(?=\))")
"""What a message says of how many rows of those at hand are wrong."""

STREAM_ANEW = "stream the files anew (stream_log, or start the run again) once they no longer change"


class Piece(NamedTuple):
    """Some neighbouring rows of one row group."""

    group: int
    start: int
    stop: int


Numbers = NDArray[np.int64] | range
"""Of rows."""


class FilePart(NamedTuple):
    """Where some rows come from: a file, and their numbers there."""

    file: File
    numbers: Numbers

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.numbers)

    def take(self, places: NDArray[np.int64]) -> FilePart:
        """Some of them."""
        if isinstance(self.numbers, range):
            # A range as an array is made number by number.
            return FilePart(self.file, places + self.numbers.start)
        return FilePart(self.file, self.numbers[places])


class Counted(NamedTuple):
    """Which rows of files count: a column, and what tells of its values."""

    column: str
    which: Callable[[Any], NDArray[np.bool_]]


class Chunk(NamedTuple):
    """Rows in memory, and where they come from."""

    table: Table
    parts: Sequence[FilePart]

    @contextmanager
    def located(self) -> Iterator[None]:
        """A data error inside gets the name of the file, and the number of the row there.

        It counts no rows: others of them may be wrong too.
        """
        try:
            yield
        except DataError as error:
            raise self.named(error) from error

    def named(self, error: DataError) -> DataError:
        """The same error with the name of the file, and the number of the row there."""
        return in_its_file(
            DataError(COUNT_OF_ROWS.sub("", error.problem), where=error.where, remedy=error.remedy),
            [part.file for part in self.parts],
            [part.rows for part in self.parts],
            lambda part, row: int(self.parts[part].numbers[row]),
        )


class Stamp(NamedTuple):
    """By which a file is known to be the one that was counted; the time is None where nobody knows it."""

    size: int
    changed: int | None


class _Group(NamedTuple):
    file: int
    number: int
    first_row: int
    rows: int


@dataclass(frozen=True, eq=False)
class RowGroups:
    """The row groups of Parquet files.

    Parameters
    ----------
    files
        As :func:`parquet_files` finds them.
    metadata
        What their ends say.
    counted
        Which of their rows count; None for all. The others are as good as not there.
    stamps
        What they were when ``metadata`` was read: a file that changed since is an error.
    """

    files: Sequence[File]
    metadata: Sequence[Any]
    counted: Counted | None = None
    stamps: Sequence[Stamp] = ()

    @classmethod
    def of(cls, paths: Paths) -> RowGroups:
        """Those of paths, folders and globs."""
        files = parquet_files(paths)
        # A file that changes between the two is refused later on.
        stamps = [_stamp_of(file) for file in files]
        return cls(files, [_metadata_of(file) for file in files], stamps=stamps)

    @cached_property
    def groups(self) -> list[_Group]:
        """All row groups with rows, in the order of the files."""
        found = []
        for index, metadata in enumerate(self.metadata):
            first = 0
            for number in range(metadata.num_row_groups):
                rows = metadata.row_group(number).num_rows
                if rows:
                    found.append(_Group(index, number, first, rows))
                first += rows
        if self.counted is not None:
            found = [group for group in self._counted_groups(found) if group.rows]
        if not found:
            raise DataError("the files have no rows", where=str(self.files[0]), remedy="give at least a few")
        return found

    def _counted_groups(self, groups: Sequence[_Group]) -> Iterator[_Group]:
        """The same groups, with how many of their rows count: their one column is read."""
        assert self.counted is not None
        schema = self.typed([self.counted.column])
        for index, of_file in groupby(groups, key=lambda group: group.file):
            with self.opened(index, schema) as opened:
                for group in of_file:
                    at, found = group.first_row, 0
                    for record in opened.iter_batches(row_groups=[group.number], columns=schema.names):
                        typed = _typed(record, schema, self.files[index], at)
                        found += int(self.counted.which(typed.column(0)).sum())
                        at += record.num_rows
                    if at < group.first_row + group.rows:
                        raise _changed(self.files[index])
                    yield group._replace(rows=found)

    @cached_property
    def sizes(self) -> Sequence[int]:
        """Rows of each row group."""
        return [group.rows for group in self.groups]

    @property
    def schema(self) -> ArrowSchema:
        """The columns of the first file."""
        return self._schemas[0]

    @property
    def column_names(self) -> list[str]:
        """Their names."""
        return list(self.schema.names)

    @property
    def field_names(self) -> list[str]:
        """Those that may be features: without index levels of pandas."""
        levels = index_levels(self.column_names, self.metadata[0].schema.to_arrow_schema().metadata)
        return [name for name in self.column_names if name not in levels]

    @property
    def time_columns(self) -> list[str]:
        """Those of times, by their type, that all files have."""
        return [each.name for each in self.schema if is_time(each.type) and each.name not in self.lacking]

    @cached_property
    def _schemas(self) -> list[ArrowSchema]:
        """The columns of each file; files of one writer share theirs."""
        met: dict[ArrowSchema, ArrowSchema] = {}
        schemas = (each.schema.to_arrow_schema().remove_metadata() for each in self.metadata)
        return [met.setdefault(schema, schema) for schema in schemas]

    @cached_property
    def _types(self) -> dict[tuple[str, ...], ArrowSchema]:
        """What :meth:`typed` found, by the names of columns."""
        return {}

    @cached_property
    def lacking(self) -> dict[str, File]:
        """The columns that some files have and others lack, and the first file that lacks each."""
        return lacking(self.files, [schema.names for schema in self._schemas])

    def typed(self, columns: Sequence[str]) -> ArrowSchema:
        """Some columns with types that all files can be read with; files that disagree are an error."""
        names = tuple(columns)
        if names not in self._types:
            # Of files whose columns are alike the first tells.
            first = dict(zip(reversed(self._schemas), reversed(self.files), strict=True))
            chosen = {}
            for schema in dict.fromkeys(self._schemas):
                require_columns(names, schema.names, first[schema])
                chosen[schema] = pa.schema([schema.field(name) for name in names])
            merged = united([first[schema] for schema in chosen], list(chosen.values()))
            self._types[names] = pa.schema([(field.name, _roomy(field.type)) for field in merged])
        return self._types[names]

    def chunks(
        self, pieces: Sequence[Piece], schema: ArrowSchema, rows: int, most_bytes: int | None = None
    ) -> Iterator[Chunk]:
        """The rows of pieces, in their order, as tables of so many rows (the last may have fewer).

        Tables that end earlier, by their bytes, are cut where those of so many rows are too.

        Parameters
        ----------
        schema
            Columns and types (:meth:`typed`).
        most_bytes
            Tables end earlier where they have so many; None for as many rows as were asked for.
        """
        held: list[tuple[FilePart, RecordBatch]] = []
        count = size = 0
        for part, record in self._records(pieces, schema):
            at = 0
            while at < part.rows:
                taken = min(part.rows - at, rows - count)
                piece = record.slice(at, taken)
                held.append((FilePart(part.file, part.numbers[at : at + taken]), piece))
                at, count, size = at + taken, count + taken, size + piece.nbytes
                if count == rows or (most_bytes is not None and size >= most_bytes):
                    yield _chunk(held, schema)
                    held, count, size = [], count % rows, 0
        if held:
            yield _chunk(held, schema)

    def rows_at(self, places: NDArray[np.int64], schema: ArrowSchema) -> Chunk:
        """Rows by their numbers among those of all files, which ascend."""
        sizes = np.array(self.sizes, dtype=np.int64)
        ends = np.cumsum(sizes)
        # A group of which no row is wanted is not read.
        groups = np.unique(np.searchsorted(ends, places, side="right"))
        records = self._records([Piece(int(number), 0, int(sizes[number])) for number in groups], schema)
        taken: list[tuple[FilePart, RecordBatch]] = []
        for end, size in zip(ends[groups], sizes[groups], strict=True):
            at = end - size
            while at < end:
                part, record = next(records)
                low, high = np.searchsorted(places, (at, at + part.rows))
                own = places[low:high] - at
                taken.append((part.take(own), record.take(pa.array(own))))
                at += part.rows
        return _chunk(taken, schema)

    def _records(
        self, pieces: Sequence[Piece], schema: ArrowSchema
    ) -> Iterator[tuple[FilePart, RecordBatch]]:
        """The rows of pieces as Arrow decodes them, some thousands at a time."""
        further = [] if self.counted is None else [self.counted.column]
        read = self.typed(list(dict.fromkeys([*schema.names, *further])))
        for index, of_file in groupby(pieces, key=lambda piece: self.groups[piece.group].file):
            file, metadata = self.files[index], self.metadata[index]
            with self.opened(index, read) as opened:
                for piece in of_file:
                    group = self.groups[piece.group]
                    at, first_row = 0, group.first_row
                    at_once = min(piece_rows(list(read), metadata), _fitting_rows(metadata, group, read))
                    for record in opened.iter_batches(at_once, row_groups=[group.number], columns=read.names):
                        typed = _typed(record, read, file, first_row)
                        numbers: Numbers = range(first_row, first_row + record.num_rows)
                        first_row += record.num_rows
                        if self.counted is not None:
                            which = self.counted.which(typed.column(self.counted.column))
                            numbers = FilePart(file, numbers).take(np.flatnonzero(which)).numbers
                            typed = typed.filter(pa.array(which))
                        first, last = max(piece.start - at, 0), min(piece.stop - at, len(numbers))
                        if first < last:
                            some = typed.slice(first, last - first).select(schema.names)
                            yield FilePart(file, numbers[first:last]), some
                        at += len(numbers)
                        if at >= piece.stop:
                            break
                    if at < piece.stop:
                        # Of a file that is cut while it is open Arrow gives fewer rows, without a word.
                        raise _changed(file)

    @contextmanager
    def opened(self, index: int, schema: ArrowSchema) -> Iterator[Any]:
        """A file to read columns from; an error where it is no longer the one that was counted."""
        self._require_same(index)
        with _reading(self.files[index]):
            try:
                with source_of(self.files[index]) as source:
                    yield pa.parquet.ParquetFile(
                        source,
                        metadata=self.metadata[index],
                        pre_buffer=False,
                        buffer_size=parquet_buffer(len(schema)),
                    )
            except (pa.ArrowException, OSError):
                self._require_same(index)
                raise
        # It may have been written over while it was read.
        self._require_same(index)

    def _require_same(self, index: int) -> None:
        """An error for a file that is another one than was counted: rows would get the codes of others."""
        file = self.files[index]
        try:
            same = not self.stamps or _stamp_of(file) == self.stamps[index]
        except FileNotFoundError:
            raise DataError("is gone since it was counted", where=str(file), remedy=STREAM_ANEW) from None
        except OSError:
            # Whoever reads it says what is wrong.
            return
        if not same:
            raise _changed(file)


@contextmanager
def _reading(file: File) -> Iterator[None]:
    """What goes wrong becomes an error that names the file."""
    if isinstance(file, Path):
        with reading(file):
            yield
        return
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"cannot be read as Parquet: {str(error).strip().partition(chr(10))[0]}",
            where=str(file),
            remedy="check that the file is whole, and that it may be read",
        ) from error


def _changed(file: File) -> DataError:
    return DataError("has changed since it was counted", where=str(file), remedy=STREAM_ANEW)


def _metadata_of(file: File) -> Any:
    with _reading(file), source_of(file) as source:
        return pa.parquet.read_metadata(source)


def _stamp_of(file: File) -> Stamp:
    if isinstance(file, Path):
        info = file.stat()
        return Stamp(info.st_size, info.st_mtime_ns)
    found = file.system.get_file_info(file.path)
    if found.type == pa.fs.FileType.NotFound:
        raise FileNotFoundError(str(file))
    return Stamp(found.size, found.mtime_ns)


def _fitting_rows(metadata: Any, group: _Group, schema: ArrowSchema) -> int:
    """Rows of a group that fit a batch by the bytes of their text in the file."""
    written = metadata.row_group(group.number)
    texts = {field.name for field in schema if value_bytes(field.type) is None}
    columns = (written.column(place) for place in range(written.num_columns)) if texts else ()
    size: int = sum(
        each.total_uncompressed_size for each in columns if each.path_in_schema.partition(".")[0] in texts
    )
    return max(BATCH_BYTES * int(written.num_rows) // max(size, 1), 1)


def _roomy(kind: Any) -> Any:
    """The same type with text of which Arrow takes any rows: not of views, nor of more than 2 GB."""
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _roomy(kind.value_type), kind.ordered)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(_roomy(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_roomy(kind.value_type), kind.list_size)
    return kind


def _typed(record: RecordBatch, schema: ArrowSchema, file: File, first_row: int) -> RecordBatch:
    if record.schema.equals(schema):
        return record
    return cast(record.select(schema.names), schema, file, first_row)


def _chunk(held: Sequence[tuple[FilePart, RecordBatch]], schema: ArrowSchema) -> Chunk:
    table = pa.Table.from_batches([record for _, record in held], schema).combine_chunks()
    return Chunk(table, [part for part, _ in held])
