"""Masked arrays: what a mask hides is missing. NumPy's own conversion would show the values under it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.errors import DataError


def without_mask(values: Any) -> Any:
    """The same values; of a masked array, with NaN (numbers) or None (others) where they are masked.

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
    """What was given as an array, missing where it is masked.

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
