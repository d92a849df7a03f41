"""Columns of a log as NumPy arrays, checked value by value. What the columns mean together is the Log's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.numbers import array_of, without_mask
from unskew.base.plain_text import listed


def frame_of(frame: Any, *, collect: bool = False) -> nw.DataFrame[Any]:
    """Return a data frame in memory (pandas, polars, Arrow, …) behind one interface.

    Parameters
    ----------
    collect
        Also take what is computed when it is needed, such as a relation, and compute it.
    """
    try:
        given = nw.from_native(frame, eager_only=not collect)
        return given.collect(backend="pyarrow") if isinstance(given, nw.LazyFrame) else given
    except TypeError:
        remedy = "collect it first" if hasattr(frame, "collect") else "give a pandas, polars or Arrow table"
        raise DataError(f"{type(frame).__name__} is not a data frame in memory", remedy=remedy) from None
    except nw.exceptions.DuplicateError as error:
        raise DataError(" ".join(str(error).split()), remedy="rename the repeated columns") from None


def is_frame(thing: Any) -> bool:
    """Whether something is a data frame, in memory or to be collected first."""
    if isinstance(thing, (str, Path, list, tuple, dict)):
        return False
    return isinstance(nw.from_native(thing, pass_through=True), nw.DataFrame | nw.LazyFrame)


def with_columns(frame: Any, columns: Mapping[str, Any]) -> Any:
    """The same kind of data frame with further columns at its end."""
    table = frame_of(frame)
    series = [
        nw.new_series(name, np.asarray(values), backend=table.implementation)
        for name, values in columns.items()
    ]
    if table.implementation.is_pandas_like():
        # Rows are matched by their place, whatever the index says.
        index = nw.maybe_get_index(table)
        series = [nw.maybe_set_index(each, index=index) for each in series]
    return table.with_columns(*series).to_native()


SHOWN_BYTES = 40
"""Bytes of a wrong value that a message shows."""

LARGEST_EXACT_FLOAT = 2.0**53
"""Above it doubles skip whole numbers, and two ids could become one."""


def column_of(
    table: nw.DataFrame[Any], name: str, *, exact: bool = False, gaps: bool = False
) -> NDArray[Any]:
    """A column as NumPy: nulls become NaN in numbers and None in text; a missing column is an error.

    Parameters
    ----------
    exact
        As ids must be: numbers with nulls become objects and None too.
    gaps
        Whether there are nulls in other rows of the column: the type is the one that it has with them.
    """
    if not isinstance(name, str):
        raise DataError(f"{name!r} is not the name of a column", remedy="give names as text; rename columns")
    if name not in table.columns:
        raise DataError(
            f"column '{name}' is missing",
            remedy=f"name one of the columns that are there: {listed(table.columns)}",
        )
    series = table[name]
    if series.dtype.is_nested():
        raise DataError(
            f"column '{name}' holds {series.dtype}, not one value a row",
            remedy="write one number or one text in each row, or name another column",
        )
    try:
        if gaps or series.is_null().any():
            if not exact and (series.dtype.is_numeric() or series.dtype == nw.Boolean):
                return np.array(series.cast(nw.Float64()).to_numpy(), dtype=np.float64)
            values = np.array(series.to_list(), dtype=object)
            values[null_mask(values)] = None
            return values
        return np.array(series.to_numpy())
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _unreadable(series.to_arrow(), name, error) from error


def _unreadable(column: Any, name: str, error: Exception) -> DataError:
    """The error for an Arrow column of which NumPy's cannot be made."""
    kind = column.type
    if pa.types.is_integer(kind):
        beyond = (abs(value or 0) > LARGEST_EXACT_FLOAT for value in column.to_pylist())
        row = next((row for row, found in enumerate(beyond) if found), 0)
        return inexact(name, row)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return unknown_zone(kind.tz, name)
    require_utf8(column, name)
    return DataError(
        f"cannot be read: {str(error).partition(chr(10))[0]}",
        where=f"column '{name}'",
        remedy="write the column as numbers, text or times, or leave it out",
    )


def inexact(name: str, row: int | None = None) -> DataError:
    """The error for a column of whole numbers, some missing and one, in a row, beyond what fractions tell."""
    return DataError(
        "has whole numbers beyond 2**53 and missing ones: with gaps it is one of fractions, which skip such"
        " numbers",
        where=f"column '{name}'" if row is None else f"column '{name}', row {row}",
        remedy="fill in what is missing, or write the column as text",
    )


def unknown_zone(zone: str, name: str) -> DataError:
    """The error for times of a zone that nobody knows."""
    return DataError(
        f"its times are of the zone '{zone}', which is not known",
        where=f"column '{name}'",
        remedy="write them in UTC, or update the data of time zones (tzdata)",
    )


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of text, each by itself."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_utf8(texts: Any) -> bool:
    """Whether the bytes of Arrow's texts are what they should be; true of all that is not text."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def require_utf8(texts: Any, name: str, row_of: Callable[[int], int] = int) -> None:
    """An error that names the first of Arrow's texts whose bytes are not UTF-8, which readers do not look at.

    Parameters
    ----------
    row_of
        From the place of a text to its row.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if pa.types.is_dictionary(texts.type) and not is_utf8(texts.dictionary):
        texts = texts.dictionary_decode()
    if not is_text(texts.type) or is_utf8(texts):
        return
    for place, value in enumerate(texts.cast(pa.large_binary()).to_pylist()):
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            raise DataError(
                f"value {value[:SHOWN_BYTES]!r} is not UTF-8",
                where=f"column '{name}', row {row_of(place)}",
                remedy="write the column anew in UTF-8",
            ) from None


def further_column(values: Any, name: str) -> NDArray[Any]:
    """A column that is carried along, copied; rows of several lengths are an error."""
    try:
        return np.array(without_mask(values), ndmin=1)
    except ValueError as error:
        raise DataError(
            f"is no array: {error}", where=f"column '{name}'", remedy="give one value for each row"
        ) from None


def null_mask(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values of an object array are None, NaN or a data frame's own null.

    A null differs from itself (NaN) or answers the question with another null (``pandas.NA``).
    """
    return np.fromiter(
        (
            value is None or not isinstance(same := value == value, bool | np.bool_) or not same
            for value in values
        ),
        dtype=bool,
        count=len(values),
    )


def number_column(values: Any, name: str) -> NDArray[np.float64]:
    """A column of numbers; nulls become NaN, text that is no number is an error that names the row."""
    array = array_of(values, name)
    if array.ndim != 1:
        raise DataError(
            f"must be one-dimensional, not of shape {array.shape}",
            where=f"column '{name}'",
            remedy="give one value for each row",
        )
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    null = null_mask(array) if array.dtype.kind == "O" else np.zeros(len(array), dtype=bool)
    number = np.full(len(array), np.nan)
    for row in np.flatnonzero(~null):
        try:
            value = array[row]
            if isinstance(value, str) and not is_number(value):
                raise ValueError(value)
            number[row] = float(value)
        except (TypeError, ValueError):
            raise DataError(
                f"value {array[row].item() if isinstance(array[row], np.generic) else array[row]!r}"
                " is not a number",
                where=f"column '{name}', row {row}",
                remedy="encode as 0 and 1",
            ) from None
    return number


def is_number(text: str) -> bool:
    """Whether a text is a number as files write it; Python would take 0_1 for 1."""
    try:
        return float(text) is not None and "_" not in text
    except ValueError:
        return False


def binary_column(values: Any, name: str) -> NDArray[np.float64]:
    """A column of 0 and 1 without missing values."""
    number = number_column(values, name)
    wrong = ~((number == 0) | (number == 1))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        shown = "missing (NaN or null)" if np.isnan(number[row]) else f"value {number[row]:g}, not 0 or 1"
        raise DataError(
            f"{name} is {shown} ({int(wrong.sum())} such rows)",
            where=f"column '{name}', row {row}",
            remedy="encode as 0 and 1, without missing values",
        )
    return number


def conversion_column(
    values: Any, click: NDArray[np.uint8], space: str, name: str, *, keep: bool = False
) -> NDArray[np.float32]:
    """0 or 1 where clicked and NaN elsewhere; in the space "matrix" an unclicked conversion is an error.

    With ``keep`` it stays a 1, for whoever drops or repairs such rows.
    """
    number = number_column(values, name)
    require_same_length(len(click), len(number), name)
    clicked = click == 1
    if np.isnan(number[clicked]).any():
        row = int(np.flatnonzero(clicked & np.isnan(number))[0])
        raise DataError(
            f"conversion is missing where click is 1 ({int(np.isnan(number[clicked]).sum())} such rows)",
            where=f"column '{name}', row {row}",
            remedy="give 0 or 1 for every clicked row, or drop the row",
        )
    known = np.where(np.isnan(number), 0.0, number)
    binary_column(known, name)
    converted_unclicked = ~clicked & (known == 1)
    if space == "matrix" and not keep and converted_unclicked.any():
        row = int(np.flatnonzero(converted_unclicked)[0])
        raise DataError(
            f"conversion is 1 where click is 0 ({int(converted_unclicked.sum())} such rows)",
            where=f"column '{name}', row {row}",
            remedy="drop such rows (--unclicked drop), count them as clicked (--unclicked click), or set the"
            " conversion to 0 or null",
        )
    return np.where(clicked | (keep & converted_unclicked), known, np.nan).astype(np.float32)


def require_same_length(expected: int, found: int, name: str) -> None:
    """Columns of one log have one length."""
    if expected != found:
        raise DataError(
            f"column '{name}' has {found} rows where the others have {expected}",
            remedy="give every column one value for each row",
        )
