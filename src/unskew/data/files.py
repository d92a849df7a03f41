"""Where rows lie: files, folders and globs of this machine or elsewhere, and data frames in memory."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import narwhals.stable.v2 as nw
import pyarrow as pa
import pyarrow.csv
import pyarrow.fs
import pyarrow.parquet

from unskew.base.columns import arrow_of, frame_of, is_frame, series_of
from unskew.base.errors import DataError, ParameterError
from unskew.base.plain_text import listed

Paths = str | Path | Sequence[str | Path]
ArrowSchema = Any
"""A ``pyarrow.ArrowSchema``; pyarrow ships no types."""
T = TypeVar("T")

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
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""How a text begins that a spreadsheet saved as "Unicode"."""

CSV_BLOCK_BYTES = 1 << 21
"""Bytes of a CSV file that are read at a time; no row may have more. Arrow reads some 32 blocks ahead."""

GLOB_MARKS = frozenset("*?[")
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://")
"""How a place begins that is not a path of this machine."""
OF_THIS_MACHINE = "file://"


@dataclass(frozen=True)
class FileElsewhere:
    """A file that one of pyarrow's file systems opens."""

    system: Any = field(compare=False)
    path: str
    uri: str

    def __str__(self) -> str:
        return self.uri

    def open(self) -> Any:
        """Open it for reading."""
        return self.system.open_input_file(self.path)

    @property
    def stamp(self) -> tuple[int, int | None]:
        """Its size, and when it changed; None where nobody knows."""
        info = self.system.get_file_info(self.path)
        return info.size, info.mtime_ns


@dataclass(frozen=True, eq=False)
class FrameInMemory:
    """A data frame in the place of files; its columns become Arrow's when they are asked for."""

    frame: nw.DataFrame[Any]

    def __str__(self) -> str:
        return "the data frame"

    @property
    def metadata(self) -> Any:
        """The metadata of an Arrow table; None of others."""
        return getattr(getattr(self.frame.to_native(), "schema", None), "metadata", None)

    def table(self, columns: Sequence[str] | None) -> Any:
        """Return some columns as a ``pyarrow.Table``."""
        names = list(self.frame.columns if columns is None else columns)
        return pa.table([arrow_of(series_of(self.frame, name), name) for name in names], names=names)


File = Path | FileElsewhere | FrameInMemory


def expand_paths(paths: Paths) -> list[Path]:
    """Return the files of a file, a folder (with its subfolders), a glob, or several of these; sorted.

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
    files = [file for path in _several(paths) for file in expand_paths(path)]
    _require_once(files, _identity)
    return files


def files_of(given: Any) -> list[File]:
    """Return the files of paths, folders and globs, here or elsewhere (``s3://bucket/logs/**/*.parquet``).

    A data frame of any library stands for itself. A place with a scheme is opened by pyarrow's file system of
    that scheme, but ``file://`` is a path like any other. What counts in folders and globs is what
    :func:`expand_paths` has.
    """
    if not isinstance(given, str | Path | list | tuple) and (is_frame(given) or hasattr(given, "columns")):
        return [FrameInMemory(frame_of(given, collect=True))]
    files: list[File] = []
    for address in [given] if isinstance(given, str | Path) else _several(given):
        text = str(address)
        if text.startswith(OF_THIS_MACHINE):
            path = text.removeprefix(OF_THIS_MACHINE).removeprefix("localhost")
            if not path.startswith("/"):
                raise DataError(
                    "is no path of this machine",
                    where=text,
                    remedy=f"write {OF_THIS_MACHINE}/ and the path from the root, or the path alone",
                )
            is_there = os.path.exists(path) or glob.glob(path, recursive=True)
            files += expand_paths(path if is_there else unquote(path))
        elif SCHEME.match(text):
            files += _elsewhere(text)
        else:
            files += expand_paths(address)
    systems: list[Any] = []

    def identity(file: File) -> object:
        if isinstance(file, Path):
            return _identity(file)
        assert isinstance(file, FileElsewhere)
        if file.system not in systems:
            systems.append(file.system)
        return systems.index(file.system), file.path

    _require_once(files, identity)
    for file in files:
        if isinstance(file, FileElsewhere) and not file.path.lower().endswith(PARQUET_SUFFIXES):
            raise DataError(
                "only Parquet files are read from elsewhere",
                where=str(file),
                remedy="write Parquet, or copy the file to this machine",
            )
    return files


def is_place(text: str) -> bool:
    """Return whether a text can only be meant for files: by its end, a folder in it, or a mark of a glob."""
    return text.lower().endswith(SUFFIXES) or not GLOB_MARKS.isdisjoint(text) or Path(text).name != text


def _several(paths: object) -> Sequence[str | Path]:
    """Return a list of paths; what is none, and an empty one, are errors."""
    if not (isinstance(paths, Collection) and not isinstance(paths, (bytes, bytearray, dict))):
        raise ParameterError(
            f"{paths!r} is not a path", remedy="give a file, a folder, a glob, or a list of these, as text"
        )
    if not len(paths):
        raise ParameterError("the list of paths is empty", remedy="give at least one file, folder or glob")
    return list(paths)


def _require_once(files: Iterable[T], identity: Callable[[T], object]) -> None:
    """Raise an error for a file that is there under two names, or twice."""
    first: dict[object, T] = {}
    for file in files:
        met = first.setdefault(identity(file), file)
        if met is not file:
            raise DataError(
                "is given twice" if str(met) == str(file) else f"is the same file as {met}",
                where=str(file),
                remedy="give each file once, or its rows would count twice",
            )


def _identity(file: Path) -> tuple[int, int]:
    info = file.stat()
    return info.st_dev, info.st_ino


def _once(files: Iterable[Path]) -> list[Path]:
    """Return files sorted, and of several names of one file the first."""
    return sorted({_identity(file): file for file in sorted(files, reverse=True)}.values())


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
    problem, remedy = "no such file, and no folder or glob that matches one", "check the path"
    if path.is_dir():
        files = _once(file for file in _walk(path, set()) if file.name.lower().endswith(SUFFIXES))
        problem = "the folder has no CSV, Parquet or Arrow files"
        remedy = f"give a folder with files that end in {READABLE}"
    else:
        matches = map(Path, glob.glob(str(path), recursive=True))
        files = _once(match for match in matches if match.is_file())
    if not files:
        raise DataError(problem, where=str(given), remedy=remedy)
    return files


def _walk(folder: Path, met: set[tuple[int, int]]) -> Iterator[Path]:
    """Yield the files under a folder, wherever links lead, each folder once: a link may lead back."""
    # A folder that may not be read looks like an empty one.
    if not os.access(folder, os.R_OK | os.X_OK):
        raise DataError("the folder may not be read", where=str(folder), remedy="check its permissions")
    if _identity(folder) in met:
        return
    met.add(_identity(folder))
    for path in sorted(folder.iterdir()):
        if path.name.startswith(("_", ".")):
            continue
        if path.is_dir():
            yield from _walk(path, met)
        elif path.is_file():
            yield path


def _elsewhere(uri: str) -> list[FileElsewhere]:
    scheme = SCHEME.match(uri)
    assert scheme is not None
    try:
        system, paths = _found(uri)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"cannot be read: {str(error).strip().partition(chr(10))[0]}",
            where=uri,
            remedy="check the place and its keys",
        ) from error
    if not paths:
        raise DataError("no such file, and no folder or glob that matches one", where=uri, remedy="check it")
    return [FileElsewhere(system, path, f"{scheme[0]}{path}") for path in sorted(paths)]


def _found(uri: str) -> tuple[Any, list[str]]:
    """Return a file system, and the files there that a file, a folder or a glob names."""
    fixed = re.split(r"[*?\[]", uri, maxsplit=1)[0]
    is_glob = fixed != uri
    try:
        # A mark of a glob may be part of a name.
        system, base = system_of(uri)
        kind = system.get_file_info(base).type
    except (pa.ArrowException, OSError, ValueError):
        if not is_glob:
            raise
        kind = pa.fs.FileType.NotFound
    if kind == pa.fs.FileType.File:
        return system, [base]
    pattern = None
    if kind != pa.fs.FileType.Directory and is_glob:
        root = fixed.rpartition("/")[0] or fixed
        system, base = system_of(root)
        pattern = uri[len(root) :].strip("/").split("/")
    paths = []
    for entry in system.get_file_info(pa.fs.FileSelector(base, recursive=True, allow_not_found=True)):
        steps = entry.path[len(base) :].strip("/").split("/")
        if pattern is None:
            counts = steps[-1].lower().endswith(PARQUET_SUFFIXES)
            counts = counts and not any(step.startswith(("_", ".")) for step in steps)
        else:
            counts = _matches(steps, pattern)
        if counts and entry.type == pa.fs.FileType.File:
            paths.append(entry.path)
    return system, paths


def system_of(uri: str) -> tuple[Any, str]:
    """Return what opens a place, and its path there."""
    # A path with spaces is no URI; what is one already (%20) stays as it is.
    escaped = re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", uri)
    system, path = pa.fs.FileSystem.from_uri(quote(escaped, safe="/:%?=&@+~"))
    return system, path


def _matches(steps: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a glob means a path: ``**`` any number of folders, no mark a dot at the beginning."""
    if not pattern:
        return not steps
    first, *rest = pattern
    if first == "**" and _matches(steps, rest):
        return True
    if not steps or (steps[0].startswith(".") and not first.startswith(".")):
        return False
    if first == "**":
        return _matches(steps[1:], pattern)
    return fnmatchcase(steps[0], first) and _matches(steps[1:], rest)


@contextmanager
def reading(file: File) -> Iterator[str | None]:
    """Give the delimiter of a CSV file, None where it has types; an error inside names the file."""
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
        typed = "Arrow" if isinstance(file, Path) and _is_arrow(file) else "Parquet"
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
    with open(file, "rb") as source:
        start = source.read(2)
    if not start:
        raise DataError("the file is empty", where=str(file), remedy="write it again, or leave it out")
    if delimiter is not None and start in UTF_16:
        raise DataError(
            "is text in UTF-16, not in UTF-8",
            where=str(file),
            remedy="save it as CSV UTF-8, or convert it with iconv -f UTF-16 -t UTF-8",
        )
    return delimiter


def names_of(file: File) -> list[str]:
    """Return the columns of a file, without reading its rows."""
    if isinstance(file, FrameInMemory):
        return list(file.frame.columns)
    with reading(file) as delimiter:
        if delimiter is None:
            return list(typed_schema(file).names)
        assert isinstance(file, Path)
        options = pa.csv.ParseOptions(delimiter=delimiter)
        with pa.csv.open_csv(csv_source(file), parse_options=options) as reader:
            return list(reader.schema.names)


def has_types(file: File) -> bool:
    """Return whether a file tells the types of its columns (CSV does not)."""
    with reading(file) as delimiter:
        return delimiter is None


def typed_schema(file: File, columns: Sequence[str] | None = None) -> ArrowSchema:
    """Return the columns of a Parquet or Arrow file, or of a frame, and their types."""
    if isinstance(file, FrameInMemory):
        return file.table(columns).schema.with_metadata(file.metadata)
    if isinstance(file, Path) and _is_arrow(file):
        with open_arrow(file) as reader:
            return reader.schema
    with opened(file) as source:
        return pa.parquet.read_schema(source)


@contextmanager
def opened(file: Path | FileElsewhere) -> Iterator[Any]:
    """Give what pyarrow reads a file from: a path, or a file elsewhere that opens itself."""
    if isinstance(file, Path):
        yield file
        return
    with file.open() as source:
        yield source


def _is_arrow(file: Path) -> bool:
    return file.name.lower().endswith(ARROW_SUFFIXES)


@contextmanager
def open_arrow(file: Path, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """Open an Arrow file or an Arrow stream in a file, as a reader of the batches of some of its columns."""
    with pa.memory_map(str(file)) as source:
        starts = pa.ipc.open_stream if source.read(len(STREAM_START)) == STREAM_START else pa.ipc.open_file
        source.seek(0)
        reader = starts(source)
        if columns is not None:
            places = [reader.schema.get_field_index(name) for name in columns]
            source.seek(0)
            reader = starts(source, options=pa.ipc.IpcReadOptions(included_fields=places))
        yield reader


def csv_source(file: Path) -> Any:
    """Return what Arrow reads a CSV file from; it knows a packed one by small letters alone."""
    packed = PACKINGS.get(file.suffix.lower())
    return file if packed is None else pa.input_stream(str(file), compression=packed)


def open_csv(file: Path, delimiter: str, columns: Sequence[str] | None, types: Any) -> Any:
    """Return a reader of blocks of a CSV file; types that are not given are guessed from the first.

    Text is left as it is, an empty one too.
    """
    return pa.csv.open_csv(
        csv_source(file),
        read_options=pa.csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
        parse_options=pa.csv.ParseOptions(delimiter=delimiter),
        convert_options=pa.csv.ConvertOptions(
            include_columns=columns or [], column_types=types, strings_can_be_null=False
        ),
    )


def require_columns(columns: Sequence[str] | None, present: list[str], file: object) -> None:
    """Raise an error that names the file and the first column it does not have, or has twice.

    Without ``columns`` all that are there are meant.
    """
    times = Counter(present)
    for name in present if columns is None else columns:
        if name not in times:
            folder = next((step for step in Path(str(file)).parts if step.startswith(f"{name}=")), None)
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
