"""One pass over scores and outcomes: cells of folds, cells of segments, and a bounded sample of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.audit.by_segment import MOST_KEPT, SegmentRows
from unskew.audit.crossfit import MOST_FOLDS, fold_of_rows
from unskew.audit.segments import SEGMENT_GRID, ValueCodes
from unskew.base.errors import DataError
from unskew.base.estimator import require, require_whole
from unskew.base.progress import SILENT, Progress
from unskew.data.files import File
from unskew.data.source import read_table
from unskew.data.stream import FileBatch, Roles, located, number_columns, stream, tracked
from unskew.metrics import CalibrationSketch
from unskew.metrics.cell_sums import both
from unskew.metrics.cells import COUNTS, RESOLUTION, SUMS, Cells, Key, count
from unskew.metrics.chunks import Names
from unskew.metrics.score_cells import cells_of

LARGEST_WEIGHT = 1e12
"""Rows that a row may stand for, and one over it the least but 0: their squares, divided by those of the
smallest scores, must stay numbers."""

MOST_WEIGHT_RATIO = 1e12
"""Largest weight over the smallest above 0: sums of doubles, of 16 digits, tell both with four to spare."""


class Counted(NamedTuple):
    """The counts and samples that one pass over the rows collects.

    ``folds`` has a sketch for each fold, ``values`` the codes of each column of segments, ``segments`` their
    cells, and ``sample`` some of the rows with their segments (None without segments).
    """

    folds: list[CalibrationSketch]
    values: dict[str, ValueCodes]
    segments: Cells
    sample: SegmentRows | None


def require_three_columns(roles: Roles) -> None:
    """Raise an error where score, outcome and weight are not different columns."""
    require(
        len(set(roles.numbers)) == len(roles.numbers),
        "score, outcome and weight must be three columns",
        "name another column for one of them",
    )


def names_of(roles: Roles) -> Names:
    """Return what the columns are called, for error messages."""
    return Names(roles.score, roles.outcome, roles.weight or "weight")


def counted_cells(source: Any) -> Cells:
    """Return cells, or those that the query of :mod:`unskew.audit.sql` gives, in a data frame or in files."""
    if isinstance(source, Cells):
        return source
    if not isinstance(source, str | Path | list | tuple):
        return Cells.from_cells(source)
    table = read_table(source, numbers=(*COUNTS, *SUMS, *RESOLUTION, "fold"))
    return Cells.from_cells(table, where=str(source))


def read(
    files: Sequence[File],
    roles: Roles,
    *,
    folds: int,
    seed: int = 0,
    most_kept: int = MOST_KEPT,
    progress: Progress = SILENT,
) -> Counted:
    """Read the files once; a bad value is an error that names the file, the column and the row."""
    require_whole(2, MOST_FOLDS, folds=folds)
    cells = Cells([Key(fold=fold) for fold in range(folds)])
    values = {column: ValueCodes() for column in roles.segments}
    segments = {column: Cells([], **SEGMENT_GRID) for column in roles.segments}
    sample = SegmentRows(len(values), folds, seed=seed, most=most_kept) if values else None
    weights = _WeightRange(roles.weight)
    batches = stream(files, columns=roles.names, numbers=roles.numbers, text=roles.segments)
    for batch in tracked(batches, progress, "reading"):
        columns = number_columns(batch, roles.numbers)
        weights.require(columns[-1], batch)
        fold = fold_of_rows(batch.start, len(columns[0]), folds, seed)
        codes = [values[column].codes(batch.record.column(column)) for column in values]
        tables: list[tuple[Cells, Any]] = [(cells, fold), *zip(segments.values(), codes, strict=True)]
        with located(batch):
            count(tables, *columns, first_row=batch.first_row, names=names_of(roles))
        if sample is not None:
            sample.add(batch.start, columns, codes)
    sketches = [cells.sketch(key) for key in cells.keys]
    if not any(sketch.total for sketch in sketches):
        what = "rows" if roles.weight is None else "rows with a weight above 0"
        raise DataError(f"there are no {what}", where=named(files), remedy="give files with rows")
    whole = Cells([], **SEGMENT_GRID)
    for column, counted in segments.items():
        counted.keys = [Key(segment=column, value=name) for name in values[column].names()]
        whole.add(counted)
    return Counted(sketches, values, whole, sample)


def require_both_outcomes(
    sketch: CalibrationSketch,
    outcome: str,
    significance: float,
    *,
    where: str,
    remedies: Mapping[int, tuple[str, str]],
) -> None:
    """Raise an error where all outcomes are the same, unless honest scores give that by chance.

    ``remedies`` holds what to ask, and what to do, where all outcomes are 0, or 1.
    """
    cells = cells_of(sketch)
    rows = both(cells.rows)
    for value, rate in ((0, 1 - cells.score), (1, cells.score)):
        with np.errstate(divide="ignore"):
            chance = float(np.exp((rows * np.log(rate)).sum()))
        if cells.rows[:, 1 - value].any() or chance >= significance:
            continue
        asked, remedy = remedies[value]
        raise DataError(
            f"'{outcome}' is {value} on all {sketch.rows:,} rows, where these scores expect"
            f" {float(rows @ cells.score):,.0f} of 1: {asked}",
            where=where,
            remedy=remedy,
        )


def named(files: Sequence[File | str]) -> str:
    """Return what to call files in a message."""
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more files"


class _WeightRange:
    """The range of the weights so far, which sums of doubles must be able to tell."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.lightest, self.heaviest = np.inf, 0.0

    def require(self, weight: NDArray[Any], batch: FileBatch) -> None:
        """Raise an error for a weight that is too large or too small; Cells refuse what is no weight."""
        above = weight[(weight > 0) & (weight < np.inf)] if self.name is not None else weight[:0]
        if not len(above):
            return
        where = f"{batch.file}, column '{self.name}'"
        wrong = above[(above > LARGEST_WEIGHT) | (above < 1 / LARGEST_WEIGHT)]
        if len(wrong):
            row = batch.first_row + int(np.argmax(weight == wrong[0]))
            raise DataError(
                f"weight {wrong[0]:g} is not 0 or from {1 / LARGEST_WEIGHT:g} to {LARGEST_WEIGHT:g}",
                where=f"{where}, row {row}",
                remedy="give how many rows of the population a row stands for",
            )
        self.lightest = min(self.lightest, float(above.min()))
        self.heaviest = max(self.heaviest, float(above.max()))
        if MOST_WEIGHT_RATIO * self.lightest < self.heaviest:
            raise DataError(
                f"weights from {self.lightest:.3g} to {self.heaviest:.3g} are {MOST_WEIGHT_RATIO:.0e} times"
                " each other and more: beside the large ones the small ones are lost",
                where=where,
                remedy="give how many rows of the population a row stands for, 0 where it stands for none",
            )
