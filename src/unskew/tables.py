"""Tables from CSV and Parquet files: one file, a folder, a glob. What the columns mean is left to others."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from unskew.errors import DataError, ParameterError
from unskew.plain_text import listed

Paths = str | Path | Sequence[str | Path]
Table = Any
"""A ``pyarrow.Table``; pyarrow ships no types."""

PARQUET_SUFFIXES = (".parquet", ".pq")
CSV_DELIMITERS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
SUFFIXES = (*PARQUET_SUFFIXES, *CSV_DELIMITERS)

CSV_BLOCK_BYTES = 1 << 24
"""Bytes of a CSV file that are read at a time where it is not read as a whole."""

LEADING_ZERO = r"^[+-]?0([0-9]+([.eE].*)?|[xX].*)$"
"""Numbers whose digits a number does not keep: 007 and 7 are two ids, and 0x1f is read as 31."""
LONG = "^[+-]?[0-9]{16}"
"""Above 2^53, a number of 16 digits, doubles skip whole numbers."""


def expand_paths(paths: Paths) -> list[Path]:
    """The files of a file, a folder (with its subfolders), a glob, or several of these; sorted in each.

    In a folder only names that end in one of ``SUFFIXES`` count, and names that begin with ``_`` or ``.`` do
    not: those are the marks of the tools that wrote it.
    """
    if isinstance(paths, (str, Path)):
        try:
            return _expand_path(paths)
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise DataError(
                f"cannot be read: {reason}", where=str(paths), remedy="check the path and its permissions"
            ) from error
    if not _are_several(paths):
        raise ParameterError(
            f"{paths!r} is not a path", remedy="give a file, a folder, a glob, or a list of these, as text"
        )
    if not len(paths):
        raise ParameterError("the list of paths is empty", remedy="give at least one file, folder or glob")
    return [file for path in paths for file in expand_paths(path)]


def _are_several(paths: object) -> bool:
    return isinstance(paths, Collection) and not isinstance(paths, (bytes, bytearray, dict))


def _expand_path(given: str | Path) -> list[Path]:
    if not str(given).strip() or "\0" in str(given):
        raise DataError(
            f"{str(given)!r} is not a path", remedy="give a file, a folder or a glob; '.' for this folder"
        )
    path = Path(given).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        return _files_of_folder(path)
    files = sorted(Path(match) for match in glob.glob(str(path), recursive=True) if Path(match).is_file())
    if not files:
        raise DataError(
            "no such file, and no folder or glob that matches one",
            where=str(given),
            remedy="check the path",
        )
    return files


def _files_of_folder(folder: Path) -> list[Path]:
    inside = [
        path
        for path in folder.rglob("*")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
    ]
    for path in (folder, *inside):
        # A folder that may not be read looks like an empty one.
        if path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
            raise DataError("the folder may not be read", where=str(path), remedy="check its permissions")
    files = sorted(path for path in inside if path.is_file() and path.name.endswith(SUFFIXES))
    if not files:
        raise DataError(
            "the folder has no CSV or Parquet files",
            where=str(folder),
            remedy=f"give a folder with files that end in {', '.join(SUFFIXES)}",
        )
    return files


def read_table(
    paths: Paths,
    columns: Sequence[str] | None = None,
    *,
    numbers: Collection[str] = (),
) -> Table:
    """Read CSV and Parquet files into one ``pyarrow.Table``, in the order of :func:`expand_paths`.

    Parameters
    ----------
    columns
        Columns to read; all by default. A Parquet file's other columns are never touched.
    numbers
        Columns of CSV files that hold numbers whatever their digits; of the others, those are text that
        :func:`text_columns` finds in any of the files.
    """
    files = expand_paths(paths)
    return concatenate(files, read_files(files, columns, numbers=numbers))


def read_files(
    files: Sequence[Path],
    columns: Sequence[str] | None = None,
    *,
    numbers: Collection[str] = (),
) -> list[Table]:
    """A table of each file; a column that is text in one CSV file is text in all."""
    kept = set[str]().union(*(text_columns(file, columns, numbers=numbers) for file in files))
    return [read_file(file, columns, text=kept) for file in files]


def text_columns(
    file: Path, columns: Sequence[str] | None = None, *, numbers: Collection[str] = ()
) -> set[str]:
    """Columns of a CSV file that would be changed if they were read as numbers, and so must stay text.

    A column is text if any of its values begins with a 0 and another digit (00007), or is a number of 16
    digits or more in a column that 64-bit whole numbers cannot hold. The whole file is looked at, block by
    block. A Parquet file has types of its own, and no such columns.

    Parameters
    ----------
    columns
        Columns to look at; all by default.
    numbers
        Columns that are not looked at.
    """
    with reading(file) as delimiter:
        if delimiter is None:
            return set()
        present = _csv_names(file, delimiter)
        require_columns(columns, present, file)
        names = [name for name in columns or present if name not in numbers]
        if not names:
            return set()
        seen: dict[str, set[str]] = {name: set() for name in names}
        with open_csv(file, delimiter, names, dict.fromkeys(names, pa.binary())) as reader:
            for record in reader:
                for name in names:
                    seen[name] |= _kinds_of(record.column(name))
    return {
        name
        for name, kinds in seen.items()
        if "no text" not in kinds and ("leading zero" in kinds or {"long", "not whole"} <= kinds)
    }


def _kinds_of(values: Any) -> set[str]:
    """What is among the values of a CSV column, as far as it decides whether they stay text."""
    # Loading it takes longer than an audit of small Parquet files, which have no use for it.
    import pyarrow.compute as pc

    try:
        text = pc.utf8_trim_whitespace(values.cast(pa.string()))
    except pa.ArrowInvalid:
        return {"no text"}
    patterns = {"leading zero": LEADING_ZERO, "long": LONG}
    kinds = {
        kind for kind, regex in patterns.items() if pc.any(pc.match_substring_regex(text, regex)).as_py()
    }
    try:
        text.cast(pa.int64())
    except pa.ArrowInvalid:
        kinds.add("not whole")
    return kinds


def column_names(paths: Paths) -> list[str]:
    """The columns of the first file, without reading its rows."""
    file = expand_paths(paths)[0]
    with reading(file) as delimiter:
        if delimiter is None:
            return list(pa.parquet.read_schema(file).names)
        return _csv_names(file, delimiter)


def _csv_names(file: Path, delimiter: str) -> list[str]:
    with pa.csv.open_csv(file, parse_options=pa.csv.ParseOptions(delimiter=delimiter)) as reader:
        return list(reader.schema.names)


def open_csv(file: Path, delimiter: str, columns: Sequence[str] | None, types: Any) -> Any:
    """A reader of blocks of a CSV file; types of columns that are not told are guessed from the first."""
    return pa.csv.open_csv(
        file,
        read_options=pa.csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
        parse_options=pa.csv.ParseOptions(delimiter=delimiter),
        convert_options=pa.csv.ConvertOptions(
            include_columns=columns or [], column_types=types, strings_can_be_null=True
        ),
    )


def read_file(file: Path, columns: Sequence[str] | None = None, *, text: Collection[str] = ()) -> Table:
    """One file as a table; an unreadable file or a missing column is an error that names the file.

    ``text`` are columns that a CSV file gives as text, whatever they look like.
    """
    with reading(file) as delimiter:
        if delimiter is None:
            require_columns(columns, pa.parquet.read_schema(file).names, file)
            return pa.parquet.read_table(file, columns=None if columns is None else list(columns))
        table = pa.csv.read_csv(
            file,
            parse_options=pa.csv.ParseOptions(delimiter=delimiter),
            # An empty cell in a text column is a missing id, not an id of no letters.
            convert_options=pa.csv.ConvertOptions(
                strings_can_be_null=True, column_types=dict.fromkeys(text, pa.string())
            ),
        )
        require_columns(columns, table.column_names, file)
        return table if columns is None else table.select(list(columns))


@contextmanager
def reading(file: Path) -> Iterator[str | None]:
    """The delimiter of a CSV file, None for Parquet; what goes wrong inside becomes an error of the file."""
    delimiter = next((d for suffix, d in CSV_DELIMITERS.items() if file.name.endswith(suffix)), None)
    if delimiter is None and not file.name.endswith(PARQUET_SUFFIXES):
        raise DataError(
            "is neither CSV nor Parquet by its name",
            where=str(file),
            remedy=f"give files that end in {', '.join(SUFFIXES)}",
        )
    try:
        if file.stat().st_size == 0:
            raise DataError("the file is empty", where=str(file), remedy="write it again, or leave it out")
        yield delimiter
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"cannot be read as {'Parquet' if delimiter is None else 'CSV'}: {str(error).splitlines()[0]}",
            where=str(file),
            remedy="check that the file is whole and may be read, and write or download it again",
        ) from error


def require_columns(columns: Sequence[str] | None, present: list[str], file: Path) -> None:
    """An error that names the file and the first column it does not have, or has twice.

    Without ``columns`` all that are there are meant.
    """
    times = Counter(present)
    for name in present if columns is None else columns:
        if name not in times:
            raise DataError(
                f"column '{name}' is missing",
                where=str(file),
                remedy=f"name one of the columns that are there: {listed(present)}",
            )
        if times[name] > 1:
            raise DataError(
                f"column '{name}' is there {times[name]} times",
                where=str(file),
                remedy="rename all but one",
            )


def concatenate(files: list[Path], tables: list[Table]) -> Table:
    """One table; files that disagree on columns or types are an error that names the first to differ."""
    names = tables[0].column_names
    for file, table in zip(files, tables, strict=True):
        if set(table.column_names) != set(names):
            differing = sorted(set(table.column_names) ^ set(names))
            raise DataError(
                f"column '{differing[0]}' is not in all files",
                where=f"{file} and {files[0]}",
                remedy="give files with the same columns",
            )
    for end in range(2, len(tables) + 1):
        try:
            pa.concat_tables([t.slice(0, 0) for t in tables[:end]], promote_options="permissive")
        except pa.ArrowException as error:
            raise DataError(
                f"a column has another type than in {files[0]}: {str(error).splitlines()[0]}",
                where=str(files[end - 1]),
                remedy="write the column with one type in all files",
            ) from error
    return pa.concat_tables(tables, promote_options="permissive")
