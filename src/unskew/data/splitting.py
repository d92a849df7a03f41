"""Which rows are held out, by pair, user, time or group, and which are too young to have converted.

Both are functions of ids, values, times and a seed, never of positions: a copy, a subset and a re-read file
are split in the same way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError
from unskew.base.plain_text import listed
from unskew.base.seeds import splitmix64, stream
from unskew.data.log import Log
from unskew.data.vocabulary import Vocabulary

Kind = Literal["pair", "user", "time", "group"]

FORMS = "pair, user, time, time:COLUMN, from:DATE or group:COLUMN"
UNITS = {"d": "D", "h": "h", "m": "m", "s": "s", "w": "W"}
SIZES = {"s": 1e11, "ms": 1e14, "us": 1e17, "ns": np.inf}
"""Units of whole numbers since 1970 by their size, which tells them apart for dates up to the year 5000."""
TICK = "datetime64[us]"
"""What times are compared as."""


@dataclass(frozen=True)
class SplitBy:
    """The rule by which rows are held out together.

    Parameters
    ----------
    kind
        ``"pair"``: the rows of a user and an item; ``"user"``; ``"group"``: the rows with one value of
        ``column``; ``"time"``: the latest rows.
    column
        Of groups, or of times (None: the first column of the log that holds times).
    start
        With ``"time"``: rows from this moment on are held out, however many; None for a share.

    Examples
    --------
    >>> SplitBy.parse("group:session"), SplitBy.parse("from:2026-01-17").start
    (SplitBy(kind='group', column='session', start=None), '2026-01-17')
    """

    kind: Kind = "pair"
    column: str | None = None
    start: str | None = None

    @classmethod
    def parse(cls, text: str) -> SplitBy:
        """Parse one of :data:`FORMS`."""
        name, colon, rest = text.partition(":")
        if name == "from" and rest:
            start, _, column = rest.partition("@")
            moment(start)
            return cls("time", column or None, start)
        if (
            name not in get_args(Kind)
            or (name == "group") > bool(rest)
            or (colon and (not rest or name in ("pair", "user")))
        ):
            raise ParameterError(f"{text!r} is not a way to hold out rows", remedy=f"give {FORMS}")
        return cls(name, rest or None)  # type: ignore[arg-type]

    @classmethod
    def of(cls, text: str, log: Log) -> SplitBy:
        """Resolve a split of a log: ``"auto"`` is by time if impressions have times, else by pair.

        ``"auto:COLUMN"`` is by the times of that column.
        """
        kind, _, named = text.partition(":")
        if kind == "auto" and named:
            return cls("time", require_time_column(log, named))
        if text == "auto":
            column = time_column(log) if log.space == "impressions" else None
            return cls() if column is None else cls("time", column)
        by = cls.parse(text)
        if by.kind == "time":
            return cls("time", require_time_column(log, by.column), by.start)
        if by.kind == "group" and by.column not in log.columns:
            raise _no_column(str(by.column), log)
        return by

    def __str__(self) -> str:
        if self.start is not None:
            return f"from:{self.start}" + (f"@{self.column}" if self.column else "")
        return self.kind + (f":{self.column}" if self.column else "")

    def keys(self, log: Log, rows: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """Return a number for each of some rows; those with the least are held out.

        Rows that belong together have the same number.
        """
        if self.kind == "time":
            return -times_of(log, self.column, rows).astype(np.int64)
        if self.kind == "group":
            groups = Vocabulary.of(log.columns[str(self.column)], name=str(self.column))
            hashed = groups.hashes.view(np.uint64)[groups.encode(log.columns[str(self.column)][rows])]
        else:
            hashed = log.users.hashes.view(np.uint64)[log.user[rows]]
        if self.kind == "pair":
            # Mixed once more, so that a user and an item of one id do not cancel.
            hashed = hashed + splitmix64(log.items.hashes.view(np.uint64))[log.item[rows]]
        purpose = "validation" if self.kind == "pair" else f"validation by {self.kind}"
        mixed = splitmix64(hashed + np.uint64(stream(seed, purpose)))
        return (mixed >> np.uint64(1)).astype(np.int64)

    def count(self, log: Log, rows: NDArray[np.int64], share: float) -> int:
        """Return how many of some rows are held out: a share, or those from ``start`` on."""
        if self.start is None or not share:
            return round(share * len(rows))
        return int((times_of(log, self.column, rows) >= moment(self.start)).sum())


def time_column(log: Log) -> str | None:
    """Return the column of a log that is its time, or else the first that holds times; None without one."""
    return log.time or next((name for name, values in log.columns.items() if values.dtype.kind == "M"), None)


def require_time_column(log: Log, name: str | None = None) -> str:
    """Return a column of times that is there: the one that is named, or the first."""
    if name is None:
        result = time_column(log)
        if result is None:
            raise DataError("the log has no column of times", remedy="name it with time= (--time COLUMN)")
        return result
    if name not in log.columns:
        raise _no_column(name, log)
    return name


def times_of(
    log: Log, name: str | None = None, rows: NDArray[np.int64] | None = None
) -> NDArray[np.datetime64]:
    """Return the times of a log's rows, or of some of them.

    Whole numbers are counted from 1970, text is read as ISO dates.
    """
    column = require_time_column(log, name)
    values = log.columns[column]
    if rows is None:
        return _as_times(values, column)
    if values.dtype.kind == "M" and not np.isnat(values).any():
        # All rows matter for the unit of whole numbers alone, and for what is missing.
        return _as_times(values[rows], column)
    return _as_times(values, column)[rows]


def _unit(numbers: NDArray[np.int64]) -> str:
    """Return the unit of whole numbers since 1970, whatever their signs."""
    largest = int(np.abs(numbers).max(initial=0))
    return next((unit for unit, most in SIZES.items() if largest < most), "ns")


def _as_times(values: NDArray[Any], column: str) -> NDArray[np.datetime64]:
    """Return a column as times, as :func:`times_of` reads them; a missing one is an error."""
    if values.dtype.kind in "iu":
        times = from_epoch(values.astype(np.int64))
    elif values.dtype.kind == "M":
        times = values.astype(TICK)
    else:
        text = [str(value).strip().removesuffix("Z") for value in values]
        try:
            if all(map(str.isdecimal, text)):
                times = from_epoch(np.array(text, dtype=np.int64))
            else:
                times = np.array(text, dtype=TICK)
        except (ValueError, OverflowError) as error:
            raise DataError(
                f"holds no times: {error}",
                where=f"column '{column}'",
                remedy="write times as 2026-01-17T12:00:00 or seconds since 1970, or give Parquet",
            ) from None
    if np.isnat(times).any():
        raise DataError(
            "the time is missing",
            where=f"column '{column}', row {int(np.flatnonzero(np.isnat(times))[0])}",
            remedy="drop these rows, or fill in their times",
        )
    return times


@dataclass(frozen=True)
class Mature:
    """The result of :func:`mature_rows`."""

    log: Log
    kept: NDArray[np.bool_]
    """Which rows of the log stay."""
    dropped: int
    """Rows too young."""
    censored: int
    """Conversions that came later than the window, and count as none."""
    until: np.datetime64
    """Rows before it stay."""


def mature_rows(
    log: Log,
    maturity: str,
    *,
    time: str | None = None,
    conversion_time: NDArray[Any] | None = None,
) -> Mature:
    """Drop rows too young to have converted: less than ``maturity`` before the last row of the log.

    With the times of conversions, those later than ``maturity`` after their row count as none, so that all
    rows had the same time to convert; without, older rows had longer.

    Parameters
    ----------
    maturity
        Such as ``"7d"``, ``"12h"``, ``"30m"``.
    time
        The column of times; None for the first.
    conversion_time
        When each row converted, NaT where it did not.

    Examples
    --------
    >>> when = np.array(["2026-01-01", "2026-01-02", "2026-01-09", "2026-01-10"], dtype="datetime64[s]")
    >>> log = Log.from_arrays(
    ...     user=[1, 2, 1, 2], item=[1, 1, 2, 2], click=[1, 1, 0, 1], conversion=[1, 0, 0, 0],
    ...     space="impressions", columns={"when": when},
    ... )
    >>> found = mature_rows(log, "7d")
    >>> len(found.log), found.dropped
    (2, 2)
    """
    window = parse_duration(maturity)
    times = times_of(log, time)
    until = times.max() - window
    remaining = times <= until
    taken = log.take(remaining)
    if not taken.n_clicks:
        raise too_young(maturity)
    censored = 0
    if conversion_time is not None and taken.conversion is not None:
        late = (taken.conversion == 1) & (conversion_time[remaining].astype(TICK) - times[remaining] > window)
        censored = int(late.sum())
        taken = replace(taken, conversion=np.where(late, np.float32(0), taken.conversion))
    return Mature(taken, remaining, int((~remaining).sum()), censored, until)


def too_young(maturity: str) -> DataError:
    """Return the error for a log without a click that is old enough."""
    return DataError(
        f"no click is older than {maturity}: nothing is left to train on",
        remedy="give a shorter --maturity, or a longer log",
    )


def parse_duration(text: str) -> np.timedelta64:
    """Return a length of time such as ``"7d"``, ``"12h"``, ``"30m"``, ``"90s"`` or ``"2w"``."""
    match = re.fullmatch(r"(\d{1,6})([dhmsw])", text.strip()) if isinstance(text, str) else None
    if match is None or not int(match[1]):
        raise ParameterError(
            f"{text!r} is not a length of time", remedy="write for example 7d, 12h, 30m, 90s or 2w"
        )
    return np.timedelta64(int(match[1]), UNITS[match[2]])  # type: ignore[call-overload, no-any-return]


def moment(text: str) -> np.datetime64:
    """Return a date or a date and a time."""
    remedy = "write 2026-01-17 or 2026-01-17T12:00"
    try:
        result = np.datetime64(text.removesuffix("Z"), "us")
    except ValueError:
        raise ParameterError(f"{text!r} is not a date", remedy=remedy) from None
    if np.isnat(result):
        raise ParameterError(f"{text!r} is not a date", remedy=remedy)
    return result


def from_epoch(values: NDArray[np.int64]) -> NDArray[np.datetime64]:
    """Convert seconds, milliseconds, microseconds or nanoseconds since 1970, as their size says."""
    return values.astype(f"datetime64[{_unit(values)}]").astype(TICK)


def _no_column(name: str, log: Log) -> DataError:
    there = listed(list(log.columns)) or "none"
    return DataError(
        f"the log carries no column '{name}'",
        remedy=f"keep it when the log is read (keep=, --keep); its further columns are {there}",
    )
