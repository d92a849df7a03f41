"""What types the columns of an audit may have, and the errors for those that have others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from unskew.errors import DataError

Schema = Any
"""A ``pyarrow.Schema``; pyarrow ships no types."""


def holds_numbers(kind: Any) -> bool:
    """Whether a column of this type holds numbers, or true and false."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(
        pa.types.is_integer(value)
        or pa.types.is_floating(value)
        or pa.types.is_boolean(value)
        or pa.types.is_decimal(value)
    )


def require_numbers(schema: Schema, numbers: Sequence[str], file: Path) -> None:
    """An error for a column whose type is not one of numbers."""
    for name in numbers:
        kind = schema.field(name).type
        if not holds_numbers(kind):
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
