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
from unskew.base.tables import Paths, Source, expand_paths, require_columns
from unskew.data.file_types import ArrowSchema, has_types, holds_numbers, schema_of
from unskew.data.row_files import Target, check_rows_target, rows_writer
from unskew.data.stream import FileBatch, cast_columns, number_columns, stream, tracked
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
    number_of: dict[Source, int] = {file: number for number, file in enumerate(files)}
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
    return new, files, common_schema(files, numbers=numbers, outcome=outcome)


def common_schema(files: Sequence[Path], *, numbers: Sequence[str], outcome: str | None) -> ArrowSchema:
    """The columns of all files, which must agree, and have none of the added ones.

    CSV files have no types: ``numbers`` are float64, the outcome what the rows look like (where guesses
    differ, the wider one counts), and the others text as it stands there.
    """
    guessed = () if outcome is None else (outcome,)
    common = schema_of(files[0], numbers=numbers, guessed=guessed)
    for file in files:
        schema = schema_of(file, numbers=numbers, guessed=guessed)
        require_columns(None, schema.names, file)
        require_columns(common.names, schema.names, file)
        require_columns(schema.names, common.names, files[0])
        found = {field.name: field.type for field in schema}
        for place, field in enumerate(common):
            if found[field.name] == field.type:
                continue
            if has_types(file) or has_types(files[0]):
                raise DataError(
                    f"column '{field.name}' is {found[field.name]} here and {field.type} in {files[0]}",
                    where=str(file),
                    remedy="write the column with one type in all files, or give CSV and Parquet apart",
                )
            common = common.set(place, field.with_type(_wider(field.type, found[field.name])))
    require_free(common, files[0])
    return common


def require_free(schema: ArrowSchema, source: Source) -> None:
    """An error for a column that is called as an added one."""
    taken = next((field.name for field in ADDED if field.name in schema.names), None)
    if taken is not None:
        raise DataError(
            f"column '{taken}' is there already",
            where=str(source),
            remedy="rename it; unskew weights adds a column of that name",
        )


def _wider(one: Any, other: Any) -> Any:
    """A type that holds the values of both; text holds all."""
    for kind, empty in ((one, other), (other, one)):
        if pa.types.is_null(empty):
            return kind
    numeric = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (one, other))
    return pa.float64() if numeric else pa.string()


def _extended(schema: ArrowSchema) -> ArrowSchema:
    for field in ADDED:
        schema = schema.append(field)
    return schema
