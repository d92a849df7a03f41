"""Parquet files as a stream of logs: the same columns and features as :func:`unskew.read_log` reads."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from unskew.errors import DataError
from unskew.io.row_groups import RowGroups
from unskew.io.tables import Paths
from unskew.io.vocabulary import Vocabulary
from unskew.log import StreamedLog, Wanted
from unskew.log.scan import MOST_IDS, Columns, scanned
from unskew.log.streamed import BLOCK_ROWS
from unskew.progress import SILENT, Progress

CLICK = "click"
"""The column of clicks, unless another is named."""


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
        A file, a folder, a glob (``**`` too), or several of these; or a place that one of pyarrow's file
        systems opens, such as ``file:///logs/*.parquet`` or ``s3://bucket/logs`` (the latter untested).
    user, item, click, conversion, keep
        As in :func:`unskew.read_log`; there must be a column of clicks.
    features, ignore
        What networks read beside the ids, as in :meth:`unskew.Log.from_frame`. What needs all values of a
        column (quantiles, means) is taken from a million rows at random where there are more.
    time
        The column that says when each row was, which is carried along; by default the first column whose
        type is one of times and which has no missing values.
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
    files = RowGroups.of(path)
    present = files.column_names
    if click is None and CLICK not in present:
        raise DataError(
            "the space 'impressions' needs a click for each row",
            where=str(files.files[0]),
            remedy="name the column of clicks with click= (--click)",
        )
    columns = Columns(user, item, click or CLICK, conversion, tuple(keep), time)
    taken = {user, item, *columns.outcomes, *columns.carried, *ignore}
    schema = files.typed([name for name in present if name not in taken]) if time is None else ()
    times = tuple(
        each.name for each in schema if pa.types.is_timestamp(each.type) or pa.types.is_date(each.type)
    )
    return scanned(
        files,
        Columns(user, item, columns.click, conversion, tuple(keep), time, times),
        features=features,
        ignore=tuple(ignore),
        block_rows=block_rows,
        most_ids=most_ids,
        users=users,
        items=items,
        progress=progress,
    )
