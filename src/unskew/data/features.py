"""Features of users or items, beside the log of what they did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError


@dataclass(frozen=True, eq=False)
class Features:
    """One row of numbers per user (or per item), in the order of the vocabulary."""

    names: tuple[str, ...]
    values: NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names):
            raise DataError(
                f"a feature matrix of shape {self.values.shape} does not fit its {len(self.names)} names",
                remedy="give one column for each name",
            )
        if not np.isfinite(self.values).all():
            row, column = np.argwhere(~np.isfinite(self.values))[0]
            raise DataError(
                "feature is NaN or infinite",
                where=f"feature '{self.names[column]}', row {row}",
                remedy="fill missing features before building the log",
            )
        values = self.values.astype(np.float32)
        values.flags.writeable = False
        object.__setattr__(self, "values", values)
