"""Tables from CSV and Parquet files: one file, a folder, a glob. What the columns mean is left to others."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from unskew.errors import DataError

Paths = str | Path | Sequence[str | Path]
Table = Any
"""A ``pyarrow.Table``; pyarrow ships no types."""

PARQUET_SUFFIXES = (".parquet", ".pq")
CSV_DELIMITERS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
SUFFIXES = (*PARQUET_SUFFIXES, *CSV_DELIMITERS)


def expand_paths(paths: Paths) -> list[Path]:
    """The files of a file, a folder (with its subfolders), a glob, or several of these; sorted in each.

    In a folder only names that end in one of ``SUFFIXES`` count, and names that begin with ``_`` or ``.`` do
    not: those are the marks of the tools that wrote it.
    """
    if not isinstance(paths, (str, Path)):
        return [file for path in paths for file in expand_paths(path)]
    path = Path(paths).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        files = sorted(
            file
            for file in path.rglob("*")
            if file.is_file()
            and file.name.endswith(SUFFIXES)
            and not any(part.startswith(("_", ".")) for part in file.relative_to(path).parts)
        )
        if not files:
            raise DataError(
                "the folder has no CSV or Parquet files",
                where=str(paths),
                remedy=f"give a folder with files that end in {', '.join(SUFFIXES)}",
            )
        return files
    files = sorted(Path(match) for match in glob.glob(str(path), recursive=True) if Path(match).is_file())
    if not files:
        raise DataError(
            "no such file, and no folder or glob that matches one",
            where=str(paths),
            remedy="check the path",
        )
    return files


def read_table(paths: Paths, columns: Sequence[str] | None = None) -> Table:
    """Read CSV and Parquet files into one ``pyarrow.Table``, in the order of :func:`expand_paths`.

    Parameters
    ----------
    columns
        Columns to read; all by default. A Parquet file's other columns are never touched.
    """
    files = expand_paths(paths)
    return concatenate(files, [read_file(file, columns) for file in files])


def column_names(paths: Paths) -> list[str]:
    """The columns of the first file, without reading its rows."""
    file = expand_paths(paths)[0]
    with reading(file) as delimiter:
        if delimiter is None:
            return list(pa.parquet.read_schema(file).names)
        options = pa.csv.ParseOptions(delimiter=delimiter)
        with pa.csv.open_csv(file, parse_options=options) as reader:
            return list(reader.schema.names)


def read_file(file: Path, columns: Sequence[str] | None = None) -> Table:
    """One file as a table; an unreadable file or a missing column is an error that names the file."""
    with reading(file) as delimiter:
        if delimiter is None:
            require_columns(columns, pa.parquet.read_schema(file).names, file)
            return pa.parquet.read_table(file, columns=None if columns is None else list(columns))
        table = pa.csv.read_csv(
            file,
            parse_options=pa.csv.ParseOptions(delimiter=delimiter),
            # An empty cell in a text column is a missing id, not an id of no letters.
            convert_options=pa.csv.ConvertOptions(strings_can_be_null=True),
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
    """An error that names the file and the first column it does not have."""
    for name in columns or ():
        if name not in present:
            raise DataError(
                f"column '{name}' is missing",
                where=str(file),
                remedy=f"name one of the columns that are there: {', '.join(present)}",
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
