"""Rows with named columns of files, folders and globs, data frames, tables and relations."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from unskew.base.columns import frame_of
from unskew.base.errors import DataError
from unskew.data.files import (
    ArrowSchema,
    File,
    FileElsewhere,
    FrameInMemory,
    Paths,
    expand_paths,
    files_of,
    has_types,
    names_of,
    open_csv,
    reading,
    require_columns,
    typed_schema,
)
from unskew.data.kinds import numbered
from unskew.data.stream import FileBatch, cast, stream, united
from unskew.data.values import packed

TIMES = (pa.date32(), pa.time32("s"), pa.timestamp("s"), pa.timestamp("ns"))
GUESSES: tuple[Any, ...] = (pa.null(), pa.int64(), pa.bool_(), *TIMES, pa.float64(), pa.string())
"""What Arrow takes the values of a CSV file for, in this order."""

PARTITION = re.compile(r"([^=]+)=(.*)")
"""The name of a folder that tells the value of a column."""
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"

INDEX_LEVEL = re.compile(r"__index_level_\d+__")
"""What pandas calls an index level without a name in a file."""


@dataclass(frozen=True)
class Reading:
    """Some columns of a source, of types that hold all their values."""

    schema: ArrowSchema
    batches: Callable[[], Iterator[FileBatch]]
    located: Callable[[], AbstractContextManager[None]]
    """Names the file, and the row there, of a data error inside that counts rows of all batches together."""


class Source:
    """Rows of files with the same columns, or of a frame; folders named ``column=value`` are columns too."""

    def __init__(self, files: Sequence[File]) -> None:
        self.files = files

    @classmethod
    def of(cls, given: Any) -> Source:
        """Return the source of paths, or of a data frame, a table or a relation."""
        return given if isinstance(given, Source) else cls(files_of(given))

    @classmethod
    def of_frame(cls, frame: Any) -> Source:
        """Return the rows of a data frame; one that is computed when it is needed is computed now."""
        return cls([FrameInMemory(frame_of(frame, collect=True))])

    @property
    def is_frame(self) -> bool:
        """True for the rows of a data frame."""
        return isinstance(self.files[0], FrameInMemory)

    @cached_property
    def partitions(self) -> dict[str, tuple[Any, list[str | None]]]:
        """The columns that folders tell: the type, and the value of each file."""
        of_files = [dict(_partitions_of(file)) for file in self.files]
        present = set(names_of(self.files[0]))
        names = [name for name in of_files[0] if name not in present and all(name in of for of in of_files)]
        texts = {name: [of[name] for of in of_files] for name in names}
        return {name: (_type_of(values), values) for name, values in texts.items()}

    @cached_property
    def names(self) -> list[str]:
        """The columns of the first file, and those that folders tell."""
        return [*names_of(self.files[0]), *self.partitions]

    @cached_property
    def lacking(self) -> Mapping[str, File]:
        """Columns that some files lack, and the first file that does."""
        if len(self.files) < 2:
            return {}
        columns = {file: {*names_of(file), *self.partitions} for file in self.files}
        names = dict.fromkeys(name for present in columns.values() for name in present)
        lacked = {
            name: next((file for file, present in columns.items() if name not in present), None)
            for name in names
        }
        return {name: file for name, file in lacked.items() if file is not None}

    @property
    def fields(self) -> list[str]:
        """The columns that may be features: without index levels of pandas."""
        file = self.files[0]
        metadata = typed_schema(file, ()).metadata if has_types(file) else None
        try:
            levels = json.loads((metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
        except (ValueError, AttributeError):
            levels = []
        named = [level for level in levels if isinstance(level, str)] if isinstance(levels, list) else []
        return [name for name in self.names if name not in named and not INDEX_LEVEL.fullmatch(name)]

    @property
    def times(self) -> list[str]:
        """The columns of times, by their type, that all files have."""
        file = self.files[0]
        fields = list(typed_schema(file)) if has_types(file) else []
        kinds = {field.name: field.type for field in fields}
        kinds |= {name: kind for name, (kind, _) in self.partitions.items()}
        return [name for name, kind in kinds.items() if is_time(kind) and name not in self.lacking]

    def stamps(self) -> list[tuple[str, int, int | None]]:
        """Return name, size and time of change of each file."""
        stamps: list[tuple[str, int, int | None]] = []
        for file in self.files:
            if isinstance(file, Path):
                info = file.stat()
                stamps.append((str(file.absolute()), info.st_size, info.st_mtime_ns))
            else:
                assert isinstance(file, FileElsewhere)
                stamps.append((str(file), *file.stamp))
        return stamps

    def read(self, columns: Sequence[str], guessed: Collection[str] = ()) -> Reading:
        """Read some columns in batches; those of CSV files are text, or of guessed types."""
        vectors = {name: numbered(name, self.names) for name in columns if name not in self.names}
        vectors = {name: group for name, group in vectors.items() if group}
        own = [name for name in columns if name not in self.partitions and name not in vectors]
        own += [name for group in vectors.values() for name in group if name not in own]
        types = self.types(own, guessed)
        schema = united(self.files, [pa.schema(types[file]) for file in self.files])
        schema = pa.schema([(field.name, _roomy(field.type)) for field in schema])
        number_of = {file: number for number, file in enumerate(self.files)}
        rows = [0] * len(self.files)

        def batches() -> Iterator[FileBatch]:
            for batch in stream(self.files, columns=own, types=types):
                number = number_of[batch.file]
                record = self._with_further(cast(batch, schema), number, vectors)
                rows[number] = batch.first_row + record.num_rows
                yield batch._replace(record=record.select(columns))

        @contextmanager
        def located() -> Iterator[None]:
            try:
                yield
            except DataError as error:
                if self.is_frame:
                    raise
                raise _in_its_file(error, self.files, rows) from error

        empty = self._with_further(schema.empty_table(), 0, vectors).select(columns)
        return Reading(empty.schema, batches, located)

    def types(
        self, columns: Sequence[str] | None = None, guessed: Collection[str] | None = ()
    ) -> dict[File, dict[str, Any]]:
        """Return the types of some columns by file; those of a CSV file are guessed from all its rows.

        None is all columns.
        """
        typed: dict[str, Any] = {}
        types: dict[File, dict[str, Any]] = {}
        named: dict[File, list[str]] = {}
        for file in self.files:
            present = names_of(file)
            require_columns(columns, present, file)
            named[file] = present if columns is None else [*columns]
            if has_types(file):
                schema = typed_schema(file, named[file])
                types[file] = {name: schema.field(name).type for name in named[file]}
                typed = typed or types[file]
        for file in self.files:
            if file not in types:
                guess = {*named[file]} if guessed is None else {*guessed}
                assert isinstance(file, Path)
                result = _guessed_types(file, [name for name in named[file] if name in guess])
                types[file] = {name: result.get(name, typed.get(name, pa.string())) for name in named[file]}
        return types

    def _with_further(self, record: Any, number: int, vectors: Mapping[str, list[str]]) -> Any:
        """Return the rows of a file with vectors of several columns, and columns that its folders tell."""
        for name, group in vectors.items():
            record = record.append_column(name, packed([record.column(each) for each in group], group))
        for name, (kind, values) in self.partitions.items():
            value = pa.scalar(values[number], pa.string()).cast(kind)
            record = record.append_column(name, pa.repeat(value, record.num_rows))
        return record


def read_table(
    paths: Paths, columns: Sequence[str] | None = None, *, numbers: Collection[str] | None = ()
) -> Any:
    """Read files into one ``pyarrow.Table``, in the order of :func:`expand_paths`.

    A CSV file has no types, so that its columns are text as it stands there (007, 1.10, TRUE, NA), an empty
    cell alone being null: whatever a guess made of them, two ids could become one. Beside Parquet or Arrow
    files they have the types of these.

    Parameters
    ----------
    columns
        Columns to read; all by default. Other columns of Parquet and Arrow files are never touched.
    numbers
        Columns of CSV files whose values tell their type, mostly numbers (or true and false); NA and null are
        missing there. None is all.
    """
    files: list[File] = [*expand_paths(paths)]
    types = Source(files).types(columns, numbers)
    schema = united(files, [pa.schema(types[file]) for file in files])
    batches = stream(files, columns=schema.names, types=types)
    return pa.Table.from_batches([cast(batch, schema) for batch in batches], schema)


def is_time(kind: Any) -> bool:
    """Return whether a type is one of times."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


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
                name = None if wrong is None else names_of(file)[int(wrong[1])]
                if name not in types or types[name] == GUESSES[-1]:
                    raise
                types[name] = GUESSES[GUESSES.index(types[name]) + 1]
    return types


def _partitions_of(file: File) -> Iterator[tuple[str, str | None]]:
    path = str(file.absolute()) if isinstance(file, Path) else str(file)
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


def _in_its_file(error: DataError, files: Sequence[File], lengths: Sequence[int]) -> DataError:
    """Name the file of a data error, and turn a row of all files together into a row of that file.

    Parameters
    ----------
    lengths
        Rows of each file, in the order in which they were put together.
    """
    where = error.where or ""
    row = re.search(r"(?<=row )\d+", where)
    if row is None:
        more = len(files) - 1
        match = f"{files[0]} and {more} more files" if more else str(files[0])
    else:
        ends = np.cumsum(lengths)
        number = int(np.searchsorted(ends, int(row[0]), side="right"))
        match = str(files[number])
        where = f"{where[: row.start()]}{int(row[0]) - (ends[number] - lengths[number])}{where[row.end() :]}"
    return DataError(error.problem, where=f"{match}, {where}" if where else match, remedy=error.remedy)
