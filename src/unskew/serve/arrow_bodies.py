"""Columns from an Arrow stream that a stranger sent: checked whole, and never larger than its bytes."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from unskew.errors import DataError
from unskew.plain_text import plain
from unskew.serve.fields import Column

REMEDY = "write it with pyarrow.ipc.new_stream, without compression"

HEADER_TYPE, HEADER = 1, 2
DICTIONARY_BATCH, RECORD_BATCH = 2, 3
DICTIONARY_DATA, COMPRESSION = 1, 3
"""Numbers of fields and of kinds in the messages of Arrow (its ``Message.fbs``)."""


def read_columns(body: bytes) -> dict[str, Column]:
    """Values by column, as Python has them."""
    try:
        _refuse_compression(body)
        table = pa.ipc.open_stream(body).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        if isinstance(error, DataError):
            raise
        reason = plain(str(error).split("\n")[0], longest=120)
        raise DataError(f"the body is not a whole Arrow stream ({reason})", remedy=REMEDY) from error
    names = table.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"column '{twice}' is there twice", remedy="give each once")
    return {name: _values(name, table.column(name)) for name in names}


def _values(name: str, column: pa.ChunkedArray) -> Column:
    values: list[Any] = []
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            # One object for each value of the dictionary, however many rows refer to it.
            known = _plain_values(name, chunk.dictionary)
            places = chunk.indices.to_pylist()
            values += [None if place is None else known[place] for place in places]
        else:
            values += _plain_values(name, chunk)
    return values


def _plain_values(name: str, array: pa.Array) -> list[Any]:
    kind = array.type
    inside = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else kind
    if not _is_plain(inside):
        raise DataError(
            f"holds {plain(kind, longest=60)}, which requests cannot have",
            where=f"column '{name}'",
            remedy="give whole numbers, numbers, texts, times or lists of these",
        )
    if pa.types.is_primitive(kind) and not pa.types.is_temporal(kind) and not array.null_count:
        return list(array.to_numpy(zero_copy_only=False).tolist())
    return list(array.to_pylist())


def _is_plain(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_timestamp(kind)
        or types.is_date32(kind)
        or types.is_null(kind)
    )


def _refuse_compression(body: bytes) -> None:
    """An error for compressed buffers: a few bytes of them may become more than the machine has."""
    messages = pa.ipc.MessageReader.open_stream(body)
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            return
        if _is_compressed(message.metadata.to_pybytes()):
            raise DataError("the Arrow stream is compressed", remedy=REMEDY)


def _is_compressed(message: bytes) -> bool:
    """Whether the batch of a message has a field ``compression``, read off its FlatBuffer."""
    (root,) = struct.unpack_from("<I", message, 0)
    kind_at, batch_at = _field(message, root, HEADER_TYPE), _field(message, root, HEADER)
    if kind_at is None or batch_at is None or message[kind_at] not in (DICTIONARY_BATCH, RECORD_BATCH):
        return False
    batch = batch_at + struct.unpack_from("<I", message, batch_at)[0]
    if message[kind_at] == DICTIONARY_BATCH:
        data_at = _field(message, batch, DICTIONARY_DATA)
        if data_at is None:
            return False
        batch = data_at + struct.unpack_from("<I", message, data_at)[0]
    return _field(message, batch, COMPRESSION) is not None


def _field(message: bytes, table: int, number: int) -> int | None:
    """Where a field of a table of a FlatBuffer is; None where the table does not have it."""
    (back,) = struct.unpack_from("<i", message, table)
    fields = table - back
    (size,) = struct.unpack_from("<H", message, fields)
    at = 4 + 2 * number
    if at + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", message, fields + at)
    return table + offset if offset else None
