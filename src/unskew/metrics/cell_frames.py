"""Cells of sketches as a plain table, as an SQL engine gives them: read, checked, and made sketches again.

The query is written in ``unskew.audit.sql``; this file knows what its columns mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.tables import FrameInMemory, concatenate, read_files, require_columns, sources
from unskew.metrics.cell_sums import CellSums
from unskew.metrics.sketch_grid import MOST_BINS, MOST_MANTISSA_BITS, grid

RESOLUTION = ("bins", "mantissa_bits")
"""Columns that tell the grid, the same on every row: cells of two grids must not be added."""

COUNTS = ("cell", "outcome", "rows")
SUMS = ("score", "inverse", "brier", "log_loss")
"""Σwp, Σwo/p, Σw(o − p)² and −Σw log(likelihood) of a cell and an outcome."""
WEIGHTS = ("weight", "square")
"""Σw and Σw²; the rows, where there are no weights."""
KEYS = ("period", "segment", "value")
"""Which rows a sketch is of: a period of time, and the value of a segment's column. All may be missing."""

REFUSED = {
    -1: ("score", "null scores", "drop these rows or fill in the scores"),
    -2: ("score", "scores outside [0, 1]", "give probabilities"),
    -3: ("outcome", "null outcomes", "write 0 where it did not happen"),
    -4: ("outcome", "outcomes that are neither 0 nor 1", "encode outcomes as 0 and 1"),
    -5: ("weight", "null weights", "give each row a weight, or name no column"),
    -6: ("weight", "weights that are neither 0 nor from 1e-12 to 1e12", "give rows of the population a row"),
    -7: ("time", "null times", "drop these rows or fill in the times"),
}
"""Cells that rows with a bad value are put into, by the query: what they are and what to do about them."""


class Group(NamedTuple):
    """Which rows a sketch is of; "" where the table does not tell."""

    period: str
    segment: str
    value: str


@dataclass(frozen=True, eq=False)
class CellTable:
    """The rows of a table of cells, checked.

    Attributes
    ----------
    bins, mantissa_bits
        Of the grid.
    groups, group
        What sketches the table holds, and which of them each row belongs to.
    columns
        ``cell``, ``outcome``, ``rows``, ``weight``, ``square`` and :data:`SUMS`, an array each.
    """

    bins: int
    mantissa_bits: int
    groups: tuple[Group, ...]
    group: NDArray[np.int64]
    columns: dict[str, NDArray[Any]]

    def sums(self, which: NDArray[Any]) -> CellSums:
        """The sums of some of the rows."""
        size = grid(self.bins, self.mantissa_bits).size
        taken = {name: values[which] for name, values in self.columns.items()}
        at = 2 * taken["cell"] + taken["outcome"]

        def summed(name: str) -> NDArray[np.float64]:
            return np.bincount(at, taken[name], minlength=2 * size).astype(np.float64).reshape(size, 2)

        return CellSums(
            # A bincount with weights adds doubles, which hold every count up to 2^53.
            rows=np.rint(summed("rows")).astype(np.int64),
            weight=summed("weight"),
            score=summed("score"),
            square=summed("square"),
            inverse=summed("inverse").sum(axis=1),
            totals=np.array([taken["brier"].sum(), taken["log_loss"].sum()]),
        )

    def each(self) -> Iterator[tuple[Group, CellSums]]:
        """Every sketch's sums."""
        for number, group in enumerate(self.groups):
            yield group, self.sums_of(number)

    def sums_of(self, number: int) -> CellSums:
        """The sums of one of the groups."""
        order, ends = self._sorted
        return self.sums(order[ends[number] : ends[number + 1]])

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows by group, and where each group ends."""
        order = np.argsort(self.group, kind="stable")
        return order, np.searchsorted(self.group[order], np.arange(len(self.groups) + 1))

    def whole(self) -> CellSums:
        """All rows once: of several segments' columns, each of which has them all, the first."""
        first = self.groups[0].segment
        counted = np.array([group.segment == first for group in self.groups])
        return self.sums(counted[self.group])


def read_cells(given: Any) -> CellTable:
    """A table of cells from a data frame or from files; what is not one is an error."""
    files = sources(given)
    where = str(files[0])
    if isinstance(files[0], FrameInMemory):
        table = files[0].table
    else:
        paths = [file for file in files if not isinstance(file, FrameInMemory)]
        numbers = (*COUNTS, *SUMS, *WEIGHTS, *RESOLUTION)
        table = concatenate(paths, read_files(paths, numbers=numbers))
    require_columns((*COUNTS, *SUMS, *RESOLUTION), table.column_names, files[0])
    if not len(table):
        raise DataError("the table of cells has no rows", where=where, remedy="look at the query's table")
    bins, mantissa_bits = (_one_value(table, name, where) for name in RESOLUTION)
    if not (1 <= bins <= MOST_BINS and 0 <= mantissa_bits <= MOST_MANTISSA_BITS):
        raise DataError(
            f"there is no grid of {bins} bins and {mantissa_bits} mantissa bits",
            where=where,
            remedy="make the cells again with the query that unskew audit --sql prints",
        )
    columns: dict[str, NDArray[Any]] = {name: _whole_numbers(table, name, where) for name in COUNTS}
    _require_no_refused(columns, where)
    columns |= {name: _numbers(table, name, where) for name in SUMS}
    weighted = all(name in table.column_names for name in WEIGHTS)
    rows = columns["rows"].astype(np.float64)
    columns |= {name: _numbers(table, name, where) if weighted else rows for name in WEIGHTS}
    _require_cells(columns, grid(bins, mantissa_bits).size, where)
    groups, group = groups_of(table)
    return CellTable(bins, mantissa_bits, groups, group, columns)


def groups_of(table: Any) -> tuple[tuple[Group, ...], NDArray[np.int64]]:
    """What sketches there are, sorted, and that of each row."""
    names = [name for name in KEYS if name in table.column_names]
    codes = np.zeros(len(table), dtype=np.int64)
    values = []
    for name in names:
        encoded = table.column(name).combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        known = [str(value) for value in encoded.dictionary.to_pylist()]
        code = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
        codes = codes * (len(known) + 1) + code
        values.append([*known, ""])
    distinct, group = np.unique(codes, return_inverse=True)
    groups = []
    for code in distinct.tolist():
        found = dict.fromkeys(KEYS, "")
        for name, known in reversed(list(zip(names, values, strict=True))):
            code, place = divmod(code, len(known))
            found[name] = known[place]
        groups.append(Group(**found))
    order = sorted(range(len(groups)), key=groups.__getitem__)
    return tuple(groups[number] for number in order), np.argsort(order)[group]


def _numbers(table: Any, name: str, where: str) -> NDArray[np.float64]:
    column = table.column(name)
    try:
        values = column.cast(pa.float64())
    except pa.ArrowException:
        raise _no_numbers(name, where) from None
    if values.null_count:
        raise _no_numbers(name, where)
    found = np.asarray(values.to_numpy(), dtype=np.float64)
    if not np.isfinite(found).all():
        raise _no_numbers(name, where)
    return found


def _whole_numbers(table: Any, name: str, where: str) -> NDArray[np.int64]:
    values = _numbers(table, name, where)
    whole = values.astype(np.int64)
    if (whole != values).any():
        raise _no_numbers(name, where)
    return whole


def _no_numbers(name: str, where: str) -> DataError:
    return DataError(
        f"column '{name}' holds something else than the query gives",
        where=where,
        remedy="give the result of the query that unskew audit --sql prints, as it is",
    )


def _one_value(table: Any, name: str, where: str) -> int:
    found = np.unique(_whole_numbers(table, name, where))
    if len(found) > 1:
        raise DataError(
            f"holds cells of {name}={found[0]} and {name}={found[1]}, which cannot be added",
            where=where,
            remedy="make all cells with one query",
        )
    return int(found[0])


def _require_no_refused(columns: dict[str, NDArray[Any]], where: str) -> None:
    """An error that counts the rows that the query could not place, by what is wrong with them."""
    found = {
        code: int(columns["rows"][columns["cell"] == code].sum())
        for code in REFUSED
        if (columns["cell"] == code).any()
    }
    if found:
        counted = ", ".join(f"{count:,} {REFUSED[code][1]}" for code, count in found.items())
        raise DataError(f"there are {counted}", where=where, remedy=REFUSED[next(iter(found))][2])


def _require_cells(columns: dict[str, NDArray[Any]], size: int, where: str) -> None:
    cell, outcome, rows = (columns[name] for name in COUNTS)
    if ((cell < 0) | (cell >= size) | (outcome < 0) | (outcome > 1) | (rows < 0)).any():
        raise DataError(
            "holds cells that the grid does not have, or counts below 0",
            where=where,
            remedy="give the result of the query that unskew audit --sql prints, as it is",
        )
