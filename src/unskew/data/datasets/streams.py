"""Parquet files as a stream of logs: the same columns and features as :func:`unskew.read_log` reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.base.columns import column_of, frame_of
from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require_choice
from unskew.base.progress import SILENT, Progress
from unskew.base.tables import Paths, is_time
from unskew.data import Log, StreamedLog, Wanted
from unskew.data.checks import names_of, require_roles
from unskew.data.datasets.dataset import TestIs
from unskew.data.datasets.files import (
    CLICK,
    Unseen,
    absent_columns,
    checked_unseen,
    held_out_logs,
    under,
)
from unskew.data.described import sources_of, without_auto
from unskew.data.log import require_kinds
from unskew.data.parquet_places import SCHEME
from unskew.data.row_groups import Chunk, Counted, Piece, RowGroups
from unskew.data.rows_of_files import ColumnNames
from unskew.data.scan import MOST_IDS, SCAN_ROWS, scanned
from unskew.data.splitting import Epoch, as_times, parse_duration, too_young
from unskew.data.stream import TEXT_BYTES, value_bytes
from unskew.data.streamed import BLOCK_ROWS
from unskew.data.vocabulary import Vocabulary

IN_MEMORY = 0.25
"""Share of the free memory that a log may take before its files are streamed."""

COPIES = 3
"""What a row takes while a log is read, in rows: as Arrow reads it, as a log carries it, and as codes."""


@dataclass(frozen=True, eq=False)
class StreamedDataset:
    """A training log that is streamed, and further logs in memory; all else as in :class:`unskew.Dataset`."""

    name: str
    train: StreamedLog
    test: Log | None
    validation: Log | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    test_is: TestIs = "logged"
    unbiased: Log | None = None


def stream_log(
    path: Paths,
    *,
    user: str = "user",
    item: str = "item",
    click: str | None = None,
    conversion: str | None = None,
    keep: Sequence[str] = (),
    features: Wanted | None = None,
    ignore: Sequence[str] = (),
    time: str | None = None,
    maturity: str | None = None,
    block_rows: int = BLOCK_ROWS,
    most_ids: int = MOST_IDS,
    users: Vocabulary | None = None,
    items: Vocabulary | None = None,
    progress: Progress = SILENT,
) -> StreamedLog:
    """Stream a log of impressions from Parquet files, of any size.

    The files are read once for the vocabularies, the schema and the counts, in bounded memory, and then once
    an epoch. While every id and every value has a code of its own, codes and features are those of
    :func:`unskew.read_log`.

    Parameters
    ----------
    path
        A file, a folder, a glob (``**`` too), or several of these, ``file:///logs/*.parquet`` too; or a place
        that one of pyarrow's file systems opens, such as ``s3://bucket/logs`` (untested).
    user, item, click, conversion, keep
        As in :func:`unskew.read_log`; there must be a column of clicks.
    features, ignore
        What networks read beside the ids, as in :meth:`unskew.Log.from_frame`. What needs all values of a
        column (quantiles, means) is taken from a million rows at random where there are more.
    time
        The column that says when each row was, which is carried along; by default the first column whose
        type is one of times, which has no missing values and is not ignored.
    maturity
        Leave out rows less than this before the last one (``"7d"``), by that time: too young to have
        converted.
    block_rows
        Rows of a block at most.
    most_ids
        Users, and items, that have a code of their own at most, the most frequent. The others share codes by
        a hash of their ids.
    users, items
        Vocabularies to share with another log.
    progress
        What shows how far the first pass is.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> columns = {"user": [1, 1, 2], "item": [7, 8, 7], "click": [1, 0, 1], "device": ["tv", "pc", "pc"]}
    >>> pq.write_table(pa.table(columns), folder / "day1.parquet")
    >>> stream_log(folder / "*.parquet", features="auto")
    StreamedLog(2 users × 2 items, 3 rows, 2 clicks, density 0.6667)
    """
    keep, ignore = names_of("keep", keep), names_of("ignore", ignore)
    require_roles(user, item, click=click or CLICK, conversion=conversion, time=time)
    require_kinds(users, items)
    files = RowGroups.of(path)
    columns = _columns(
        files, ColumnNames(user, item, click or CLICK, conversion, keep, time), features, ignore
    )
    if maturity is not None:
        files, columns, _ = mature_files(files, columns, maturity)
    return scanned(
        files,
        columns,
        features=features,
        ignore=ignore,
        block_rows=block_rows,
        most_ids=most_ids,
        users=users,
        items=items,
        progress=progress,
    )


def _columns(
    files: RowGroups, columns: ColumnNames, features: Wanted | None, ignore: Collection[str]
) -> ColumnNames:
    """The same columns, with those of times that may say when each row was."""
    if columns.click == CLICK and CLICK not in files.column_names:
        raise DataError(
            "the space 'impressions' needs a click for each row",
            where=str(files.files[0]),
            remedy="name the column of clicks with click= (--click)",
        )
    named = [] if features is None else sources_of(without_auto(features))
    if columns.time is not None:
        return columns
    ignored = {*columns.keep, *ignore} - set(named)
    taken = {columns.user, columns.item, *columns.outcomes, *ignored}
    return replace(columns, times=tuple(name for name in files.time_columns if name not in taken))


def mature_files(
    files: RowGroups, columns: ColumnNames, maturity: str
) -> tuple[RowGroups, ColumnNames, dict[str, Any]]:
    """Files without rows too young to have converted, the columns with the one of times that tells, and how
    many rows are too young, as ``mature_rows`` has it.

    The column of times is read twice, of whole numbers and text three times, and no other.
    """
    window = parse_duration(maturity)
    for name in columns.times if columns.time is None else [columns.time]:
        epoch = _epoch(files, name)
        last = _last_time(files, name, epoch, missing=columns.time is None)
        if last is not None:
            break
    else:
        raise DataError("the log has no column of times", remedy="name it with time= (--time COLUMN)")
    until = last - window

    def old(values: Any) -> NDArray[np.bool_]:
        return np.asarray(as_times(_values(values, name), name, epoch) <= until)

    mature = replace(files, counted=Counted(name, old))
    try:
        dropped = sum(files.sizes) - sum(mature.sizes)
    except DataError:
        raise too_young(maturity) from None
    facts = {
        "maturity": maturity,
        "immature_rows_dropped": dropped,
        "late_conversions_censored": 0,
        "mature_until": str(until.astype("datetime64[s]")),
    }
    return mature, replace(columns, time=name), facts


def _epoch(files: RowGroups, name: str) -> Epoch:
    """How whole numbers, or texts, of a column are times: a part of them does not tell."""
    if is_time(files.typed([name]).field(name).type):
        return Epoch(is_digits=False)
    epoch = Epoch()
    for chunk, column in _parts(files, name):
        with chunk.located():
            epoch = epoch.joined(Epoch.of(_values(column, name)))
    return epoch


def _last_time(files: RowGroups, name: str, epoch: Epoch, *, missing: bool) -> np.datetime64 | None:
    """The latest time of a column; None where some are missing and that is allowed."""
    latest: list[np.datetime64] = []
    for chunk, column in _parts(files, name):
        if missing and column.null_count:
            return None
        with chunk.located():
            latest.append(as_times(_values(column, name), name, epoch).max())
    return max(latest)


def _parts(files: RowGroups, name: str) -> Iterator[tuple[Chunk, Any]]:
    """A column of all rows, some at a time."""
    pieces = [Piece(number, 0, rows) for number, rows in enumerate(files.sizes)]
    for chunk in files.chunks(pieces, files.typed([name]), SCAN_ROWS):
        yield chunk, chunk.table.column(name).combine_chunks()


def _values(column: Any, name: str) -> NDArray[Any]:
    return column_of(frame_of(pa.table({name: column})), name)


def stream_files(
    root: str | Path | None = None,
    *,
    train: Paths | None = None,
    test: Paths | None = None,
    unbiased: Paths | None = None,
    user: str = "user",
    item: str = "item",
    click: str | None = None,
    conversion: str | None = None,
    keep: Sequence[str] = (),
    unseen: Unseen | None = None,
    test_is: TestIs = "logged",
    time: str | None = None,
    features: Wanted | None = None,
    ignore: Sequence[str] = (),
    maturity: str | None = None,
    block_rows: int = BLOCK_ROWS,
    most_ids: int = MOST_IDS,
    progress: Progress = SILENT,
    **other: Any,
) -> StreamedDataset:
    """Your own Parquet files of impressions as a dataset whose training log is streamed.

    Parameters
    ----------
    root, train, test, unbiased, unseen, test_is
        As the dataset ``"files"`` has them; test log and random sample are read into memory.
    other
        Further options of ``"files"``, which a stream has no use for, or cannot have.
    """
    unseen = checked_unseen(unseen, features)
    require_choice("test_is", test_is, get_args(TestIs))
    _refuse(other)
    keep, ignore = names_of("keep", keep), names_of("ignore", ignore)
    require_roles(user, item, click=click or CLICK, conversion=conversion, time=time)
    if train is None:
        if root is None:
            raise ParameterError("the dataset 'files' needs a training log", remedy="give train= or root=")
        train = str(root)
    elif not (isinstance(train, str) and SCHEME.match(train)):
        train = under(root, train)
    files = RowGroups.of(train)
    facts: dict[str, Any] = {"protocol": "honest", "unseen_rows_dropped": 0}
    names = ColumnNames(user, item, click or CLICK, conversion, keep, time)
    names = _columns(files, names, features, ignore)
    if maturity is not None:
        files, names, young = mature_files(files, names, maturity)
        facts |= young
    absent = absent_columns(
        files.field_names,
        [under(root, each) for each in (test, unbiased) if each is not None],
        features,
        {user, item, click or CLICK, conversion, *ignore},
    )
    facts["features_left_out"] = absent
    log = scanned(
        files,
        names,
        features=features,
        ignore=(*ignore, *absent),
        block_rows=block_rows,
        most_ids=most_ids,
        progress=progress,
    )
    columns: dict[str, Any] = {
        "user": user,
        "item": item,
        "conversion": conversion,
        "space": "impressions",
        "keep": keep,
    }
    if log.features is not None:
        columns["features"] = log.features.declared
    places = {"test": test, "unbiased": unbiased}
    held_out = held_out_logs(
        {role: None if paths is None else under(root, paths) for role, paths in places.items()},
        log,
        click or CLICK,
        columns,
        unseen,
        facts,
    )
    return StreamedDataset(
        "files", log, held_out.get("test"), facts=facts, test_is=test_is, unbiased=held_out.get("unbiased")
    )


def memory_needed(paths: Paths) -> int:
    """Bytes that the rows of Parquet files would take in memory, about, where they are not streamed."""
    files = RowGroups.of(paths)
    row = sum(value_bytes(each.type) or TEXT_BYTES for each in files.schema)
    return COPIES * row * sum(files.sizes)


def _refuse(other: Mapping[str, Any]) -> None:
    """Raise an error for options of files that a stream cannot have."""
    reasons = {
        "space='matrix'": "the population of a stream is its rows",
        "duplicates='max'": "a stream may have a pair several times",
    }
    for name, value in other.items():
        reason = reasons.get(f"{name}={value!r}")
        if name in ("known_propensity", "actions", "validation") and value is not None:
            reason = "it is not supported"
        if reason is not None:
            raise ParameterError(
                f"{name}={value!r} does not go with a stream: {reason}",
                remedy="leave it out, or read the log into memory (--no-stream)",
            )
