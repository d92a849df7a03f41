"""Masked arrays: what a mask hides is missing. NumPy's own conversion would show the values under it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


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
