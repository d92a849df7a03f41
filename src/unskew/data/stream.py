"""Rows of files as batches of the columns that are asked for: in order, in bounded memory.

It knows files, columns and types; what the values mean is left to those who take the batches.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from unskew.base.columns import SHOWN_BYTES, is_number
from unskew.base.errors import DataError
from unskew.base.numbers import parts_of
from unskew.base.progress import Progress
from unskew.data import files as places
from unskew.data.files import (
    ArrowSchema,
    File,
    FileElsewhere,
    FrameInMemory,
    has_types,
    open_arrow,
    open_csv,
    opened,
    reading,
    require_columns,
    typed_schema,
)

RecordBatch = Any
"""A ``pyarrow.RecordBatch``; pyarrow ships no types."""
T = TypeVar("T")

BATCH_ROWS = 1 << 20
"""Most rows of a batch: some 10 MB for a score and an outcome."""
BATCH_BYTES = 1 << 25
"""Bytes of a batch, about: fewer rows where there are many columns, or long text."""
PIECE_ROWS = 1 << 15
"""Rows that are decoded at a time where a column's values may be of any length: a file of a few bytes can
hold long text, many times. Batches are joined from them."""
TEXT_BYTES = 64
"""Bytes that a value of any length is taken to have, when it is decided how many are decoded at a time."""
BUFFER_BYTES = 1 << 20
"""Bytes of a column of Parquet that are read at a time, while all columns together have :data:`BATCH_BYTES`.
Without a buffer, or with ``pre_buffer``, Arrow keeps whole row groups in memory, and those of a file may be
as large as it is."""
BATCHES_AHEAD = 4
"""Batches of numbers read before they are asked for, while the compiled pass is loaded: some 60 MB. Those of
text, or of all columns, may be of any size, and wait one at a time."""

ROW_OF_PLACE = re.compile(r"\brow (\d+)$")
"""Where the place of an error names a row."""
COUNT_OF_ROWS = re.compile(r" \(\d+ such rows\)|; \d+ such rows(?=\))")
"""How a message says how many rows of those at hand are wrong."""


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

    file: File
    first_row: int
    start: int
    record: RecordBatch
    done: float


def stream(
    files: Sequence[File],
    *,
    columns: Sequence[str] | None,
    numbers: Sequence[str] = (),
    text: Sequence[str] = (),
    types: Mapping[Any, Mapping[str, Any]] | None = None,
) -> Iterator[FileBatch]:
    """Yield batches of all files, one after the other; the next are read while one is worked on.

    Parameters
    ----------
    columns
        Columns to read; None for all.
    numbers
        Those of which the type is checked, and which a CSV file gives as float64 (or boolean); its others
        are text as it stands there.
    text
        Those that must hold one value a row. Text of a Parquet file comes as a dictionary and its codes.
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
    """Yield the same batches, with a bar of how much of the files is done."""
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
    """Return columns of numbers as NumPy arrays, without a copy where the type allows; a null is an error."""
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
    """Name the batch's file in a data error inside."""
    try:
        yield
    except DataError as error:
        where = f"{batch.file}, {error.where}" if error.where else str(batch.file)
        raise DataError(error.problem, where=where, remedy=error.remedy) from error


@contextmanager
def rows_located(batch: FileBatch) -> Iterator[None]:
    """Name, in a data error of a row of the batch inside, the file and the number of the row there.

    How many rows of the batch are wrong is left out: more of the file may be.
    """
    try:
        yield
    except DataError as error:
        where = ROW_OF_PLACE.sub(lambda row: f"row {batch.first_row + int(row[1])}", error.where or "")
        if isinstance(batch.file, FrameInMemory):
            raise DataError(error.problem, where=where or None, remedy=error.remedy) from error
        where = f"{batch.file}, {where}" if where else str(batch.file)
        problem = COUNT_OF_ROWS.sub("", error.problem)
        raise DataError(problem, where=where, remedy=error.remedy) from error


def cast_columns(batch: FileBatch, schema: ArrowSchema) -> list[Any]:
    """Return the columns of a batch in the order and of the types of a schema."""
    return list(cast(batch, schema).columns)


def cast(batch: FileBatch, schema: ArrowSchema) -> RecordBatch:
    """Return the columns of a schema with the types that all files have in common.

    Types that go together may have values that do not: 2⁵³ + 1 is no double. That is an error which names
    file, column and row.
    """
    record = batch.record.select(schema.names)
    columns = []
    for field, column in zip(schema, record.columns, strict=True):
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowException:
            # Of the rows up to there, the first with one that does not fit.
            rows = range(len(column))
            row = bisect_left(rows, True, key=lambda at: not _fits(column.slice(0, at + 1), field.type))
            raise DataError(
                f"value {column[row]} of type {column.type} does not fit {field.type}, the type that all"
                " files have in common",
                where=f"{batch.file}, column '{field.name}', row {batch.first_row + row}",
                remedy="write the column with one type in all files",
            ) from None
    return pa.record_batch(columns, schema=schema)


def _fits(column: Any, kind: Any) -> bool:
    try:
        column.cast(kind)
    except pa.ArrowException:
        return False
    return True


def schema_of(file: File, *, numbers: Collection[str] = (), guessed: Collection[str] = ()) -> ArrowSchema:
    """Return the columns of a file and their types, as :func:`stream` gives them.

    Of a CSV file, ``numbers`` are float64, or boolean where its first rows say true and false; columns in
    ``guessed`` are what Arrow takes the first rows for, and the others text.
    """
    with reading(file) as delimiter:
        if delimiter is None:
            return typed_schema(file)
        assert isinstance(file, Path)
        with open_csv(file, delimiter, None, {}) as reader:
            schema = reader.schema

    def kind(field: Any) -> Any:
        if field.name in guessed or (field.name in numbers and pa.types.is_boolean(field.type)):
            return field.type
        return pa.float64() if field.name in numbers else pa.string()

    return pa.schema([field.with_type(kind(field)) for field in schema])


def united_schema(
    files: Sequence[File], *, numbers: Collection[str] = (), guessed: Collection[str] = ()
) -> ArrowSchema:
    """Return the columns of all files, which must agree, of types that hold the values of each.

    A CSV file has no types: beside Parquet or Arrow files its columns have theirs, and otherwise those of
    :func:`schema_of`.
    """
    typed = next((file for file in files if has_types(file)), None)
    types = {} if typed is None else {field.name: field.type for field in schema_of(typed)}
    schemas = []
    for file in files:
        schema = schema_of(file, numbers=numbers, guessed=guessed)
        require_columns(None, schema.names, file)
        if not has_types(file):
            schema = pa.schema([field.with_type(types.get(field.name, field.type)) for field in schema])
        schemas.append(schema)
    return united(files, schemas)


def united(files: Sequence[object], schemas: Sequence[ArrowSchema]) -> ArrowSchema:
    """Return columns of types that hold the values of all files; the first file to differ is an error."""
    schemas = _decoded(schemas)
    names = set(schemas[0].names)
    for file, schema in zip(files, schemas, strict=True):
        if set(schema.names) != names:
            differing = sorted(set(schema.names) ^ names)
            raise DataError(
                f"column '{differing[0]}' is not in all files",
                where=f"{file} and {files[0]}",
                remedy="give files with the same columns",
            )

    def problem(count: int) -> str | None:
        """Return what the first files disagree on."""
        try:
            pa.unify_schemas(schemas[:count], promote_options="permissive")
        except pa.ArrowException as error:
            return str(error).splitlines()[0]
        return None

    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        # What some files disagree on, more files do not agree on.
        last = bisect_left(range(len(schemas)), True, key=lambda at: problem(at + 1) is not None)
        raise DataError(
            f"a column has another type than in {files[0]}: {problem(last + 1)}",
            where=str(files[last]),
            remedy="write the column with one type in all files",
        ) from error


def _decoded(schemas: Sequence[ArrowSchema]) -> list[ArrowSchema]:
    """Return schemas in which a column that is a dictionary in one and plain in another is plain: a writer
    chooses by the values of each file."""
    kinds: dict[str, set[bool]] = {}
    for field in (field for schema in schemas for field in schema if not pa.types.is_null(field.type)):
        kinds.setdefault(field.name, set()).add(pa.types.is_dictionary(field.type))

    def plain(field: Any) -> Any:
        both = pa.types.is_dictionary(field.type) and len(kinds[field.name]) > 1
        return field.with_type(field.type.value_type) if both else field

    return [pa.schema([plain(field) for field in schema], schema.metadata) for schema in schemas]


def holds_numbers(kind: Any) -> bool:
    """Return whether a column of this type holds numbers, or true and false."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(value) for test in tests)


def _size(file: File) -> int:
    if isinstance(file, FrameInMemory):
        return 1
    with reading(file):
        return file.stamp[0] if isinstance(file, FileElsewhere) else file.stat().st_size


def _batches(
    file: File,
    columns: Sequence[str] | None,
    numbers: Sequence[str],
    text: Sequence[str],
    types: Mapping[str, Any],
) -> Iterator[tuple[RecordBatch, float]]:
    """Yield the batches of a file, and the share of it that is read after each."""
    wanted = list(dict.fromkeys([*(columns or ()), *numbers, *text]))
    named = None if columns is None else wanted
    with reading(file) as delimiter:
        if isinstance(file, FrameInMemory):
            require_columns(named, list(file.frame.columns), file)
            table = file.table(named)
            schema = table.schema
        else:
            schema = schema_of(file, numbers=numbers)
        require_columns(wanted, schema.names, file)
        for name in (*numbers, *text):
            kind = schema.field(name).type
            if name in text and pa.types.is_nested(kind):
                problem, remedy = "not one value a row", "name a column of text, numbers or dates"
            elif name in numbers and not holds_numbers(kind):
                problem, remedy = "not numbers", "write the column as numbers, or name another one"
            else:
                continue
            raise DataError(f"column '{name}' holds {kind}, {problem}", where=str(file), remedy=remedy)
        if isinstance(file, FrameInMemory):
            done = 0
            for record in joined(iter(table.to_batches(max_chunksize=PIECE_ROWS))):
                done += record.num_rows
                yield record, done / len(table)
        elif delimiter is not None:
            assert isinstance(file, Path)
            kinds = {field.name: types.get(field.name, field.type) for field in schema}
            yield from _csv_batches(file, delimiter, named, numbers, kinds)
        elif isinstance(file, Path) and file.name.lower().endswith(places.ARROW_SUFFIXES):
            yield from _arrow_batches(file, named)
        else:
            yield from _parquet_batches(file, named, schema, text)


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
    file: Path | FileElsewhere, columns: Sequence[str] | None, schema: ArrowSchema, text: Sequence[str]
) -> Iterator[tuple[RecordBatch, float]]:
    read = list(schema) if columns is None else [schema.field(name) for name in columns]
    buffer = max(min(BUFFER_BYTES, BATCH_BYTES // max(len(read), 1)), 1)
    with (
        opened(file) as source,
        pa.parquet.ParquetFile(source, pre_buffer=False, buffer_size=buffer, read_dictionary=text) as parquet,
    ):
        rows, done = parquet.metadata.num_rows, 0
        for record in joined(parquet.iter_batches(_piece_rows(read, parquet.metadata), columns=columns)):
            done += record.num_rows
            yield record, done / rows


def _piece_rows(read: Sequence[Any], metadata: Any) -> int:
    """Return rows to decode at a time: those that surely fit a batch, and where row groups end if near."""
    widths = [_value_bytes(field.type) for field in read]
    rows = BATCH_ROWS if all(widths) else PIECE_ROWS
    rows = min(rows, max(BATCH_BYTES // max(sum(width or TEXT_BYTES for width in widths), 1), 1))
    group = metadata.row_group(0).num_rows if metadata.num_row_groups else 0
    # Arrow need not join what ends where row groups of the first one's size end.
    return rows // group * group if 0 < group <= rows else rows


def _value_bytes(kind: Any) -> int | None:
    """Return the bytes of a value, at least 1; None where they are of any number."""
    if pa.types.is_dictionary(kind) or pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return None
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return None


def joined(pieces: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield neighbours as one batch, of up to :data:`BATCH_ROWS` rows and about :data:`BATCH_BYTES`."""
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
    kinds: Mapping[str, Any],
) -> Iterator[tuple[RecordBatch, float]]:
    blocks = max(file.stat().st_size / places.CSV_BLOCK_BYTES, 1.0)
    read = 0

    def counted(reader: Any) -> Iterator[RecordBatch]:
        nonlocal read
        for record in reader:
            read += 1
            yield record

    try:
        with open_csv(file, delimiter, columns, kinds) as reader:
            for record in joined(counted(reader)):
                columns_there = [_empty_as_null(column) for column in record.columns]
                yield pa.record_batch(columns_there, names=record.schema.names), min(read / blocks, 1.0)
    except pa.ArrowInvalid as error:
        names = [name for name in numbers if kinds[name] == pa.float64()]
        if names:
            _refuse_first(file, delimiter, names, _not_a_number, "give numbers")
        match = re.match(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error", str(error))
        if match is None:
            raise
        column = list(kinds)[int(match[1])]
        remedy = "write the file in UTF-8 (iconv -f LATIN1 -t UTF-8, if it is Latin-1)"
        _refuse_first(file, delimiter, [column], _not_utf8, remedy)
        raise DataError(
            f"column '{column}' has values of several types: {error}",
            where=str(file),
            remedy="write the column with one type, or give Parquet",
        ) from error


def _empty_as_null(column: Any) -> Any:
    """Return a column of a CSV file with null for an empty cell: a missing id, not an id of no letters."""
    if not pa.types.is_string(column.type):
        return column
    return pc.if_else(pc.equal(pc.binary_length(column), 0), pa.scalar(None, column.type), column)


def _not_utf8(value: bytes | None) -> str | None:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        assert value is not None
        return f"value {value[:SHOWN_BYTES]!r} is not UTF-8"
    return None


def _not_a_number(value: bytes | None) -> str | None:
    text = None if value is None else value.decode(errors="replace")
    return None if text is None or is_number(text) else f"value {text[:SHOWN_BYTES]!r} is not a number"


def _refuse_first(
    file: Path,
    delimiter: str,
    columns: Sequence[str],
    problem_of: Callable[[bytes | None], str | None],
    remedy: str,
) -> None:
    """Raise an error for the first wrong value of some columns; Arrow tells no row, or only a part of it."""
    first_row = 0
    with open_csv(file, delimiter, columns, dict.fromkeys(columns, pa.binary())) as reader:
        for record in reader:
            wrong: list[tuple[int, str, str]] = []
            for name in columns:
                problems = map(problem_of, record.column(name).to_pylist())
                wrong += [(row, name, problem) for row, problem in enumerate(problems) if problem][:1]
            if wrong:
                row, name, problem = min(wrong)
                where = f"{file}, column '{name}', row {first_row + row}"
                raise DataError(problem, where=where, remedy=remedy)
            first_row += record.num_rows
