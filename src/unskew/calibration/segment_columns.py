"""Columns of features as codes of segments: values of a category, bins of a number. No outcome is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.numbers import array_of
from unskew.base.plain_text import listed, plain
from unskew.calibration import sql

Codes = NDArray[np.intp]

MOST_VALUES = 10_000
"""Values of a category that are segments, the most frequent; the others get the common map."""

NUMBER_BINS = 16
"""Bins of a column of numbers, at its quantiles; one with at most twice as many values has a bin for each."""

MISSING = "(missing)"
"""What a text that is not there is called."""


@dataclass(frozen=True, eq=False)
class SegmentColumn:
    """How one column is coded: 0 to ``size`` − 1, and ``size`` for a value that ``fit`` never saw.

    Attributes
    ----------
    kind
        ``"text"`` and ``"whole"`` numbers have a segment for each value, ``"number"`` one for each bin and
        one for NaN.
    values
        The values in order, or the edges between bins.
    """

    name: str
    kind: Literal["text", "whole", "number"]
    values: NDArray[Any]

    @classmethod
    def fit(cls, name: str, column: NDArray[Any]) -> SegmentColumn:
        """Fit the column to the values of the rows."""
        if column.dtype.kind == "f":
            known = np.unique(column[np.isfinite(column)])
            if len(known) > 2 * NUMBER_BINS:
                finite = column[np.isfinite(column)]
                share = np.linspace(0, 1, NUMBER_BINS + 1)[1:-1]
                known = np.unique(np.quantile(finite, share, method="higher"))
            return cls(name, "number", known)
        values, count = np.unique(column, return_counts=True)
        if len(values) > MOST_VALUES:
            values = np.sort(values[np.argsort(-count, kind="stable")[:MOST_VALUES]])
        return cls(name, "text" if column.dtype.kind == "U" else "whole", values)

    @property
    def size(self) -> int:
        """Codes of what ``fit`` may have seen."""
        return len(self.values) + 2 * (self.kind == "number")

    def codes(self, column: NDArray[Any]) -> Codes:
        """Return the code of each value."""
        if (self.kind == "text") != (column.dtype.kind == "U"):
            expected = "text" if self.kind == "text" else "numbers"
            raise DataError(
                f"values are {column.dtype} here and were {expected} in fit",
                where=f"column '{self.name}'",
                remedy="give values of the type that fit was given",
            )
        if self.kind == "number":
            number = column.astype(np.float64)
            return np.where(
                np.isnan(number),
                len(self.values) + 1,
                np.searchsorted(self.values, number, side="right"),
            )
        if not self.size:
            return np.zeros(len(column), dtype=np.intp)
        position = np.minimum(np.searchsorted(self.values, column), self.size - 1)
        return np.where(self.values[position] == column, position, self.size)

    def conditions(self, name: str) -> list[str]:
        """Return the condition of each code in SQL, given the column's name there."""
        if self.kind == "text":
            shown = f"COALESCE(CAST({name} AS VARCHAR), {sql.text(MISSING)})"
            return [f"{shown} = {sql.text(value)}" for value in self.values.tolist()]
        if self.kind == "whole":
            return [f"{name} = {value}" for value in self.values.tolist()]
        number = f"CAST({name} AS DOUBLE)"
        is_nan = f"LOWER(CAST({number} AS VARCHAR)) = 'nan'"
        edges = [sql.double(edge) for edge in self.values]
        low = ["", *(f" AND {number} >= {edge}" for edge in edges)]
        high = [*(f" AND {number} < {edge}" for edge in edges), ""]
        bins = [f"NOT {name} IS NULL AND NOT {is_nan}{a}{b}" for a, b in zip(low, high, strict=True)]
        return [*bins, f"({name} IS NULL OR {is_nan})"]

    def to_dict(self) -> dict[str, Any]:
        """Return as plain values."""
        return {"name": self.name, "kind": self.kind, "values": self.values.tolist()}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> SegmentColumn:
        """Build one from what :meth:`to_dict` returned; raise an error for anything else."""
        kind, stored = saved["kind"], saved["values"]
        convert = {"text": str, "whole": int, "number": float}[kind]
        if not isinstance(saved["name"], str) or not all(type(each) is convert for each in stored):
            raise TypeError(f"column {plain(repr(saved['name']), 80)} has values that are not {kind}")
        values: NDArray[Any] = np.array(
            stored, dtype={"text": np.str_, "whole": np.int64, "number": np.float64}[kind]
        )
        if not (values[:-1] < values[1:]).all() or (kind == "number" and not np.isfinite(values).all()):
            raise ValueError(f"the values of column {plain(repr(saved['name']), 80)} are in no order")
        return cls(saved["name"], kind, values)


def columns_of(features: Any, names: Sequence[str] | None, rows: int) -> dict[str, NDArray[Any]]:
    """Return columns by name from a mapping, a data frame, a column or a matrix: text, integers or floats.

    Parameters
    ----------
    names
        Those that are wanted, in this order; None for all.
    """
    by_name = _named(features, names)
    wanted = list(by_name) if names is None else list(names)
    missing = [name for name in wanted if name not in by_name]
    if missing:
        raise DataError(
            f"features has no column '{missing[0]}'",
            remedy=f"give it, or name segments among {listed(map(str, by_name)) or 'others'}",
        )
    if not wanted:
        raise DataError("features has no column", remedy="give at least one")
    return {str(name): _column(by_name[name], str(name), rows) for name in wanted}


def _named(features: Any, names: Sequence[str] | None) -> Mapping[str, Any]:
    if isinstance(features, Mapping):
        return features
    # Here, and not above: an audit needs no data frames.
    from unskew.base.columns import column_of, frame_of, is_frame

    if is_frame(features):
        table = frame_of(features)
        wanted = [name for name in table.columns if names is None or name in names]
        return {name: column_of(table, name) for name in wanted}
    matrix = np.asarray(features)
    if matrix.ndim == 1:
        return {names[0] if names and len(names) == 1 else "segment": features}
    if matrix.ndim == 2:
        columns = names if names and len(names) == matrix.shape[1] else [*map(str, range(matrix.shape[1]))]
        return {name: matrix[:, place] for place, name in enumerate(columns)}
    raise DataError(
        f"features have shape {matrix.shape}", remedy="give columns by name: a dict or a data frame"
    )


def _column(values: Any, name: str, rows: int) -> NDArray[Any]:
    where = f"column '{name}'"
    column = array_of(values, name)
    if column.shape != (rows,):
        raise DataError(
            f"has shape {column.shape} where score has {rows} rows",
            where=where,
            remedy="give one value for each score",
        )
    if column.dtype.kind == "O":
        from unskew.base.columns import null_mask

        null = null_mask(column)
        if null.any() and all(isinstance(each, int | float) for each in column[~null]):
            column = np.where(null, np.nan, column).astype(np.float64)
        else:
            column = np.where(null, MISSING, column)
    if column.dtype.kind in "OT":
        return column.astype(np.str_)
    if column.dtype.kind in "bui":
        return column.astype(np.int64)
    if column.dtype.kind == "f":
        return column.astype(np.float64)
    if column.dtype.kind != "U":
        raise DataError(f"holds {column.dtype}", where=where, remedy="give text or numbers")
    return column
