"""Rows of files with the columns of their weights, written as Parquet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.base.columns import column_of, frame_of, number_column
from unskew.base.errors import DataError
from unskew.base.progress import Progress
from unskew.data.files import ArrowSchema, File, Paths, expand_paths
from unskew.data.row_files import Target, check_rows_target, rows_writer
from unskew.data.stream import (
    FileBatch,
    cast_columns,
    holds_numbers,
    number_columns,
    stream,
    tracked,
    united_schema,
)
from unskew.metrics.clip import Clip, require_clip

ADDED = (
    pa.field("propensity_calibrated", pa.float64()),
    pa.field("weight", pa.float64()),
    pa.field("fold", pa.int8()),
    pa.field("clipped", pa.bool_()),
)
"""The columns that are added, in this order."""

SPREAD = ("propensity_calibrated", "weight")
"""Those of which hardly two values are the same."""

Assign = Callable[[FileBatch], tuple[NDArray[np.float64], NDArray[np.int8]]]
"""Calibrated propensities and folds of the rows of a batch."""


def write_with(
    files: Sequence[Path],
    target: Target,
    schema: ArrowSchema,
    assign: Assign,
    *,
    p_min: float,
    clicks: str | None,
    numbers: Sequence[str],
    progress: Progress,
) -> int:
    """Write the rows of the files with the added columns; return their number."""
    number_of: dict[File, int] = {file: number for number, file in enumerate(files)}
    try:
        with rows_writer(target, _extended(schema), plain=SPREAD) as writer:
            batches = stream(files, columns=None, numbers=numbers)
            for batch in tracked(batches, progress, "writing"):
                added = added_columns(batch, assign, p_min=p_min, clicks=clicks)
                columns = cast_columns(batch, schema) + [
                    pa.array(values, type=field.type) for field, values in zip(ADDED, added, strict=True)
                ]
                writer.write(columns, number_of[batch.file])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"cannot be written as Parquet: {error}",
            where=str(files[0]),
            remedy="leave out the column, or write it with another type",
        ) from error
    return writer.rows


def added_columns(
    batch: FileBatch, assign: Assign, *, p_min: float, clicks: str | None
) -> tuple[NDArray[Any], ...]:
    """Return the columns of :data:`ADDED` for the rows of a batch.

    The weight is o/max(p̃, p_min), o from the column ``clicks``; None gives every row 1/max(p̃, p_min).
    """
    propensity, fold = assign(batch)
    weight = 1 / np.maximum(propensity, p_min)
    if clicks is not None:
        if holds_numbers(batch.record.schema.field(clicks).type):
            weight *= number_columns(batch, [clicks])[0]
        else:
            # Clicks of a propensity that is trained here may be the texts 0 and 1.
            frame = frame_of(pa.Table.from_batches([batch.record.select([clicks])]))
            weight *= number_column(column_of(frame, clicks), clicks)
    return propensity, weight, fold, propensity < p_min


def prepared(
    paths: Paths,
    out: str | Path,
    *,
    p_min: Clip,
    overwrite: bool,
    numbers: Sequence[str] = (),
    outcome: str | None = None,
) -> tuple[Target, list[Path], ArrowSchema]:
    """The target and the files with their common columns, all checked before the long work."""
    require_clip(p_min)
    new = check_rows_target(out, overwrite=overwrite)
    files = expand_paths(paths)
    common = united_schema(files, numbers=numbers, guessed=() if outcome is None else (outcome,))
    require_free(common.names, files[0])
    return new, files, common


def require_free(names: Sequence[str], source: File) -> None:
    """An error for a column that is called as an added one."""
    taken = next((field.name for field in ADDED if field.name in names), None)
    if taken is not None:
        raise DataError(
            f"column '{taken}' is there already",
            where=str(source),
            remedy="rename it; unskew weights adds a column of that name",
        )


def _extended(schema: ArrowSchema) -> ArrowSchema:
    for field in ADDED:
        schema = schema.append(field)
    return schema
