"""Columns of files and their types: what a file has, what several agree on, and what a column must be."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from unskew.base.errors import DataError
from unskew.base.tables import (
    Source,
    open_csv,
    reading,
    require_columns,
    typed_schema,
    united,
)

ArrowSchema = Any
"""A ``pyarrow.Schema``; pyarrow ships no types."""


def schema_of(file: Path, *, numbers: Collection[str] = (), guessed: Collection[str] = ()) -> ArrowSchema:
    """The columns of a file and their types, as :func:`stream` gives them.

    Of a CSV file, ``numbers`` are float64, or boolean where its first rows say true and false; columns in
    ``guessed`` are what Arrow takes them for, and the others text.
    """
    with reading(file) as delimiter:
        if delimiter is None:
            return typed_schema(file)
        with open_csv(file, delimiter, None, {}) as reader:
            schema = reader.schema
    return pa.schema([field.with_type(_csv_type(field, numbers, guessed)) for field in schema])


def _csv_type(field: Any, numbers: Collection[str], guessed: Collection[str]) -> Any:
    if field.name in guessed or (field.name in numbers and pa.types.is_boolean(field.type)):
        return field.type
    return pa.float64() if field.name in numbers else pa.string()


def has_types(file: Path) -> bool:
    """Whether a file tells the types of its columns (CSV does not); one of another kind is an error."""
    with reading(file) as delimiter:
        return delimiter is None


def united_schema(files: Sequence[Path], *, numbers: Collection[str] = ()) -> ArrowSchema:
    """The columns of all files, which must agree, of types that hold the values of each.

    A CSV file has no types: beside Parquet or Arrow files its columns have theirs, and otherwise ``numbers``
    are float64 (or boolean) and the others text.
    """
    typed = next((file for file in files if has_types(file)), None)
    types = {} if typed is None else {field.name: field.type for field in schema_of(typed)}
    schemas = []
    for file in files:
        schema = schema_of(file, numbers=numbers)
        require_columns(None, schema.names, file)
        if not has_types(file):
            schema = pa.schema([each.with_type(types.get(each.name, each.type)) for each in schema])
        schemas.append(schema.remove_metadata())
    return united(list(files), schemas)


def require_readable(
    schema: ArrowSchema, wanted: list[str], numbers: Sequence[str], text: Sequence[str], file: Source
) -> None:
    """An error for a column that is missing, or of a type that it may not have."""
    require_columns(wanted, schema.names, file)
    require_numbers(schema, numbers, file)
    for name in text:
        kind = schema.field(name).type
        if pa.types.is_nested(kind):
            raise DataError(
                f"column '{name}' holds {kind}, not one value a row",
                where=str(file),
                remedy="name a column of text, numbers or dates",
            )


def holds_numbers(kind: Any) -> bool:
    """Whether a column of this type holds numbers, or true and false."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(
        pa.types.is_integer(value)
        or pa.types.is_floating(value)
        or pa.types.is_boolean(value)
        or pa.types.is_decimal(value)
    )


def require_numbers(schema: ArrowSchema, numbers: Sequence[str], file: Source) -> None:
    """An error for a column whose type is not one of numbers."""
    for name in numbers:
        kind = schema.field(name).type
        if not holds_numbers(kind):
            raise DataError(
                f"column '{name}' holds {kind}, not numbers",
                where=str(file),
                remedy="write the column as numbers, or name another one",
            )
