"""Columns of data frames and arrays of any library, as Arrow or NumPy arrays, checked value by value."""

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

SHOWN_BYTES = 40
"""Bytes of a wrong value that a message shows."""

LARGEST_EXACT_FLOAT = 2.0**53
"""Above it doubles skip whole numbers, and two ids could become one."""


def frame_of(frame: Any, *, collect: bool = False) -> nw.DataFrame[Any]:
    """Return a data frame in memory (pandas, polars, Arrow, …) behind one interface.

    Parameters
    ----------
    collect
        Also take what is computed when it is needed, such as a relation, and compute it.
    """
    try:
        supplied = nw.from_native(frame, eager_only=not collect)
        return supplied.collect(backend="pyarrow") if isinstance(supplied, nw.LazyFrame) else supplied
    except TypeError:
        remedy = "collect it first" if hasattr(frame, "collect") else "give a pandas, polars or Arrow table"
        raise DataError(f"{type(frame).__name__} is not a data frame in memory", remedy=remedy) from None
    except nw.exceptions.DuplicateError as error:
        raise DataError(" ".join(str(error).split()), remedy="rename the repeated columns") from None


def is_frame(thing: Any) -> bool:
    """Return whether something is a data frame, in memory or to be collected first."""
    if isinstance(thing, (str, Path, list, tuple, dict)):
        return False
    return isinstance(nw.from_native(thing, pass_through=True), nw.DataFrame | nw.LazyFrame)


def with_columns(frame: Any, columns: Mapping[str, Any]) -> Any:
    """Return the same kind of data frame with further columns at its end."""
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


def column_of(table: nw.DataFrame[Any], name: str) -> NDArray[Any]:
    """Return a column of a frame as :func:`numpy_of` has it; a missing column is an error."""
    return numpy_of(arrow_of(series_of(table, name), name), name)


def series_of(table: nw.DataFrame[Any], name: str) -> nw.Series[Any]:
    """Return a column of a frame; a missing column is an error."""
    if not isinstance(name, str):
        raise DataError(f"{name!r} is not the name of a column", remedy="give names as text; rename columns")
    if name not in table.columns:
        raise DataError(
            f"column '{name}' is missing",
            remedy=f"name one of the columns that are there: {listed(table.columns)}",
        )
    return table[name]


def arrow_of(column: Any, name: str) -> Any:
    """Return a column of any library as one ``pyarrow.Array``."""
    try:
        values = column.to_arrow() if hasattr(column, "to_arrow") else without_mask(column)
        if isinstance(values, pa.ChunkedArray):
            return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
        if isinstance(values, pa.Array):
            return values
        if isinstance(values, np.ndarray) and values.dtype.kind in "OT":
            values = values.astype(object)
        if isinstance(values, np.ndarray) and values.dtype.kind == "M":
            known = np.datetime_data(values.dtype)[0] in ("D", "s", "ms", "us", "ns")
            values = values if known else values.astype("datetime64[s]")
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"its values are of several types ({str(error).splitlines()[0]})",
            where=f"column '{name}'",
            remedy="write the column with one type, or leave it out (ignore)",
        ) from error


def numpy_of(array: Any, name: str, *, gaps: bool = False) -> NDArray[Any]:
    """Return a ``pyarrow.Array`` as NumPy: nulls become NaN in numbers, NaT in times and None in text.

    Parameters
    ----------
    gaps
        Whether there are nulls in other rows of the column: the type is the one that it has with them.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_nested(kind):
        shown = "List" if "list" in str(kind) else str(kind)
        raise DataError(
            f"column '{name}' holds {shown}, not one value a row",
            remedy="write one number or one text in each row, or name another column",
        )
    require_utf8(array, name)
    try:
        if not (gaps or array.null_count) or pa.types.is_temporal(kind):
            return np.array(array.to_numpy(zero_copy_only=False))
        if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return np.array(array.cast(pa.float64()).to_numpy(zero_copy_only=False))
        return np.array([*array.to_pylist(), None], dtype=object)[:-1]
    except pa.ArrowException as error:
        if pa.types.is_integer(kind):
            beyond = (abs(value or 0) > LARGEST_EXACT_FLOAT for value in array.to_pylist())
            row = next((row for row, found in enumerate(beyond) if found), 0)
            raise DataError(
                "has whole numbers beyond 2**53 and missing ones: with gaps it is one of fractions, which"
                " skip such numbers",
                where=f"column '{name}', row {row}",
                remedy="fill in what is missing, or write the column as text",
            ) from error
        raise DataError(
            f"cannot be read: {str(error).partition(chr(10))[0]}",
            where=f"column '{name}'",
            remedy="write the column as numbers, text or times, or leave it out",
        ) from error


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is one of text, each by itself."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_utf8(texts: Any) -> bool:
    """Return whether the bytes of Arrow's texts are what they should be; true of all that is not text."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def require_utf8(texts: Any, name: str, row_of: Callable[[int], int] = int) -> None:
    """Name the first of Arrow's texts whose bytes are not UTF-8, which readers do not look at.

    Parameters
    ----------
    row_of
        From the place of a text to its row.
    """
    if pa.types.is_dictionary(texts.type) and not is_utf8(texts.dictionary):
        texts = texts.dictionary_decode()
    if not is_text(texts.type) or is_utf8(texts):
        return
    for position, value in enumerate(texts.cast(pa.large_binary()).to_pylist()):
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            raise DataError(
                f"value {value[:SHOWN_BYTES]!r} is not UTF-8",
                where=f"column '{name}', row {row_of(position)}",
                remedy="write the column anew in UTF-8",
            ) from None


def null_mask(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which values of an object array are None, NaN or a data frame's own null.

    A null differs from itself (NaN) or answers the question with another null (``pandas.NA``).
    """
    is_null = (
        value is None or not isinstance(same := value == value, bool | np.bool_) or not same
        for value in values
    )
    return np.fromiter(is_null, dtype=bool, count=len(values))


def number_column(values: Any, name: str) -> NDArray[np.float64]:
    """Return a column of numbers; nulls become NaN, text that is no number is an error that names the row."""
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
        value = array[row].item() if isinstance(array[row], np.generic) else array[row]
        try:
            if isinstance(value, str) and not is_number(value):
                raise ValueError(value)
            number[row] = float(value)
        except (TypeError, ValueError):
            raise DataError(
                f"value {value!r} is not a number",
                where=f"column '{name}', row {row}",
                remedy="encode as 0 and 1",
            ) from None
    return number


def is_number(text: str) -> bool:
    """Return whether a text is a number as files write it; Python would take 0_1 for 1."""
    try:
        return float(text) is not None and "_" not in text
    except ValueError:
        return False


def require_same_length(expected: int, found: int, name: str) -> None:
    """Refuse columns of one log of several lengths."""
    if expected != found:
        raise DataError(
            f"column '{name}' has {found} rows where the others have {expected}",
            remedy="give every column one value for each row",
        )
