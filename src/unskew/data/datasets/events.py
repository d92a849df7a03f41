"""What datasets of impressions share: CSV files read block by block, and two logs with one vocabulary."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from unskew.base.errors import DataError
from unskew.base.estimator import require_whole
from unskew.base.tables import csv_source, open_csv, reading, require_columns
from unskew.data import Feature, Log, Wanted
from unskew.data.checks import names_of
from unskew.data.datasets.dataset import Dataset, errors_name
from unskew.data.described import AUTO, sources_of
from unskew.data.vocabulary import Vocabulary

BLOCK_BYTES = 1 << 23
"""Bytes of a file without a header that are parsed at a time; no line may have more."""


def require_rows(rows: Any) -> None:
    """Raise an error unless ``rows`` is a number of rows, or None for all."""
    if rows is not None:
        require_whole(1, rows=rows)


def csv_blocks(
    file: Path, types: Mapping[str, Any], remedy: str, rows: int | None = None, *, header: bool = True
) -> Iterator[Any]:
    """Read a CSV file as record batches of some of its columns; refuse one without rows.

    Parameters
    ----------
    remedy
        What every data error advises: to download the file again.
    rows
        Only so many of the first rows; None reads all.
    header
        False for files whose lines begin at once and quote nothing; ``types`` then name all their columns.
    """
    try:
        with reading(file) as delimiter:
            if header:
                require_columns(list(types), column_names_of(file), file)
                opened = open_csv(file, delimiter or ",", list(types), dict(types))
            else:
                opened = pa.csv.open_csv(
                    csv_source(file),
                    read_options=pa.csv.ReadOptions(column_names=list(types), block_size=BLOCK_BYTES),
                    parse_options=pa.csv.ParseOptions(quote_char=False),
                    convert_options=pa.csv.ConvertOptions(
                        column_types=dict(types), strings_can_be_null=False
                    ),
                )
            read = 0
            with opened as reader:
                for block in reader:
                    block = block if rows is None else block.slice(0, rows - read)
                    read += block.num_rows
                    if block.num_rows:
                        yield block
                    if read == rows:
                        break
            if not read:
                raise DataError("the file has no rows", where=str(file), remedy=remedy)
    except DataError as error:
        raise DataError(error.problem, where=error.where or str(file), remedy=remedy) from error


def column_names_of(file: Path) -> list[str]:
    """Return the header of a CSV file."""
    with reading(file) as delimiter, open_csv(file, delimiter or ",", None, {}) as reader:
        return list(reader.schema.names)


def own_features(
    wanted: Wanted | bool | None, own: Sequence[Feature | str], ignore: Collection[str] = ()
) -> list[Feature | str] | None:
    """Return the features that are asked for, with a dataset's own in the place of ``"auto"``."""
    if wanted is None or isinstance(wanted, bool):
        return None
    asked = [wanted] if isinstance(wanted, str) else list(wanted)
    named: list[Feature | str] = [feature for feature in asked if feature != AUTO]
    if len(named) == len(asked):
        return named
    known = {*sources_of(named), *names_of("ignore", ignore)}
    return [*named, *(feature for feature in own if not known.intersection(sources_of([feature])))]


def event_dataset(
    name: str,
    tables: Sequence[Any],
    files: Sequence[Path],
    *,
    facts: Mapping[str, Any],
    features: Sequence[Feature | str] | None = None,
    **columns: Any,
) -> Dataset:
    """Make a dataset of two tables of impressions, and count what is new in the test log.

    Ids are coded together. A row is an event of its own: a test row is kept though its pair was clicked in
    training.

    Parameters
    ----------
    tables, files
        Those of both logs; files are for messages.
    features
        What networks read beside the ids; the test log is described as the training log is.
    columns
        As in :meth:`unskew.Log.from_frame`: names of ``user``, ``item``, ``click``, ``conversion`` and more.
    """
    options = {**columns, "space": "impressions"}
    for role in ("user", "item"):
        if f"{role}s" not in options:
            chunks = [chunk for table in tables for chunk in table.column(columns[role]).chunks]
            ids = pa.chunked_array(chunks).unique().to_numpy(zero_copy_only=False)
            options[f"{role}s"] = Vocabulary.of(ids, name=columns[role])
    with errors_name(files[0]):
        train = Log.from_frame(tables[0], features=features, **options)
    declared = None if train.features is None else train.features.declared
    with errors_name(files[-1]):
        test = Log.from_frame(tables[-1], features=declared, **options)
    known = {
        "leaked_cells_found": 0,
        "leaked_cells_dropped": 0,
        "test_rows_of_new_users": _new(test.user, train.user, train.n_users),
        "test_rows_of_new_items": _new(test.item, train.item, train.n_items),
    }
    return Dataset(name, train, test, facts={**facts, **known})


def _new(code: Any, known: Any, size: int) -> int:
    """How many codes are not among those known."""
    return int((np.bincount(known, minlength=size) == 0)[code].sum())
