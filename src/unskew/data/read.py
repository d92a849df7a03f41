"""Read a log from files, data frames, tables or relations, with one mapping of columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unskew.base.progress import SILENT, Progress
from unskew.data.cache import encoded_once
from unskew.data.log import Log
from unskew.data.options import LogOptions
from unskew.data.source import Source
from unskew.data.two_passes import log_of


def read_log(
    source: Any, *, cache: str | Path | None = None, progress: Progress = SILENT, **options: Any
) -> Log:
    """Read a log from files, or from a data frame, a table or a relation.

    CSV has no types: ids and kept columns are text as it stands there (007, 1e3, NA), unless ``numbers``
    names them. Features are of the type that their values look like, but for declared categories, which are
    text. An empty cell is missing. Folders named ``column=value`` are columns.

    Parameters
    ----------
    source
        CSV, Parquet or Arrow files: a file, a folder, a glob, or several of these, here or where one of
        pyarrow's file systems finds them (``s3://bucket/logs``, Parquet alone); or a data frame (pandas,
        polars, also a lazy one), an Arrow table, a DuckDB relation.
    cache
        The folder that arrays of more than 256 MB are mapped from, and found in by the next run; None is
        the user's cache directory, and ``"none"`` a temporary folder.
    progress
        What shows how far the reading is.
    user, item, click, conversion
        Names of the columns. ``click`` and ``conversion`` may be left out: they are then the columns of these
        names, if there are such; in the space ``"matrix"`` every listed pair was clicked where there is no
        column of clicks.
    keep
        Further columns to carry along.
    numbers
        Columns of a CSV file, of ids or kept ones, that are numbers.
    known_propensity
        The column with the probability that each row was shown, for a bandit log: all rows count as seen.
    space, duplicates, users, items, actions, all_known
        As in :meth:`unskew.Log.from_arrays`.
    features, ignore
        What networks read beside the ids, as in :meth:`unskew.Log.from_frame`.
    time
        The column that says when each row was, which is carried along.
    most_ids
        Users, and items, that have a code of their own at most, the most frequent; the others share codes by
        a hash of their ids.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "clicks.csv").write_text("uid,iid,bought\\na,1,1\\na,2,0\\nb,1,0\\n")
    >>> read_log(folder / "clicks.csv", user="uid", item="iid", conversion="bought")
    Log(matrix: 2 users × 2 items, 3 rows, 3 clicks, density 0.75)
    """
    return cached_log_of(Source.of(source), LogOptions(**options), cache, progress)


def cached_log_of(source: Source, asked: LogOptions, cache: str | Path | None, progress: Progress) -> Log:
    """Read a log as :func:`log_of` does; large arrays of files are found in a cache, or written there."""
    return encoded_once(source, cache, asked.digest, lambda make: log_of(source, asked, make, progress))
