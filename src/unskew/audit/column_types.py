"""What types the columns of an audit may have, and the errors for those that have others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from unskew.errors import DataError

Schema = Any
"""A ``pyarrow.Schema``; pyarrow ships no types."""


class ColumnTypeError(DataError):
    """A CSV column whose type was guessed from its first rows has values of another type further down."""

    def __init__(self, column: str, said: str, file: Path) -> None:
        self.column = column
        super().__init__(
            f"column '{column}' has values of several types: {said}",
            where=str(file),
            remedy="write the column with one type, or give Parquet",
        )


def require_numbers(schema: Schema, numbers: Sequence[str], file: Path) -> None:
    """An error for a column whose type is not one of numbers."""
    for name in numbers:
        kind = schema.field(name).type
        value = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (
            pa.types.is_integer(value)
            or pa.types.is_floating(value)
            or pa.types.is_boolean(value)
            or pa.types.is_decimal(value)
        ):
            raise DataError(
                f"column '{name}' holds {kind}, not numbers",
                where=str(file),
                remedy="write the column as numbers, or name another one",
            )


def require_single_values(schema: Schema, names: Sequence[str], file: Path) -> None:
    """An error for a column of lists or records."""
    for name in names:
        kind = schema.field(name).type
        if pa.types.is_nested(kind):
            raise DataError(
                f"column '{name}' holds {kind}, not one value a row",
                where=str(file),
                remedy="name a column of text, numbers or dates",
            )
