"""A column of numbers of any library as NumPy arrays: NumPy (masked too), Arrow, torch, pandas, polars."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError


def parts_of(values: Any, name: str, first_row: int = 0) -> list[NDArray[Any]]:
    """Return a column as one-dimensional NumPy arrays of numbers; nulls, text and tables are errors."""
    if hasattr(values, "null_count") and hasattr(values, "to_numpy") and not callable(values.null_count):
        return _arrow_parts(values, name, first_row)
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float().numpy() if str(values.dtype) == "torch.bfloat16" else values.numpy()
    array = array_of(values, name)
    if array.ndim != 1:
        raise DataError(
            f"'{name}' must be one-dimensional, not of shape {array.shape}",
            remedy="give one value for each row",
        )
    if array.dtype.kind == "b":
        return [array.view(np.uint8)]
    if array.dtype.kind in "iuf":
        return [array]
    return [_numbers(array, name, first_row)]


def _arrow_parts(values: Any, name: str, first_row: int) -> list[NDArray[Any]]:
    if values.null_count:
        row = values.is_null().to_pylist().index(True)
        raise DataError(
            f"value is missing (null; {values.null_count} such rows)",
            where=f"column '{name}', row {first_row + row}",
            remedy="drop these rows or fill in the values",
        )
    pieces = values.chunks if hasattr(values, "chunks") else [values]
    parts: list[NDArray[Any]] = []
    for piece in pieces:
        parts.extend(parts_of(piece.to_numpy(zero_copy_only=False), name, first_row))
        first_row += len(piece)
    return parts or [np.empty(0)]


def _numbers(array: NDArray[Any], name: str, first_row: int) -> NDArray[np.float64]:
    numbers = np.empty(len(array))
    for row, value in enumerate(array.tolist()):
        try:
            numbers[row] = np.nan if value is None else float(value)
        except (TypeError, ValueError):
            raise DataError(
                f"value {value!r} is not a number",
                where=f"column '{name}', row {first_row + row}",
                remedy="give numbers",
            ) from None
    return numbers


def without_mask(values: Any) -> Any:
    """Return the same values; of a masked array, NaN (numbers) or None (others) where it is masked.

    NumPy's own conversion would show the values under the mask.

    Examples
    --------
    >>> without_mask(np.ma.array([0.2, 0.9], mask=[False, True]))
    array([0.2, nan])
    """
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if not values.mask.any():
        return values.data
    if values.dtype.kind in "biuf":
        given: NDArray[Any] = values.data.astype(np.float64)
        given[values.mask] = np.nan
    else:
        given = values.data.astype(object)
        given[values.mask] = None
    return given


def array_of(values: Any, name: str) -> NDArray[Any]:
    """Return values as an array, missing where they are masked.

    Lists of several lengths are an error, and so are complex numbers, of which NumPy would drop a part.
    """
    try:
        array = np.asarray(without_mask(values))
    except ValueError:
        array = None
    if array is None or array.dtype.kind == "c":
        raise DataError(
            f"{name} holds {'lists of several lengths' if array is None else 'complex numbers'}",
            where=f"column '{name}'",
            remedy="give one number for each row",
        )
    return array
