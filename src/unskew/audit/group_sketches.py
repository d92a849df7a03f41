"""One sketch for each period and value of a segment, filled batch by batch: memory for cells that have rows.

The result is a table of cells, as the query of ``unskew.audit.sql`` gives it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.audit.periods import PeriodCodes, distinct_numbers
from unskew.audit.segments import ValueCodes
from unskew.base.errors import DataError
from unskew.data.stream import FileBatch, Roles, located, number_columns
from unskew.metrics.chunks import Names, chunks, validate
from unskew.metrics.sketch_grid import SketchGrid

MOST_GROUPS = 200_000
"""Sketches that are filled at once: 1 GB for where their cells are, before the cells themselves."""

MOST_VALUES = 1_000
"""Values of a column that have sketches of their own, the first to be met; the rest is one group."""

FIRST_ROOM = 1 << 14

CELLS = pa.schema(
    [
        *((name, pa.string()) for name in ("period", "segment", "value")),
        *((name, pa.int32()) for name in ("cell", "outcome")),
        ("rows", pa.int64()),
        *((name, pa.float64()) for name in ("weight", "square", "score", "inverse", "brier", "log_loss")),
    ]
)
"""Columns of a table of cells, as they are kept."""


class GroupSketches:
    """Cells of each period and each value of one column, or of each period alone (``column`` None)."""

    def __init__(self, grid: SketchGrid, column: str | None, values: ValueCodes) -> None:
        self.grid = grid
        self.column = column
        self.values = values
        self._group = np.full((0, 0), -1, dtype=np.int64)
        self._keys: list[tuple[int, int]] = []
        self._slot = np.full((0, grid.size), -1, dtype=np.int32)
        self._sums: NDArray[np.float64] = np.zeros((FIRST_ROOM, 9))
        self._totals: NDArray[np.float64] = np.zeros((0, 2))
        self._used = np.zeros(1, dtype=np.int64)

    def add(self, batch: FileBatch, roles: Roles, period: NDArray[np.int64]) -> None:
        """Add the rows of a batch, whose periods are known."""
        columns = number_columns(batch, roles.numbers)
        whole = np.zeros(len(period), dtype=np.int64)
        value = whole if self.column is None else self.values.codes(batch.record.column(self.column))
        group = self._groups(period, value)
        names = Names(roles.score, roles.outcome, roles.weight or "weight")
        weight = columns[2] if roles.weight else None
        start = 0
        with located(batch):
            for chunk in chunks(columns[0], columns[1], weight, first_row=batch.first_row, names=names):
                if self._fill(chunk, group[start : start + len(chunk.score)]) < -1:
                    validate(chunk, names)
                start += len(chunk.score)

    def _groups(self, period: NDArray[np.int64], value: NDArray[np.int64]) -> NDArray[np.int64]:
        """The group of each row; new ones get a place."""
        width = int(value.max(initial=0)) + 1
        distinct, number = distinct_numbers(period * width + value)
        keys = [divmod(int(each), width) for each in distinct]
        periods, values = (max(each) + 1 for each in zip(*keys, (0, 0), strict=True))
        grown = [
            max(0, wanted - had) for wanted, had in zip((periods, values), self._group.shape, strict=True)
        ]
        self._group = np.pad(self._group, ((0, grown[0]), (0, grown[1])), constant_values=-1)
        new = [key for key in keys if self._group[key] < 0]
        for key in new:
            self._group[key] = len(self._keys)
            self._keys.append(key)
        if len(self._keys) > MOST_GROUPS:
            raise DataError(
                f"there are more than {MOST_GROUPS:,} periods and segments",
                where=self.column,
                remedy="give longer periods (--by week), or a column with fewer values",
            )
        short = len(self._keys) - len(self._slot)
        if short > 0:
            room = max(short, len(self._slot) // 2)
            self._slot = np.concatenate([self._slot, np.full((room, self.grid.size), -1, dtype=np.int32)])
            self._totals = np.concatenate([self._totals, np.zeros((room, 2))])
        return np.array([self._group[key] for key in keys], dtype=np.int64)[number]

    def _fill(self, chunk: Any, group: NDArray[np.int64]) -> int:
        from unskew.metrics._group_kernel import fill_groups

        weight = np.empty(0) if chunk.weight is None else chunk.weight
        place = (self.grid.edges, self.grid.bins, self.grid.shift, self.grid.base)
        start = 0
        while start >= 0:
            start = int(
                fill_groups(
                    chunk.score,
                    chunk.outcome,
                    weight,
                    group,
                    start,
                    *place,
                    self._slot,
                    self._used,
                    self._sums,
                    self._totals,
                )
            )
            if start >= 0:
                self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)])
        return start

    def table(self, periods: PeriodCodes) -> Any:
        """All cells, a row for each outcome that has rows."""
        groups = len(self._keys)
        group, cell = np.nonzero(self._slot[:groups] >= 0)
        sums = self._sums[self._slot[group, cell]]
        group, cell = np.repeat(group, 2), np.repeat(cell, 2)
        outcome = np.tile([0, 1], len(sums))
        by_outcome = {
            name: sums[:, 2 * place : 2 * place + 2].reshape(-1)
            for place, name in enumerate(("rows", "weight", "score", "square"))
        }
        inverse = np.where(outcome == 1, np.repeat(sums[:, 8], 2), 0.0)
        kept = by_outcome["rows"] > 0
        # The totals of a group go with its first row.
        first = np.diff(group[kept], prepend=-1) > 0
        totals = np.where(first[:, None], self._totals[group[kept]], 0.0)
        labels, values = list(periods.labels), self.values.names()
        keys = np.array(self._keys, dtype=np.int64).reshape(-1, 2)[group[kept]]
        columns = {
            "period": _texts(labels, keys[:, 0]),
            "segment": _texts([self.column or ""], np.zeros(len(keys), dtype=np.int64)),
            "value": _texts([""] if self.column is None else values, keys[:, 1]),
            "cell": pa.array(cell[kept], pa.int32()),
            "outcome": pa.array(outcome[kept], pa.int32()),
            "rows": pa.array(by_outcome["rows"][kept].astype(np.int64)),
            **{name: pa.array(by_outcome[name][kept]) for name in ("weight", "square", "score")},
            "inverse": pa.array(inverse[kept]),
            "brier": pa.array(totals[:, 0]),
            "log_loss": pa.array(totals[:, 1]),
        }
        return pa.table(columns, schema=CELLS)


def _texts(names: list[str], code: NDArray[np.int64]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(code, pa.int32()), pa.array(names, pa.string())).cast(
        pa.string()
    )
