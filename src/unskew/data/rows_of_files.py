"""Files as the source of a stream: their rows, decoded into the codes that one pass over them found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.columns import binary_column, column_of, conversion_column, frame_of
from unskew.base.errors import DataError
from unskew.data.ahead import ahead, mapped
from unskew.data.described import Described
from unskew.data.encoders import Block
from unskew.data.log import Log
from unskew.data.row_groups import STREAM_ANEW, Chunk, Piece, RowGroups
from unskew.data.values import letters_of, times_of, united, values_of
from unskew.data.vocabulary import UNSEEN_CODE, Vocabulary

DECODERS = 2
"""Chunks that are decoded at a time."""

CHUNK_BYTES = 1 << 26
"""What is decoded at a time, at most, and what the texts of a feature take in a log of several chunks."""


@dataclass(frozen=True)
class ColumnNames:
    """Which column of the files is what.

    Attributes
    ----------
    keep
        Carried along as they are.
    time
        When each row was; None for the first of ``times`` without missing values.
    times
        Columns of times that may be it.
    """

    user: str
    item: str
    click: str
    conversion: str | None = None
    keep: tuple[str, ...] = ()
    time: str | None = None
    times: tuple[str, ...] = ()

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Clicks and conversions."""
        return (self.click,) if self.conversion is None else (self.click, self.conversion)

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns that logs have beside ids, outcomes and features."""
        return tuple(dict.fromkeys((*self.keep, *(() if self.time is None else (self.time,)))))

    @property
    def called(self) -> dict[str, str]:
        """What the user calls them, for messages."""
        conversion = self.conversion or "conversion"
        return {"user": self.user, "item": self.item, "click": self.click, "conversion": conversion}


@dataclass(frozen=True, eq=False)
class RowsOfFiles:
    """Files as the source of a stream: row groups, decoded into the codes of one scan.

    Attributes
    ----------
    digest
        Of all ids and outcomes in their order, and of the sizes of the files.
    gaps
        Columns with missing values, which are of one type wherever these are.
    """

    files: RowGroups
    columns: ColumnNames
    empty: Log
    digest: str
    gaps: frozenset[str] = frozenset()

    @cached_property
    def groups(self) -> Sequence[int]:
        """Rows of each row group."""
        return self.files.sizes

    def read(self, pieces: Sequence[Piece], rows: int) -> Iterator[Log]:
        """The rows of pieces, in logs of so many rows.

        Each is decoded in parts where its rows are wide. A feature whose texts are too long to be held is
        there as codes alone.
        """
        chunks = self.files.chunks(pieces, self._schema, rows, CHUNK_BYTES)
        return _in_logs_of(mapped(self.decoded, chunks, DECODERS), rows)

    def read_some(self, places: NDArray[np.int64]) -> Log:
        """Rows by their numbers, which ascend."""
        return self.decoded(self.files.rows_at(places, self._schema))

    def clicks(self, rows: int) -> Iterator[NDArray[np.uint8]]:
        """Clicks of all rows, for which no other column is read."""
        name = self.columns.click
        pieces = [Piece(number, 0, size) for number, size in enumerate(self.groups)]
        for chunk in ahead(self.files.chunks(pieces, self.files.typed([name]), rows), 1):
            with chunk.located():
                yield binary_column(column_of(frame_of(chunk.table), name), name).astype(np.uint8)

    @cached_property
    def _schema(self) -> Any:
        declared = () if self.empty.features is None else self.empty.features.declared
        sources = [each.source for each in declared if each.role == "row"]
        names = (
            self.columns.user,
            self.columns.item,
            *self.columns.outcomes,
            *self.columns.carried,
            *sources,
        )
        return self.files.typed(list(dict.fromkeys(names)))

    def decoded(self, chunk: Chunk) -> Log:
        """The rows of a chunk as a log, with the codes of the stream."""
        table, columns, empty = chunk.table, self.columns, self.empty
        with chunk.located():
            frame = frame_of(table)
            click = binary_column(column_of(frame, columns.click), columns.click).astype(np.uint8)
            return replace(
                empty,
                user=_codes(empty.users, table, columns.user),
                item=_codes(empty.items, table, columns.item),
                click=click,
                conversion=conversions_of(frame, columns, click),
                columns={name: column_of(frame, name, gaps=name in self.gaps) for name in columns.carried},
                features=self._features(table),
            )

    def _features(self, table: Any) -> Described | None:
        features = self.empty.features
        if features is None:
            return None
        of_rows = [each for each in features.declared if each.role == "row"]
        values = {each.name: values_of(each, array_of(table, each.source)) for each in of_rows}
        assert features.encoders is not None
        return replace(
            features,
            values={**features.values, **values},
            times={
                name: times_of(array_of(table, name), name)
                for name in features.times
                if name in table.column_names
            },
            encoded=features.encoders.block("row", len(table), values),
        )


def _in_logs_of(parts: Iterator[Log], rows: int) -> Iterator[Log]:
    """Neighbouring logs of one stream as logs of so many rows, where some of them end."""
    held: list[Log] = []
    count = 0
    for part in parts:
        held = _without_long([*held, part])
        count += len(part)
        if count == rows:
            yield joined_logs(held)
            held, count = [], 0
    if held:
        yield joined_logs(held)


def _without_long(parts: list[Log]) -> list[Log]:
    """Several logs without the values of features whose texts take more than :data:`CHUNK_BYTES` in all."""
    described = [each.features for each in parts if each.features is not None]
    if len(described) < 2:
        return parts
    of_rows = [each.name for each in described[0].declared if each.role == "row"]
    kept = [name for name in of_rows if all(name in each.values for each in described)]
    long = {
        name for name in kept if sum(letters_of(each.values[name]) for each in described) > CHUNK_BYTES
    } | {*of_rows} - {*kept}
    return [
        replace(
            part,
            features=replace(each, values={name: v for name, v in each.values.items() if name not in long}),
        )
        for part, each in zip(parts, described, strict=True)
    ]


def joined_logs(parts: Sequence[Log]) -> Log:
    """The rows of blocks of one stream, one after the other."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    described = [each.features for each in parts if each.features is not None]
    return replace(
        first,
        user=np.concatenate([each.user for each in parts]),
        item=np.concatenate([each.item for each in parts]),
        click=np.concatenate([each.click for each in parts]),
        conversion=None
        if first.conversion is None
        else np.concatenate([each.conversion for each in parts if each.conversion is not None]),
        columns={name: np.concatenate([each.columns[name] for each in parts]) for name in first.columns},
        features=_joined_features(described) if described else None,
    )


def _joined_features(parts: Sequence[Described]) -> Described:
    first = parts[0]
    of_rows = [each.name for each in first.declared if each.role == "row" and each.name in first.values]
    encoded = [each.encoded for each in parts if each.encoded is not None]
    return replace(
        first,
        values={**first.values, **{name: united([each.values[name] for each in parts]) for name in of_rows}},
        times={name: np.concatenate([each.times[name] for each in parts]) for name in first.times},
        encoded=Block(*(np.concatenate(each) for each in zip(*encoded, strict=True))) if encoded else None,
    )


def array_of(table: Any, name: str) -> Any:
    """A column of an Arrow table as one array."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _codes(vocabulary: Vocabulary, table: Any, name: str) -> NDArray[np.int32]:
    """Codes of a column of ids; one that the first pass did not meet is an error."""
    column = array_of(table, name)
    codes = vocabulary.encode_column(column)
    unknown = codes == UNSEEN_CODE
    if unknown.any():
        row = int(unknown.argmax())
        raise DataError(
            f"id {column[row]} was not there when the files were counted",
            where=f"column '{name}', row {row}",
            remedy=STREAM_ANEW,
        )
    return codes


def conversions_of(frame: Any, columns: ColumnNames, click: NDArray[np.uint8]) -> NDArray[np.float32] | None:
    """Conversions of rows, NaN where they are not known; None without such a column."""
    if columns.conversion is None:
        return None
    values = column_of(frame, columns.conversion)
    return conversion_column(values, click, "impressions", columns.conversion)
