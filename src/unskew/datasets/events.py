"""What datasets of impressions share: CSV files read block by block, and two logs with one vocabulary."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from unskew.datasets.dataset import errors_name
from unskew.errors import DataError
from unskew.estimator import require_whole
from unskew.io.tables import csv_source, open_csv, reading, require_columns
from unskew.io.vocabulary import Vocabulary
from unskew.log import Feature, Log, Wanted
from unskew.log.checks import names_of

BLOCK_BYTES = 1 << 23
"""Bytes of a file without a header that are parsed at a time; no line may have more."""


def require_rows(rows: Any) -> None:
    """An error for a number of rows that is none; None means all."""
    if rows is not None:
        require_whole(1, rows=rows)


def blocks_with_header(
    file: Path, types: Mapping[str, Any], remedy: str, rows: int | None = None
) -> Iterator[Any]:
    """Record batches of some columns of a CSV file with a header."""
    with _remedied(file, remedy), reading(file) as delimiter:
        require_columns(list(types), column_names_of(file), file)
        with open_csv(file, delimiter or ",", list(types), dict(types)) as reader:
            yield from _first(reader, rows, file, remedy)


def blocks_without_header(
    file: Path, types: Mapping[str, Any], remedy: str, rows: int | None = None
) -> Iterator[Any]:
    """Record batches of a CSV file whose lines begin at once and quote nothing."""
    with _remedied(file, remedy), reading(file):
        try:
            reader = pa.csv.open_csv(
                csv_source(file),
                read_options=pa.csv.ReadOptions(column_names=list(types), block_size=BLOCK_BYTES),
                parse_options=pa.csv.ParseOptions(quote_char=False),
                convert_options=pa.csv.ConvertOptions(column_types=dict(types), strings_can_be_null=False),
            )
            with reader:
                yield from _first(reader, rows, file, remedy)
        except pa.ArrowInvalid as error:
            raise DataError(
                f"cannot be read: {str(error).splitlines()[0]}", where=str(file), remedy=remedy
            ) from error


def column_names_of(file: Path) -> list[str]:
    """The header of a CSV file."""
    with reading(file) as delimiter, open_csv(file, delimiter or ",", None, {}) as reader:
        return list(reader.schema.names)


def own_features(
    wanted: Wanted | bool | None, own: Sequence[Feature], ignore: Collection[str] = ()
) -> list[Feature | str] | None:
    """Features as they are asked for; ``"auto"`` stands for those that a dataset declares, None for none."""
    if wanted is None or isinstance(wanted, bool):
        return None
    given = [wanted] if isinstance(wanted, str) else list(wanted)
    named: list[Feature | str] = [each for each in given if each != "auto"]
    if len(named) == len(given):
        return named
    known = {each if isinstance(each, str) else each.source for each in named} | set(
        names_of("ignore", ignore)
    )
    return [*named, *(each for each in own if each.source not in known)]


def event_logs(
    tables: Sequence[Any],
    files: Sequence[Path],
    *,
    keep: Collection[str],
    features: Sequence[Feature | str] | None = None,
    **columns: Any,
) -> tuple[Log, Log, dict[str, Any]]:
    """Training and test log of tables of impressions, whose ids are coded together, and what is new in test.

    A row is an event of its own: a test row is kept though its pair was clicked in training.

    Parameters
    ----------
    tables, files
        Those of both logs; files are for messages.
    features
        What networks read beside the ids; the test log is described as the training log is.
    columns
        As in :meth:`unskew.Log.from_frame`: names of ``user``, ``item``, ``click``, ``conversion`` and more.
    """
    options = dict(columns)
    for role in ("user", "item"):
        if f"{role}s" not in options:
            chunks = [chunk for table in tables for chunk in table.column(columns[role]).chunks]
            ids = pa.chunked_array(chunks).unique().to_numpy(zero_copy_only=False)
            options[f"{role}s"] = Vocabulary.of(ids, name=columns[role])
    options |= {"space": "impressions", "keep": tuple(keep)}
    with errors_name(files[0]):
        first = Log.from_frame(tables[0], features=features, **options)
    declared = None if first.features is None else first.features.declared
    with errors_name(files[1]):
        second = Log.from_frame(tables[1], features=declared, **options)
    return (
        first,
        second,
        {
            "leaked_cells_found": 0,
            "leaked_cells_dropped": 0,
            "test_rows_of_new_users": _new(second.user, first.user, first.n_users),
            "test_rows_of_new_items": _new(second.item, first.item, first.n_items),
        },
    )


def _new(code: Any, known: Any, size: int) -> int:
    """How many codes are not among those known."""
    return int((np.bincount(known, minlength=size) == 0)[code].sum())


def _first(reader: Any, rows: int | None, file: Path, remedy: str) -> Iterator[Any]:
    """The first rows of a reader, or all; a file without any is an error."""
    left = rows
    found = False
    for block in reader:
        part = block if left is None else block.slice(0, left)
        if part.num_rows:
            found = True
            yield part
        if left is not None:
            left -= part.num_rows
            if left <= 0:
                break
    if not found:
        raise DataError("the file has no rows", where=str(file), remedy=remedy)


@contextmanager
def _remedied(file: Path, remedy: str) -> Iterator[None]:
    """Data errors inside get the remedy of the dataset: to download the file again."""
    try:
        yield
    except DataError as error:
        if error.remedy == remedy:
            raise
        raise DataError(error.problem, where=error.where or str(file), remedy=remedy) from error
