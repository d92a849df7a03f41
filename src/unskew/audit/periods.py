"""Periods of time: what rows belong to, by the hour, day or week of a column, or by a column's values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.errors import DataError, ParameterError

UNITS = ("hour", "day", "week")
"""Periods that are cut from a column of times; a week begins on Monday."""

_STEP = {"hour": "h", "day": "D", "week": "D"}
_MONDAY = 3
"""Days from the Monday before 1970 began, a Thursday."""

_NEAR = 1_000_000
"""Numbers within such a range are counted rather than sorted."""

_HINT = "write times as 2026-01-17T12:00:00, all with a zone or all without, or seconds since 1970"


@dataclass(frozen=True)
class By:
    """What periods are: a unit of a column of times, or the values of a column.

    Examples
    --------
    >>> By.of("day", "shown_at"), By.of("model_version", None)
    (By(column='shown_at', unit='day'), By(column='model_version', unit=None))
    """

    column: str
    unit: str | None = None

    @classmethod
    def of(cls, by: str, time: str | None) -> By:
        """From ``--by`` and ``--time``."""
        if by in UNITS:
            if time is None:
                raise ParameterError(
                    f"--by {by} needs the column of times", remedy="give --time COLUMN, or --by COLUMN"
                )
            return cls(time, by)
        if time is not None:
            raise ParameterError(
                f"--time has no effect with --by {by}, a column",
                remedy=f"leave it out, or give --by {', '.join(UNITS)}",
            )
        return cls(by)


@dataclass
class PeriodCodes:
    """Periods as numbers, in the order in which they are met.

    Parameters
    ----------
    by
        What periods are.
    zone
        Times that have a zone are converted to this one; those that have none are taken as they are.
    """

    by: By
    zone: str = "UTC"

    def __post_init__(self) -> None:
        self.labels: dict[str, int] = {}
        self._has_zone: bool | None = None

    def codes(self, column: Any, first_row: int) -> NDArray[np.int64]:
        """The period of each row of an Arrow column; nulls and mixed zones are errors."""
        if column.null_count:
            row = first_row + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataError(
                f"time is missing on {column.null_count:,} rows",
                where=f"column '{self.by.column}', row {row}",
                remedy="drop these rows or fill in the times",
            )
        if self.by.unit is None:
            encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            number = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            names = [str(value) for value in encoded.dictionary.to_pylist()]
        else:
            number, names = _cut(self._times(column), self.by.unit)
        return np.asarray(np.array([self._code(name) for name in names], dtype=np.int64)[number])

    def _code(self, label: str) -> int:
        return self.labels.setdefault(label, len(self.labels))

    def _times(self, column: Any) -> NDArray[np.datetime64]:
        import pyarrow.compute as pc

        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.dictionary_decode()
            kind = column.type
        if pa.types.is_integer(kind):
            # It loads what works with data frames, which an audit, that imports this file, has no use for.
            from unskew.log.splitting import from_epoch

            return from_epoch(column.to_numpy(zero_copy_only=False).astype(np.int64))
        try:
            if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
                column = _from_text(column)
            self._require_one_zone(getattr(column.type, "tz", None) is not None)
            if self._has_zone:
                column = pc.local_timestamp(column.cast(pa.timestamp("us", tz=self.zone), safe=False))
            return np.asarray(column.cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False))
        except pa.ArrowException as error:
            raise DataError(
                f"holds no times: {str(error).splitlines()[0]}",
                where=f"column '{self.by.column}'",
                remedy=_HINT,
            ) from None

    def _require_one_zone(self, has_zone: bool) -> None:
        if self._has_zone is not None and self._has_zone != has_zone:
            raise DataError(
                "some times have a zone and some have none",
                where=f"column '{self.by.column}'",
                remedy="write all times with a zone, or all without",
            )
        self._has_zone = has_zone


def _from_text(column: Any) -> Any:
    """Times of ISO text: all with a zone, or all without."""
    try:
        return column.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("us", tz="UTC"))


def _cut(times: NDArray[np.datetime64], unit: str) -> tuple[NDArray[np.int64], list[str]]:
    """The number of each time's period, and the periods' labels."""
    step = times.astype(f"datetime64[{_STEP[unit]}]").astype(np.int64)
    if unit == "week":
        step = step - (step + _MONDAY) % 7
    distinct, number = distinct_numbers(step)
    return number, [str(each) for each in distinct.astype(f"datetime64[{_STEP[unit]}]")]


def distinct_numbers(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``np.unique`` with the inverse; ten times as fast where the numbers are near each other."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low > _NEAR:
        distinct, number = np.unique(values, return_inverse=True)
        return distinct, number
    used = np.bincount(values - low, minlength=1) > 0
    return np.flatnonzero(used) + low, (np.cumsum(used) - 1)[values - low]


def normal_label(label: str, by: By) -> str:
    """A period of an engine's as it is called here: a day and not its midnight."""
    if by.unit is None:
        return label
    try:
        _, (name,) = _cut(
            np.array([np.datetime64(label.split("+")[0].removesuffix("Z").strip(), "us")]), by.unit
        )
    except ValueError:
        raise DataError(
            f"period {label!r} is not a time", remedy="make the cells with --by hour, day or week"
        ) from None
    return name


def end_of(label: str, by: By) -> np.datetime64 | None:
    """When a period ends; None where periods are no times."""
    if by.unit is None:
        return None
    length = {"hour": np.timedelta64(1, "h"), "day": np.timedelta64(1, "D"), "week": np.timedelta64(7, "D")}
    return np.datetime64(label, "us") + length[by.unit]


def in_order(labels: Iterable[str]) -> list[str]:
    """Periods in order: by number where all are numbers, else as text, which times are written for."""
    known = list(labels)
    try:
        return sorted(known, key=float)
    except ValueError:
        return sorted(known)
