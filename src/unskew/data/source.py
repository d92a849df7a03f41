"""Where the rows of a log come from: files, folders and globs, data frames, tables and relations.

A source tells the names and types of its columns, and gives its rows as often as they are asked for: as one
table where they are few, in batches of bounded memory where they are many.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import narwhals.stable.v2 as nw
import pyarrow as pa
import pyarrow.parquet

from unskew.base.columns import column_of, frame_of, is_frame
from unskew.base.errors import DataError
from unskew.base.tables import (
    PARQUET_SUFFIXES,
    cast,
    concatenate,
    in_its_file,
    index_levels,
    is_time,
    lacking,
    names_of_file,
    open_csv,
    opened,
    read_file,
    reading,
    require_columns,
    typed_schema,
    united,
)
from unskew.data.places import File, files_of
from unskew.data.stream import FileBatch, rows_located, stream
from unskew.data.values import arrow_of

HELD_BYTES, HELD_CELLS = 1 << 26, 1 << 26
"""Files of so many bytes at most, and so many cells (rows × columns), are read at once; others in batches."""

COUNT_OF_ROWS = re.compile(r" \(\d+ such rows\)|; \d+ such rows(?=\))")
"""How a message says how many rows of those at hand are wrong."""

TIMES = (pa.date32(), pa.time32("s"), pa.timestamp("s"), pa.timestamp("ns"))
GUESSES: tuple[Any, ...] = (pa.null(), pa.int64(), pa.bool_(), *TIMES, pa.float64(), pa.string())
"""What Arrow takes the values of a CSV file for, in this order."""

PARTITION = re.compile(r"([^=]+)=(.*)")
"""The name of a folder that tells the value of a column."""
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class RowBatch:
    """Some rows, and how an error of them is placed."""

    table: Any
    place: Callable[[DataError], DataError] = lambda error: error
    done: float = 1.0
    """The share of the source that is read after it."""

    @contextmanager
    def located(self) -> Iterator[None]:
        """Name the file of a data error inside, and the number of the row there."""
        try:
            yield
        except DataError as error:
            raise self.place(error) from error

    def column(self, name: str) -> Any:
        """Return a column as one array."""
        column = self.table.column(name)
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


@dataclass(frozen=True)
class Reading:
    """Some columns of a source, of types that hold all their values."""

    schema: Any
    batches: Callable[[], Iterator[RowBatch]]
    place: Callable[[DataError], DataError] = lambda error: error
    """How an error that counts rows of all batches together is placed."""


class RowSource(ABC):
    """Rows with named columns."""

    lacking: Mapping[str, object] = {}
    """Columns that some files lack, and the first file that does."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The columns."""

    @property
    @abstractmethod
    def fields(self) -> list[str]:
        """The columns that may be features: without index levels of pandas."""

    @property
    @abstractmethod
    def times(self) -> list[str]:
        """The columns of times, by their type, that all files have."""

    @abstractmethod
    def read(self, columns: Sequence[str], guessed: Sequence[str] = ()) -> Reading:
        """Read some columns; those of CSV files are text, or of guessed types."""


def source_of(given: Any) -> RowSource:
    """Return the source of paths, or of a data frame, a table or a relation."""
    if isinstance(given, RowSource):
        return given
    if not isinstance(given, str | Path | list | tuple) and (is_frame(given) or hasattr(given, "columns")):
        return FrameSource(given)
    return FileSource(files_of(given))


class FrameSource(RowSource):
    """A data frame of any library; one that is computed when it is needed is computed now."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame_of(frame, collect=True)
        self._columns: dict[str, Any] = {}

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self.frame.columns)

    @property
    def fields(self) -> list[str]:
        """The columns that may be features."""
        metadata = getattr(getattr(self.frame.to_native(), "schema", None), "metadata", None)
        levels = index_levels(self.names, metadata)
        return [name for name in self.names if name not in levels]

    @property
    def times(self) -> list[str]:
        """The columns of times."""
        kinds = self.frame.schema
        return [name for name in self.names if kinds[name] == nw.Date or isinstance(kinds[name], nw.Datetime)]

    def read(self, columns: Sequence[str], guessed: Sequence[str] = ()) -> Reading:
        """Read some columns."""
        table = pa.table({name: self._column(name) for name in columns})
        return Reading(table.schema, lambda: iter([RowBatch(table)]))

    def _column(self, name: str) -> Any:
        if name not in self._columns:
            if name not in self.frame.columns:
                column_of(self.frame, name)  # Raises: the column is missing.
            self._columns[name] = arrow_of(self.frame[name], name)
        return self._columns[name]


class FileSource(RowSource):
    """CSV, Parquet and Arrow files with the same columns; folders named ``column=value`` are columns too."""

    def __init__(self, files: Sequence[File]) -> None:
        self.files = files

    @cached_property
    def partitions(self) -> dict[str, tuple[Any, list[str | None]]]:
        """The columns that folders tell: the type, and the value of each file."""
        of_files = [dict(_partitions_of(file)) for file in self.files]
        present = set(names_of_file(self.files[0]))
        names = [name for name in of_files[0] if name not in present and all(name in of for of in of_files)]
        texts = {name: [of[name] for of in of_files] for name in names}
        return {name: (_type_of(values), values) for name, values in texts.items()}

    @cached_property
    def names(self) -> list[str]:
        """The columns of the first file, and those that folders tell."""
        return [*names_of_file(self.files[0]), *self.partitions]

    @cached_property
    def lacking(self) -> Mapping[str, object]:  # type: ignore[override]
        """Columns that some files lack, and the first file that does."""
        if len(self.files) < 2:
            return {}
        return lacking(self.files, [[*names_of_file(file), *self.partitions] for file in self.files])

    @property
    def fields(self) -> list[str]:
        """The columns that may be features."""
        typed = self._typed_schema(self.files[0])
        levels = index_levels(self.names, None if typed is None else typed.metadata)
        return [name for name in self.names if name not in levels]

    @property
    def times(self) -> list[str]:
        """The columns of times."""
        typed = self._typed_schema(self.files[0])
        times = [] if typed is None else [each.name for each in typed if is_time(each.type)]
        times += [name for name, (kind, _) in self.partitions.items() if is_time(kind)]
        return [name for name in times if name not in self.lacking]

    def stamps(self) -> list[tuple[str, int, int | None]]:
        """Return name, size and time of change of each file."""
        stamps: list[tuple[str, int, int | None]] = []
        for file in self.files:
            if isinstance(file, Path):
                info = file.stat()
                stamps.append((str(file.absolute()), info.st_size, info.st_mtime_ns))
            else:
                stamps.append((str(file), *file.stamp))
        return stamps

    def read(self, columns: Sequence[str], guessed: Sequence[str] = ()) -> Reading:
        """Read some columns: at once if the files are small, else in batches."""
        own = [name for name in columns if name not in self.partitions]
        if self.is_small and self._cells(len(own)) <= HELD_CELLS:
            return self._held(own, columns, guessed)
        types = self._types(own, guessed)
        schema = united(
            self.files, [pa.schema([(name, types[file][name]) for name in own]) for file in self.files]
        )
        schema = pa.schema([(field.name, _roomy(field.type)) for field in schema])

        number_of: dict[object, int] = {file: number for number, file in enumerate(self.files)}
        rows = [0] * len(self.files)

        def batches() -> Iterator[RowBatch]:
            for batch in stream(self.files, columns=own, numbers=(), types=types):  # type: ignore[arg-type]
                table = pa.Table.from_batches([batch.record]).select(own)
                if table.schema != schema:
                    table = cast(table, schema, batch.file, batch.first_row)
                number = number_of[batch.file]
                rows[number] = batch.first_row + len(table)
                table = self._with_partitions(table, number)
                yield RowBatch(table.select(columns), _placed_in(batch), batch.done)

        whole = self._with_partitions(schema.empty_table(), 0).select(columns).schema
        return Reading(whole, batches, lambda error: in_its_file(error, self.files, rows))

    def _held(self, own: list[str], columns: Sequence[str], guessed: Sequence[str]) -> Reading:
        first = next((kind for file in self.files if (kind := self._typed_schema(file)) is not None), None)
        types = {} if first is None else {field.name: field.type for field in first}
        tables = []
        for number, file in enumerate(self.files):
            if isinstance(file, Path):
                table = read_file(file, own, numbers=[*guessed], types=types)
            else:
                with reading(file), opened(file) as source:
                    require_columns(own, typed_schema(file).names, file)
                    table = pa.parquet.read_table(source, columns=own)
            tables.append(self._with_partitions(table, number))
        table = concatenate(self.files, tables)
        lengths = [len(each) for each in tables]

        def place(error: DataError) -> DataError:
            return in_its_file(error, self.files, lengths)

        table = table.select(columns).combine_chunks()
        return Reading(table.schema, lambda: iter([RowBatch(table, place)]), place)

    @property
    def is_small(self) -> bool:
        """Whether the files have so few bytes that they may be read at once."""
        return sum(size for _, size, _ in self.stamps()) <= HELD_BYTES

    def _cells(self, columns: int) -> int:
        """Count rows × columns of Parquet files, of which a few bytes may hold very many."""
        rows = 0
        for file in self.files:
            if str(file).lower().endswith(PARQUET_SUFFIXES):
                with reading(file), opened(file) as source:
                    rows += pa.parquet.read_metadata(source).num_rows
        return rows * columns

    def _typed_schema(self, file: File) -> Any:
        """Return the columns of a file with types; None for CSV."""
        with reading(file) as delimiter:
            return None if delimiter is not None else typed_schema(file)

    def _types(self, columns: list[str], guessed: Sequence[str]) -> dict[File, dict[str, Any]]:
        """Return the types of some columns by file; those of a CSV file are guessed from all its rows."""
        typed: dict[str, Any] = {}
        found: dict[File, dict[str, Any]] = {}
        for file in self.files:
            schema = self._typed_schema(file)
            require_columns(columns, names_of_file(file) if schema is None else schema.names, file)
            if schema is not None:
                found[file] = {name: schema.field(name).type for name in columns}
                typed = typed or found[file]
        for file in self.files:
            if file not in found:
                assert isinstance(file, Path)
                text = {name: typed.get(name, pa.string()) for name in columns if name not in guessed}
                found[file] = text | _guessed_types(file, [name for name in guessed if name in columns])
        return found

    def _with_partitions(self, table: Any, number: int) -> Any:
        """Return the rows of a file with the columns that its folders tell."""
        for name, (kind, values) in self.partitions.items():
            value = pa.scalar(values[number], pa.string()).cast(kind)
            table = table.append_column(name, pa.repeat(value, len(table)))
        return table


def _guessed_types(file: Path, columns: Sequence[str]) -> dict[str, Any]:
    """Return the types that hold all values of columns of a CSV file, as Arrow guesses them."""
    types = dict.fromkeys(columns, GUESSES[0])
    while columns:
        with reading(file) as delimiter:
            try:
                with open_csv(file, delimiter or ",", columns, types) as rows:
                    for _ in rows:
                        pass
                return types
            except pa.ArrowInvalid as error:
                wrong = re.match(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error", str(error))
                name = None if wrong is None else names_of_file(file)[int(wrong[1])]
                if name not in types or types[name] == GUESSES[-1]:
                    raise
                types[name] = GUESSES[GUESSES.index(types[name]) + 1]
    return types


def _placed_in(batch: FileBatch) -> Callable[[DataError], DataError]:
    """Return what names the file and row of an error of a batch, which counts no rows: more may be wrong."""
    # Its rows need not stay in memory.
    light = batch._replace(record=None)

    def place(error: DataError) -> DataError:
        uncounted = DataError(COUNT_OF_ROWS.sub("", error.problem), where=error.where, remedy=error.remedy)
        try:
            with rows_located(light):
                raise uncounted
        except DataError as placed:
            return placed

    return place


def _partitions_of(file: File) -> Iterator[tuple[str, str | None]]:
    path = str(file) if not isinstance(file, Path) else str(file.absolute())
    for folder in path.split("/")[:-1]:
        match = PARTITION.fullmatch(folder)
        if match is not None:
            yield unquote(match[1]), None if match[2] == NO_PARTITION else unquote(match[2])


def _type_of(texts: Sequence[str | None]) -> Any:
    """Return the type of values of folders: whole numbers, dates or text; '01' is text."""
    known = [text for text in texts if text is not None]
    if known and all(re.fullmatch(r"0|-?[1-9]\d{0,17}", text) for text in known):
        return pa.int64()
    try:
        dates = [date.fromisoformat(text).isoformat() == text for text in known]
    except ValueError:
        return pa.string()
    return pa.date32() if dates and all(dates) else pa.string()


def _roomy(kind: Any) -> Any:
    """Return the same type with text of which Arrow takes any rows: not of views, nor of more than 2 GB."""
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
