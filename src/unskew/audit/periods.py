"""Periods of time: what rows belong to, by the hour, day or week of a column, or by a column's values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError

UNITS = ("hour", "day", "week")
"""Periods that are cut from a column of times; a week begins on Monday."""

_STEP = {"hour": "h", "day": "D", "week": "D"}
_MONDAY = 3
"""Days from the Monday before 1970 began, a Thursday."""

_TICK = np.timedelta64(1, "us")

AGAIN = " (again)"
"""The end of the label of an hour that comes for the second time, when clocks are set back."""

_WITH_ZONE = re.compile(r"(?P<wall>.*:\d\d(\.\d+)?)\s*(?P<zone>[+-]\d\d(:?\d\d)?|Z|UTC)")
"""A time as an SQL engine writes it, with its zone."""

_HINT = "write times as 2026-01-17T12:00:00, all with a zone or all without, or seconds since 1970"


@dataclass(frozen=True)
class By:
    """The definition of periods: a unit of a column of times, or the values of a column.

    Examples
    --------
    >>> By.of("day", "shown_at"), By.of("model_version", None)
    (By(column='shown_at', unit='day'), By(column='model_version', unit=None))
    """

    column: str
    unit: str | None = None

    @classmethod
    def of(cls, by: str, time: str | None) -> By:
        """Build the periods from ``--by`` and ``--time``."""
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


def require_zone(zone: str) -> None:
    """Raise an error if nobody knows a time zone of this name."""
    try:
        _instant_of(np.datetime64("2026-01-01", "us"), zone, "latest")
    except pa.ArrowException:
        raise ParameterError(
            f"there is no time zone {zone!r}", remedy="give a name such as Europe/Paris, or an offset: +01:00"
        ) from None


@dataclass
class PeriodCodes:
    """Periods as numbers, in the order in which they are met.

    Parameters
    ----------
    by
        What periods are.
    zone
        Times that have a zone, and numbers since 1970, are converted to this one. Times without a zone are
        local times of this one already.
    """

    by: By
    zone: str = "UTC"

    def __post_init__(self) -> None:
        self.labels: dict[str, int] = {}
        self._has_zone: bool | None = None

    def codes(self, column: Any, first_row: int) -> NDArray[np.int64]:
        """Return the period of each row of an Arrow column; nulls and mixed zones are errors."""
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
            times = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            number, names = _cut(*self._local(times), self.by.unit)
        return np.asarray(np.array([self._code(name) for name in names], dtype=np.int64)[number])

    def label_of(self, period: str) -> str:
        """Return a period as it is called here, given what an SQL engine calls it.

        A day and a week keep the date that the engine wrote. An hour with a zone is converted to ours.
        """
        if self.by.unit is None:
            return period
        zoned = _WITH_ZONE.fullmatch(period.strip())
        text = period.strip() if zoned is None else zoned["wall"]
        if zoned is not None and self.by.unit == "hour":
            text += "+00:00" if zoned["zone"] in ("Z", "UTC") else zoned["zone"]
        try:
            _, (name,) = _cut(*self._wall(_from_text(pa.array([text]))), self.by.unit)
        except pa.ArrowException:
            raise DataError(
                f"period {period!r} is not a time", remedy="make the cells with --by hour, day or week"
            ) from None
        return name

    def _code(self, label: str) -> int:
        return self.labels.setdefault(label, len(self.labels))

    def _local(self, column: Any) -> tuple[NDArray[np.datetime64], NDArray[np.bool_]]:
        """Return local times of the zone, as :meth:`_wall` does, of a column of any type."""
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.dictionary_decode()
            kind = column.type
        if pa.types.is_integer(kind):
            # It loads what works with data frames, which an audit, that imports this file, has no use for.
            from unskew.data.splitting import from_epoch

            times = from_epoch(column.to_numpy(zero_copy_only=False).astype(np.int64))
            return self._wall(pa.array(times).cast(pa.timestamp("us", tz="UTC")))
        try:
            if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
                column = _from_text(column)
            has_zone = getattr(column.type, "tz", None) is not None
            if self._has_zone is not None and self._has_zone != has_zone:
                raise DataError(
                    "some times have a zone and some have none",
                    where=f"column '{self.by.column}'",
                    remedy="write all times with a zone, or all without",
                )
            self._has_zone = has_zone
            return self._wall(column)
        except pa.ArrowException as error:
            raise DataError(
                f"holds no times: {str(error).splitlines()[0]}",
                where=f"column '{self.by.column}'",
                remedy=_HINT,
            ) from None

    def _wall(self, column: Any) -> tuple[NDArray[np.datetime64], NDArray[np.bool_]]:
        """Return what the clocks of the zone show, and whether they show it for the second time.

        Where clocks are set back, an hour comes twice; only a time that has a zone tells which one it is.
        """
        if getattr(column.type, "tz", None) is None:
            wall = np.asarray(column.cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False))
            return wall, np.zeros(len(wall), dtype=bool)
        instant = column.cast(pa.timestamp("us", tz=self.zone), safe=False)
        if self.zone == "UTC":
            wall = np.asarray(instant.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False))
            return wall, np.zeros(len(wall), dtype=bool)
        import pyarrow.compute as pc

        shown = pc.local_timestamp(instant)
        wall = np.asarray(shown.to_numpy(zero_copy_only=False))
        if self.by.unit != "hour":
            return wall, np.zeros(len(wall), dtype=bool)
        first = pc.assume_timezone(shown, self.zone, ambiguous="earliest", nonexistent="earliest")
        return wall, np.asarray(pc.less(first, instant).to_numpy(zero_copy_only=False))


def _from_text(column: Any) -> Any:
    """Read times of ISO text: all with a zone, or all without."""
    try:
        return column.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("us", tz="UTC"))


def _cut(
    times: NDArray[np.datetime64], again: NDArray[np.bool_], unit: str
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the number of each time's period, and the periods' labels."""
    step = times.astype(f"datetime64[{_STEP[unit]}]").astype(np.int64)
    if unit == "week":
        step = step - (step + _MONDAY) % 7
    distinct, number = np.unique(2 * step + again, return_inverse=True)
    starts = (distinct >> 1).astype(f"datetime64[{_STEP[unit]}]")
    return number, [
        f"{start}{AGAIN}" if twice else str(start) for start, twice in zip(starts, distinct & 1, strict=True)
    ]


def end_of(label: str, by: By, zone: str = "UTC") -> np.datetime64 | None:
    """Return when a period of a zone ends, in UTC; None where periods are no times."""
    if by.unit is None:
        return None
    length = {"hour": np.timedelta64(1, "h"), "day": np.timedelta64(1, "D"), "week": np.timedelta64(7, "D")}
    # The last tick tells what the clocks show when the period ends: of two hours of one name, which one.
    last = np.datetime64(label.removesuffix(AGAIN), "us") + length[by.unit] - _TICK
    is_first = by.unit == "hour" and not label.endswith(AGAIN)
    return _instant_of(last, zone, "earliest" if is_first else "latest") + _TICK


def _instant_of(wall: np.datetime64, zone: str, which: Literal["earliest", "latest"]) -> np.datetime64:
    """Return the time in UTC at which the clocks of a zone show ``wall``, for the first or the last time."""
    if zone == "UTC":
        return wall
    import pyarrow.compute as pc

    shown = pa.scalar(wall, pa.timestamp("us"))
    instant = pc.assume_timezone(shown, zone, ambiguous=which, nonexistent="earliest")
    return np.datetime64(instant.value, "us")


def in_order(labels: Iterable[str]) -> list[str]:
    """Sort periods: by number where all are numbers, else as text, as which times sort too."""
    known = list(labels)
    try:
        return sorted(known, key=float)
    except ValueError:
        return sorted(known)
