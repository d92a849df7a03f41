"""Tables from CSV, Parquet and Arrow files, folders and globs. What the columns mean is left to others."""

from __future__ import annotations

import glob
import json
import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from unskew.base.errors import DataError, ParameterError
from unskew.base.plain_text import listed

File = TypeVar("File")
Paths = str | Path | Sequence[str | Path]
T = TypeVar("T")
Table = Any
"""A ``pyarrow.Table``; pyarrow ships no types."""

PARQUET_SUFFIXES = (".parquet", ".pq")
ARROW_SUFFIXES = (".feather", ".arrow", ".ipc")
STREAM_START = b"\xff\xff\xff\xff"
"""How an Arrow stream begins; an Arrow file begins with its name."""
PACKINGS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4", ".br": "brotli"}
"""How a CSV file may be packed, by the end of its name."""

CSV_DELIMITERS = {
    f"{kind}{packed}": delimiter
    for kind, delimiter in ((".csv", ","), (".tsv", "\t"))
    for packed in ("", *PACKINGS)
}
SUFFIXES = (*PARQUET_SUFFIXES, *ARROW_SUFFIXES, *CSV_DELIMITERS)
READABLE = f"{', '.join((*PARQUET_SUFFIXES, *ARROW_SUFFIXES))}, .csv or .tsv (packed: {', '.join(PACKINGS)})"
"""The same in words."""

GLOB_MARKS = frozenset("*?[")

CSV_BLOCK_BYTES = 1 << 21
"""Bytes of a CSV file that are read at a time where it is not read as a whole; no row may have more. Arrow
reads some 32 blocks ahead."""

SHOWN_BYTES = 40
"""Bytes of a wrong value that a message shows."""

UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""How a text begins that a spreadsheet saved as "Unicode"."""


def expand_paths(paths: Paths) -> list[Path]:
    """The files of a file, a folder (with its subfolders), a glob, or several of these; sorted in each.

    In a folder only names that end in one of ``SUFFIXES`` count, in small or large letters, and names that
    begin with ``_`` or ``.`` do not: those are the marks of the tools that wrote it. Links are followed, and
    a file with several names in a folder counts once. A file that is given twice is an error: its rows would
    count twice.
    """
    if isinstance(paths, (str, Path)):
        try:
            return _expand_path(paths)
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise DataError(
                f"cannot be read: {reason}", where=str(paths), remedy="check the path and its permissions"
            ) from error
    files = [file for path in several_paths(paths) for file in expand_paths(path)]
    require_once(files, file_identity)
    return files


def several_paths(paths: object) -> Sequence[str | Path]:
    """A list of paths; an error for what is none, and for an empty one."""
    if not (isinstance(paths, Collection) and not isinstance(paths, (bytes, bytearray, dict))):
        raise ParameterError(
            f"{paths!r} is not a path", remedy="give a file, a folder, a glob, or a list of these, as text"
        )
    assert isinstance(paths, Collection)
    if not len(paths):
        raise ParameterError("the list of paths is empty", remedy="give at least one file, folder or glob")
    return list(paths)


def require_once(files: Iterable[T], identity: Callable[[T], object]) -> None:
    """An error for a file that is there under two names, or twice."""
    first: dict[object, T] = {}
    for file in files:
        met = first.setdefault(identity(file), file)
        if met is not file:
            raise DataError(
                "is given twice" if str(met) == str(file) else f"is the same file as {met}",
                where=str(file),
                remedy="give each file once, or its rows would count twice",
            )


@dataclass(frozen=True, eq=False)
class FrameInMemory:
    """A data frame in the place of files."""

    table: Table

    def __str__(self) -> str:
        return "the data frame"


Source = Path | FrameInMemory
"""Where rows come from."""


def sources(given: Any) -> list[Source]:
    """The files that :func:`expand_paths` finds, or the one data frame that was given instead."""
    if not isinstance(given, (str, Path, list, tuple)):
        # It loads what works with data frames, which files have no use for.
        from unskew.base.columns import frame_of, is_frame

        if is_frame(given):
            try:
                return [FrameInMemory(frame_of(given).to_arrow())]
            except (pa.ArrowException, TypeError) as error:
                raise DataError(
                    f"a column has values of several types: {str(error).splitlines()[0]}",
                    where="the data frame",
                    remedy="write each column with one type, or leave it out",
                ) from error
    return list(expand_paths(given))


def is_place(text: str) -> bool:
    """Whether a text can only be meant for files: by its end, a folder in it, or a mark of a glob."""
    return text.lower().endswith(SUFFIXES) or not GLOB_MARKS.isdisjoint(text) or Path(text).name != text


def file_identity(file: Path) -> tuple[int, int]:
    """What a file is, under whatever name."""
    info = file.stat()
    return info.st_dev, info.st_ino


def _once(files: Iterable[Path]) -> list[Path]:
    """Sorted, and of several names of one file the first."""
    return sorted({file_identity(file): file for file in sorted(files, reverse=True)}.values())


def _expand_path(given: str | Path) -> list[Path]:
    if not str(given).strip() or "\0" in str(given):
        raise DataError(
            f"{str(given)!r} is not a path", remedy="give a file, a folder or a glob; '.' for this folder"
        )
    path = Path(given).expanduser()
    if ":" in str(path).partition(os.sep)[0]:
        # pyarrow takes http:x.parquet for a place on the network.
        path = path.absolute()
    if path.is_file():
        return [path]
    if path.is_dir():
        return _files_of_folder(path)
    files = _once(Path(match) for match in glob.glob(str(path), recursive=True) if Path(match).is_file())
    if not files:
        raise DataError(
            "no such file, and no folder or glob that matches one",
            where=str(given),
            remedy="check the path",
        )
    return files


def _files_of_folder(folder: Path) -> list[Path]:
    files = _once(file for file in _walk(folder, set()) if file.name.lower().endswith(SUFFIXES))
    if not files:
        raise DataError(
            "the folder has no CSV, Parquet or Arrow files",
            where=str(folder),
            remedy=f"give a folder with files that end in {READABLE}",
        )
    return files


def _walk(folder: Path, met: set[tuple[int, int]]) -> Iterator[Path]:
    """The files under a folder, wherever links lead, each folder once: a link may lead back."""
    # A folder that may not be read looks like an empty one.
    if not os.access(folder, os.R_OK | os.X_OK):
        raise DataError("the folder may not be read", where=str(folder), remedy="check its permissions")
    if file_identity(folder) in met:
        return
    met.add(file_identity(folder))
    for path in sorted(folder.iterdir()):
        if path.name.startswith(("_", ".")):
            continue
        if path.is_dir():
            yield from _walk(path, met)
        elif path.is_file():
            yield path


def read_table(
    paths: Paths,
    columns: Sequence[str] | None = None,
    *,
    numbers: Collection[str] = (),
) -> Table:
    """Read files into one ``pyarrow.Table``, in the order of :func:`expand_paths`.

    A CSV file has no types, so that its columns are text as it stands there (007, 1.10, TRUE, NA), an empty
    cell alone being null: whatever a guess made of them, two ids could become one. Beside Parquet or Arrow
    files they have the types of these.

    Parameters
    ----------
    columns
        Columns to read; all by default. Other columns of Parquet and Arrow files are never touched.
    numbers
        Columns of CSV files that hold numbers (or true and false); NA and null are missing there.
    """
    files = expand_paths(paths)
    return concatenate(files, read_files(files, columns, numbers=numbers))


def read_files(
    files: Sequence[Path],
    columns: Sequence[str] | None = None,
    *,
    numbers: Collection[str] = (),
) -> list[Table]:
    """A table of each file, of the types that :func:`read_table` tells."""
    types: dict[str, Any] = {}
    for file in files:
        with reading(file) as delimiter:
            if delimiter is None:
                types = {field.name: field.type for field in typed_schema(file)}
                break
    return [read_file(file, columns, numbers=numbers, types=types) for file in files]


def column_names(paths: Paths) -> list[str]:
    """The columns of the first file, without reading its rows."""
    file = expand_paths(paths)[0]
    return names_of_file(file)


def names_of_file(file: Any) -> list[str]:
    """Return the columns of a file, without reading its rows."""
    with reading(file) as delimiter:
        return list(typed_schema(file).names) if delimiter is None else _csv_names(file, delimiter)


INDEX_LEVEL = re.compile(r"__index_level_\d+__")
"""What pandas calls an index level without a name in a file."""


def index_levels(names: Iterable[str], metadata: Mapping[bytes, bytes] | None) -> set[str]:
    """Return the columns that are index levels of a pandas frame, which are no fields.

    Parameters
    ----------
    metadata
        Of the Arrow schema; None where there is none.
    """
    try:
        levels = json.loads((metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):
        levels = []
    named = [level for level in levels if isinstance(level, str)] if isinstance(levels, list) else []
    return {name for name in names if name in named or INDEX_LEVEL.fullmatch(name)}


def lacking(files: Sequence[File], names: Sequence[Sequence[str]]) -> dict[str, File]:
    """The same of files whose columns are known."""
    everywhere = set.intersection(*map(set, names)) if names else set()
    found = dict.fromkeys(name for each in names for name in each if name not in everywhere)
    return {
        name: next(file for file, each in zip(files, names, strict=True) if name not in each)
        for name in found
    }


def is_time(kind: Any) -> bool:
    """Whether a type is one of times."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _csv_names(file: Path, delimiter: str) -> list[str]:
    with pa.csv.open_csv(csv_source(file), parse_options=pa.csv.ParseOptions(delimiter=delimiter)) as reader:
        return list(reader.schema.names)


def csv_source(file: Path) -> Any:
    """What Arrow reads a CSV file from; it knows a packed one by small letters alone."""
    packed = PACKINGS.get(file.suffix.lower())
    return file if packed is None else pa.input_stream(str(file), compression=packed)


def is_arrow(file: Path) -> bool:
    """Whether a file is an Arrow (Feather) file by its name."""
    return file.name.lower().endswith(ARROW_SUFFIXES)


@contextmanager
def open_arrow(file: Path, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """Open an Arrow file or an Arrow stream in a file, as a reader of the batches of some of its columns."""
    with pa.memory_map(str(file)) as source:
        opened = pa.ipc.open_stream if source.read(len(STREAM_START)) == STREAM_START else pa.ipc.open_file
        source.seek(0)
        reader = opened(source)
        if columns is not None:
            places = [reader.schema.get_field_index(name) for name in columns]
            source.seek(0)
            reader = opened(source, options=pa.ipc.IpcReadOptions(included_fields=places))
        yield reader


@contextmanager
def opened(file: Any) -> Iterator[Any]:
    """Give what pyarrow reads a file from: a path, or a file elsewhere that opens itself."""
    if isinstance(file, Path):
        yield file
        return
    with file.open() as source:
        yield source


def typed_schema(file: Any) -> Any:
    """Return the columns of a Parquet or Arrow file and their types."""
    if isinstance(file, Path) and is_arrow(file):
        with open_arrow(file) as reader:
            return reader.schema
    with opened(file) as source:
        return pa.parquet.read_schema(source)


def _read_typed(file: Path, columns: Sequence[str] | None) -> Table:
    names = None if columns is None else list(columns)
    if not is_arrow(file):
        return pa.parquet.read_table(file, columns=names)
    with open_arrow(file, names) as reader:
        table = reader.read_all()
        return table if names is None else table.select(names)


def open_csv(file: Path, delimiter: str, columns: Sequence[str] | None, types: Any) -> Any:
    """A reader of blocks of a CSV file; types of columns that are not given are guessed from the first.

    Text is left as it is, an empty one too: :func:`empty_as_null`.
    """
    return pa.csv.open_csv(
        csv_source(file),
        read_options=pa.csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
        parse_options=pa.csv.ParseOptions(delimiter=delimiter),
        convert_options=pa.csv.ConvertOptions(
            include_columns=columns or [], column_types=types, strings_can_be_null=False
        ),
    )


def empty_as_null(column: Any) -> Any:
    """A column of a CSV file with null for an empty cell: a missing id, not an id of no letters.

    Arrow would make nulls of NA and null in text too, or of nothing; it keeps its own functions in a module
    that takes longer to load than an audit of small files.
    """
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([empty_as_null(chunk) for chunk in column.chunks], type=column.type)
    if not pa.types.is_string(column.type):
        return column
    _, offsets, text = column.buffers()
    ends = np.frombuffer(offsets, np.int32, len(column) + 1, offset=4 * column.offset)
    held = ends[1:] > ends[:-1]
    if held.all():
        return column
    there = pa.py_buffer(np.packbits(held, bitorder="little"))
    return pa.Array.from_buffers(
        column.type, len(column), [there, pa.py_buffer(ends.copy()), text or pa.py_buffer(b"")]
    )


def read_file(
    file: Path,
    columns: Sequence[str] | None = None,
    *,
    numbers: Collection[str] | None = (),
    types: Mapping[str, Any] | None = None,
) -> Table:
    """One file as a table; an unreadable file or a missing column is an error that names the file.

    Of a CSV file, ``numbers`` are of the type that Arrow guesses (None: all columns are), columns in
    ``types`` of these, and the others text.
    """
    with reading(file) as delimiter:
        if delimiter is None:
            require_columns(columns, typed_schema(file).names, file)
            return _read_typed(file, columns)
        present = _csv_names(file, delimiter)
        require_columns(columns, present, file)
        wanted = list(present if columns is None else columns)
        given = types or {}
        kinds = (
            {}
            if numbers is None
            else {name: given.get(name, pa.string()) for name in wanted if name not in numbers}
        )
        try:
            table = pa.csv.read_csv(
                csv_source(file),
                parse_options=pa.csv.ParseOptions(delimiter=delimiter),
                convert_options=pa.csv.ConvertOptions(
                    include_columns=wanted, column_types=kinds, strings_can_be_null=False
                ),
            )
        except pa.ArrowInvalid:
            name_undecodable(file, delimiter, wanted)
            raise
        return pa.table([empty_as_null(column) for column in table.columns], names=wanted)


def name_undecodable(file: Path, delimiter: str, columns: Sequence[str]) -> None:
    """An error that names the first value of some columns whose bytes are not UTF-8, if there is one."""
    first_row = 0
    with open_csv(file, delimiter, columns, dict.fromkeys(columns, pa.binary())) as reader:
        for record in reader:
            for name in columns:
                for row, value in enumerate(record.column(name).to_pylist(), first_row):
                    try:
                        value.decode()
                    except UnicodeDecodeError:
                        raise DataError(
                            f"value {value[:SHOWN_BYTES]!r} is not UTF-8",
                            where=f"{file}, column '{name}', row {row}",
                            remedy="write the file in UTF-8 (iconv -f LATIN1 -t UTF-8, if it is Latin-1)",
                        ) from None
            first_row += record.num_rows


@contextmanager
def reading(file: Any) -> Iterator[str | None]:
    """Give the delimiter of a CSV file, None where it has types; what goes wrong becomes an error that names
    the file."""
    delimiter = None
    try:
        delimiter = _delimiter(file) if isinstance(file, Path) else None
        yield delimiter
    except PermissionError as error:
        raise DataError("may not be read", where=str(file), remedy="see to its permissions") from error
    except UnicodeDecodeError as error:
        raise DataError(
            "the name of a column is not UTF-8",
            where=str(file),
            remedy="write the file in UTF-8 (iconv -f LATIN1 -t UTF-8, if it is Latin-1)",
        ) from error
    except (pa.ArrowException, OSError) as error:
        said = str(error).strip().partition("\n")[0]
        if "straddl" in said:
            raise DataError(
                f"a row has more than {CSV_BLOCK_BYTES >> 20} MB, or a quote is not closed",
                where=str(file),
                remedy="close the quotes, leave the long text out, or give Parquet",
            ) from error
        typed = "Arrow" if isinstance(file, Path) and is_arrow(file) else "Parquet"
        raise DataError(
            f"cannot be read as {'CSV' if delimiter else typed}: {said}",
            where=str(file),
            remedy="check that the file is whole, and write or download it again",
        ) from error


def _delimiter(file: Path) -> str | None:
    """Return the delimiter of a CSV file; a file of another kind, or without content, is an error."""
    name = file.name.lower()
    delimiter = next((d for suffix, d in CSV_DELIMITERS.items() if name.endswith(suffix)), None)
    if delimiter is None and not name.endswith((*PARQUET_SUFFIXES, *ARROW_SUFFIXES)):
        raise DataError(
            "is neither CSV, Parquet nor Arrow by its name",
            where=str(file),
            remedy=f"give files that end in {READABLE}",
        )
    if file.stat().st_size == 0:
        raise DataError("the file is empty", where=str(file), remedy="write it again, or leave it out")
    if delimiter is not None:
        with open(file, "rb") as source:
            start = source.read(2)
        if start in UTF_16:
            raise DataError(
                "is text in UTF-16, not in UTF-8",
                where=str(file),
                remedy="save it as CSV UTF-8, or convert it with iconv -f UTF-16 -t UTF-8",
            )
    return delimiter


def require_columns(columns: Sequence[str] | None, present: list[str], file: object) -> None:
    """An error that names the file and the first column it does not have, or has twice.

    Without ``columns`` all that are there are meant.
    """
    times = Counter(present)
    for name in present if columns is None else columns:
        if name not in times:
            folder = next((part for part in Path(str(file)).parts if part.startswith(f"{name}=")), None)
            raise DataError(
                f"column '{name}' is missing",
                where=str(file),
                remedy=f"name one of the columns that are there: {listed(present)}"
                if folder is None
                else f"'{folder}' is the name of a folder: write the column into the files too",
            )
        if times[name] > 1:
            raise DataError(
                f"column '{name}' is there {times[name]} times",
                where=str(file),
                remedy="rename all but one",
            )


def concatenate(files: Sequence[object], tables: list[Table]) -> Table:
    """One table; files that disagree on columns or types are an error that names the first to differ."""
    schemas = decoded([table.schema for table in tables])
    shared = united(files, schemas)
    tables = [
        table if table.schema == schema else table.cast(schema)
        for table, schema in zip(tables, schemas, strict=True)
    ]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        for file, table in zip(files, tables, strict=True):
            cast(table.select(shared.names), shared, file)
        raise


def united(files: Sequence[object], schemas: Sequence[Any]) -> Any:
    """The columns of files, of types that hold the values of each; those that disagree are an error that
    names the first to differ."""
    schemas = decoded(schemas)
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
        """What the first files disagree on."""
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


def decoded(schemas: Sequence[Any]) -> list[Any]:
    """The columns of files, those that are a dictionary in one and plain in another as plain: a writer
    chooses by the values of each file."""
    kinds: dict[str, set[bool]] = {}
    for field in (field for schema in schemas for field in schema if not pa.types.is_null(field.type)):
        kinds.setdefault(field.name, set()).add(pa.types.is_dictionary(field.type))

    def plain(field: Any) -> Any:
        both = pa.types.is_dictionary(field.type) and len(kinds[field.name]) > 1
        return field.with_type(field.type.value_type) if both else field

    return [pa.schema([plain(field) for field in schema], schema.metadata) for schema in schemas]


def cast(table: Table, schema: Any, file: object, first_row: int = 0) -> Table:
    """Rows of a file, which begin with ``first_row``, with the types that all files have in common.

    Types that go together may have values that do not: 2⁵³ + 1 is no double. That is an error which names
    file, column and row.
    """
    try:
        return table.cast(schema)
    except pa.ArrowException:
        for field in schema:
            column = table.column(field.name)
            # Of the rows up to there, the first with one that does not fit.
            row = bisect_left(
                range(len(column)), True, key=lambda at: not _fits(column.slice(0, at + 1), field.type)
            )
            if row < len(column):
                raise DataError(
                    f"value {column[row]} of type {column.type} does not fit {field.type}, the type that all"
                    " files have in common",
                    where=f"{file}, column '{field.name}', row {first_row + row}",
                    remedy="write the column with one type in all files",
                ) from None
        raise


def _fits(column: Any, kind: Any) -> bool:
    try:
        column.cast(kind)
    except pa.ArrowException:
        return False
    return True


def in_its_file(
    error: DataError,
    files: Sequence[object],
    lengths: Sequence[int],
    row_of: Callable[[int, int], int] = lambda part, row: row,
) -> DataError:
    """Name the file of a data error, and turn a row of all files together into a row of that file.

    Parameters
    ----------
    lengths
        Rows of each file, in the order in which they were put together.
    row_of
        From the number of a file, and of one of these rows, to the row of the file.
    """
    where = error.where or ""
    row = re.search(r"(?<=row )\d+", where)
    if row is None:
        more = len(set(map(str, files))) - 1
        place = f"{files[0]} and {more} more files" if more else str(files[0])
    else:
        ends = np.cumsum(lengths)
        part = int(np.searchsorted(ends, int(row[0]), side="right"))
        place = str(files[part])
        number = row_of(part, int(row[0]) - int(ends[part] - lengths[part]))
        where = f"{where[: row.start()]}{number}{where[row.end() :]}"
    return DataError(error.problem, where=f"{place}, {where}" if where else place, remedy=error.remedy)
