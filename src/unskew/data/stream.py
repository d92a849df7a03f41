"""Rows of files as batches of the columns that are asked for: in order, in bounded memory.

It knows files, columns and types; what the values mean is left to those who take the batches.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from unskew.base import tables
from unskew.base.errors import DataError
from unskew.base.numbers import parts_of
from unskew.base.progress import Progress
from unskew.base.tables import (
    SHOWN_BYTES,
    FrameInMemory,
    Source,
    empty_as_null,
    is_arrow,
    name_undecodable,
    open_arrow,
    open_csv,
    opened,
    reading,
    require_columns,
    typed_schema,
)
from unskew.data.file_types import ArrowSchema, require_numbers, require_readable, schema_of

RecordBatch = Any
"""A ``pyarrow.RecordBatch``; pyarrow ships no types."""
T = TypeVar("T")

BATCH_ROWS = 1 << 20
"""Most rows of a batch of Parquet: some 10 MB for a score and an outcome."""

BATCH_BYTES = 1 << 25
"""Bytes of a batch of Parquet, about: fewer rows where there are many columns, or long text."""

PIECE_ROWS = 1 << 15
"""Rows that are decoded at a time where a column's values may be of any length: a file of a few bytes can
hold long text, many times. Batches are joined from them."""

TEXT_BYTES = 64
"""Bytes that a value of any length is taken to have, when it is decided how many are decoded at a time."""

BUFFER_BYTES = 1 << 20
"""Bytes of a column of Parquet that are read at a time, while all columns together have :data:`BATCH_BYTES`.
Without a buffer, or with ``pre_buffer``, Arrow keeps whole row groups in memory, and those of a file may be
as large as it is."""

ROW_OF_PLACE = re.compile(r"\brow (\d+)$")
"""Where the place of an error names a row."""

BATCHES_AHEAD = 4
"""Batches of numbers read before they are asked for, while the compiled pass is loaded: some 60 MB. Those of
text, or of all columns, may be of any size, and wait one at a time."""


@dataclass(frozen=True)
class Roles:
    """Which column is what."""

    score: str
    outcome: str
    weight: str | None = None
    segments: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns that must hold numbers: score, outcome, and the weight if there is one."""
        return (self.score, self.outcome) if self.weight is None else (self.score, self.outcome, self.weight)

    @property
    def names(self) -> list[str]:
        """Every column, once."""
        return list(dict.fromkeys((*self.numbers, *self.segments)))


class FileBatch(NamedTuple):
    """Rows of one file.

    ``first_row`` is the number of the first within the file, ``start`` within all files; ``done`` is the
    share of all bytes that is read after this batch.
    """

    file: Source
    first_row: int
    start: int
    record: RecordBatch
    done: float


def stream(
    files: Sequence[Source],
    *,
    columns: Sequence[str] | None,
    numbers: Sequence[str],
    text: Sequence[str] = (),
    types: Mapping[Any, Mapping[str, Any]] | None = None,
) -> Iterator[FileBatch]:
    """Batches of all files, one after the other; the next are read while one is worked on.

    Parameters
    ----------
    columns
        Columns to read; None for all.
    numbers
        Those of which the type is checked, and which a CSV file gives as float64 (or boolean); its others
        are text as it stands there.
    text
        Those that must hold one value a row.
    types
        Of columns of CSV files, by file.
    """
    sizes = np.array([_size(file) for file in files], dtype=np.float64)
    before = np.cumsum(sizes) - sizes

    def numbered() -> Iterator[FileBatch]:
        start = 0
        for index, file in enumerate(files):
            first_row = 0
            for record, share in _batches(file, columns, numbers, text, (types or {}).get(file, {})):
                done = (before[index] + share * sizes[index]) / sizes.sum()
                yield FileBatch(file, first_row, start, record, float(done))
                first_row += record.num_rows
                start += record.num_rows

    return _ahead(numbered(), 1 if columns is None or text else BATCHES_AHEAD)


def _ahead(items: Iterator[T], depth: int) -> Iterator[T]:
    """Yield the same items, ``depth`` of which another thread makes before they are asked for, from now on.

    What goes wrong there is raised here; the thread ends, after the item that it is at, once no more are
    asked for.
    """
    pool = ThreadPoolExecutor(1)
    pending = deque(pool.submit(next, items, None) for _ in range(depth))

    def given() -> Iterator[T]:
        try:
            while (item := pending.popleft().result()) is not None:
                pending.append(pool.submit(next, items, None))
                yield item
        finally:
            pool.shutdown(cancel_futures=True)

    return given()


def tracked(batches: Iterator[FileBatch], progress: Progress, what: str) -> Iterator[FileBatch]:
    """The same batches, with a bar of how much of the files is done."""
    tracker = progress.task(what, 100)

    def given() -> Iterator[FileBatch]:
        shown = 0
        for batch in batches:
            yield batch
            tracker.observe(100 * batch.done - shown, batch.record.num_rows, {})
            if int(100 * batch.done) > shown:
                tracker.advance(int(100 * batch.done) - shown)
            shown = int(100 * batch.done)
        tracker.finish()

    return given()


def number_columns(batch: FileBatch, names: Sequence[str]) -> list[NDArray[Any]]:
    """Columns of numbers as NumPy arrays, without a copy where the type allows; a null is an error."""
    arrays = []
    for name in names:
        column = batch.record.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            # `to_numpy` would import pandas where it is installed, which takes longer than to read the rows.
            arrays.append(np.from_dlpack(column))
            continue
        with located(batch):
            arrays += parts_of(column, name, batch.first_row)
    return arrays


@contextmanager
def located(batch: FileBatch) -> Iterator[None]:
    """A data error inside gets the name of the batch's file."""
    try:
        yield
    except DataError as error:
        where = f"{batch.file}, {error.where}" if error.where else str(batch.file)
        raise DataError(error.problem, where=where, remedy=error.remedy) from error


@contextmanager
def rows_located(batch: FileBatch) -> Iterator[None]:
    """A data error inside, of a row of the batch, gets the file's name and the number of the row in it."""
    try:
        yield
    except DataError as error:
        in_file = ROW_OF_PLACE.sub(lambda found: f"row {batch.first_row + int(found[1])}", error.where or "")
        where = f"{batch.file}, {in_file}" if in_file else str(batch.file)
        raise DataError(error.problem, where=where, remedy=error.remedy) from error


def cast_columns(batch: FileBatch, schema: ArrowSchema) -> list[Any]:
    """The columns of a batch in the order and of the types of a schema."""
    try:
        return [
            column if column.type == field.type else column.cast(field.type)
            for field, column in zip(schema, batch.record.select(schema.names).columns, strict=True)
        ]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"a column has values of several types: {error}",
            where=str(batch.file),
            remedy="write each column with one type in all files",
        ) from error


def _size(file: Source) -> int:
    if isinstance(file, FrameInMemory):
        return max(int(file.table.nbytes), 1)
    with reading(file):
        return file.stat().st_size if isinstance(file, Path) else int(file.stamp[0])


def _batches(
    file: Source,
    columns: Sequence[str] | None,
    numbers: Sequence[str],
    text: Sequence[str],
    types: Mapping[str, Any],
) -> Iterator[tuple[RecordBatch, float]]:
    """Yield the batches of a file, and the share of it that is read after each."""
    wanted = list(dict.fromkeys([*(columns or ()), *numbers, *text]))
    if isinstance(file, FrameInMemory):
        require_readable(file.table.schema, wanted, numbers, text, file)
        table = file.table if columns is None else file.table.select(wanted)
        done = 0
        for record in joined(iter(table.to_batches(max_chunksize=PIECE_ROWS))):
            done += record.num_rows
            yield record, done / len(table)
        return
    with reading(file) as delimiter:
        if delimiter is not None:
            yield from _csv_batches(file, delimiter, columns, numbers, text, types)
            return
        schema = typed_schema(file)
        require_readable(schema, wanted, numbers, text, file)
        named = None if columns is None else wanted
        if isinstance(file, Path) and is_arrow(file):
            yield from _arrow_batches(file, named)
        else:
            yield from _parquet_batches(file, named, schema)


def _arrow_batches(file: Path, columns: Sequence[str] | None) -> Iterator[tuple[RecordBatch, float]]:
    with open_arrow(file, columns) as reader:
        # A stream does not tell how many batches it has, nor where they lie.
        is_stream = isinstance(reader, pa.RecordBatchStreamReader)
        count, size, read = 0 if is_stream else reader.num_record_batches, file.stat().st_size, 0

        def pieces() -> Iterator[RecordBatch]:
            nonlocal read
            for whole in reader if is_stream else map(reader.get_batch, range(count)):
                for start in range(0, whole.num_rows, PIECE_ROWS):
                    yield whole.slice(start, PIECE_ROWS)
                read += whole.nbytes if is_stream else 1

        for record in joined(pieces()):
            yield record, min(read / (size if is_stream else count), 1.0)


def _parquet_batches(
    file: Path, columns: Sequence[str] | None, schema: ArrowSchema
) -> Iterator[tuple[RecordBatch, float]]:
    read = list(schema) if columns is None else [schema.field(name) for name in columns]
    with (
        opened(file) as source,
        pa.parquet.ParquetFile(
            source, pre_buffer=False, buffer_size=max(min(BUFFER_BYTES, BATCH_BYTES // max(len(read), 1)), 1)
        ) as parquet,
    ):
        rows, done = parquet.metadata.num_rows, 0
        pieces = parquet.iter_batches(piece_rows(read, parquet.metadata), columns=columns)
        for record in joined(pieces):
            done += record.num_rows
            yield record, done / rows


def piece_rows(read: Sequence[Any], metadata: Any) -> int:
    """Rows to decode at a time: those that surely fit a batch, and where row groups end if that is near."""
    widths = [value_bytes(field.type) for field in read]
    rows = BATCH_ROWS if all(widths) else PIECE_ROWS
    rows = min(rows, max(BATCH_BYTES // max(sum(width or TEXT_BYTES for width in widths), 1), 1))
    group = metadata.row_group(0).num_rows if metadata.num_row_groups else 0
    # Arrow need not join what ends where row groups of the first one's size end.
    return rows // group * group if 0 < group <= rows else rows


def value_bytes(kind: Any) -> int | None:
    """Bytes of a value, at least 1; None where they are of any number."""
    if pa.types.is_dictionary(kind) or pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return None
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return None


def joined(pieces: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """Neighbours as one batch, of up to :data:`BATCH_ROWS` rows and about :data:`BATCH_BYTES`."""
    held: list[RecordBatch] = []
    rows = size = 0
    for piece in pieces:
        if not piece.num_rows:
            continue
        if held and (rows + piece.num_rows > BATCH_ROWS or size + piece.nbytes > BATCH_BYTES):
            yield _one(held)
            held, rows, size = [], 0, 0
        held.append(piece)
        rows, size = rows + piece.num_rows, size + piece.nbytes
    if held:
        yield _one(held)


def _one(pieces: list[RecordBatch]) -> RecordBatch:
    if len(pieces) == 1:
        return pieces[0]
    return pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]


def _csv_batches(
    file: Path,
    delimiter: str,
    columns: Sequence[str] | None,
    numbers: Sequence[str],
    text: Sequence[str],
    types: Mapping[str, Any],
) -> Iterator[tuple[RecordBatch, float]]:
    schema = schema_of(file, numbers=numbers)
    wanted = list(dict.fromkeys([*(columns or ()), *numbers, *text]))
    require_columns(wanted, schema.names, file)
    require_numbers(schema, numbers, file)
    kinds = {field.name: types.get(field.name, field.type) for field in schema}
    blocks = max(file.stat().st_size / tables.CSV_BLOCK_BYTES, 1.0)
    try:
        with open_csv(file, delimiter, None if columns is None else wanted, kinds) as reader:
            read = 0

            def counted() -> Iterator[RecordBatch]:
                nonlocal read
                for record in reader:
                    read += 1
                    yield record

            for record in joined(counted()):
                nulls = [empty_as_null(column) for column in record.columns]
                yield pa.record_batch(nulls, names=record.schema.names), min(read / blocks, 1.0)
    except pa.ArrowInvalid as error:
        _name_text(file, delimiter, [name for name in numbers if kinds[name] == pa.float64()])
        place = re.match(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error", str(error))
        if place is None:
            raise
        column = schema.names[int(place[1])]
        name_undecodable(file, delimiter, [column])
        raise DataError(
            f"column '{column}' has values of several types: {error}",
            where=str(file),
            remedy="write the column with one type, or give Parquet",
        ) from error


def _name_text(file: Path, delimiter: str, numbers: Sequence[str]) -> None:
    """An error that names the first row with text in a column of numbers; Arrow tells only the value."""
    # It loads what works with data frames, which an audit has no use for.
    from unskew.base.columns import is_number

    first_row = 0
    with open_csv(file, delimiter, numbers, dict.fromkeys(numbers, pa.binary())) as reader:
        for record in reader:
            found: list[tuple[int, str, str]] = []
            for name in numbers:
                values = record.column(name).to_pylist()
                text = (None if value is None else value.decode(errors="replace") for value in values)
                found += [
                    (row, name, value[:SHOWN_BYTES])
                    for row, value in enumerate(text)
                    if not (value is None or is_number(value))
                ][:1]
            if found:
                row, name, value = min(found)
                raise DataError(
                    f"value {value!r} is not a number",
                    where=f"{file}, column '{name}', row {first_row + row}",
                    remedy="give numbers",
                )
            first_row += record.num_rows
