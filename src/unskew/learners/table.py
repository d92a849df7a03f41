"""Rows as plain arrays, for learners without a network. Importable without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.base.seeds import splitmix64, stream
from unskew.data import Log
from unskew.data.rows import Rows
from unskew.data.schema import Field, Schema

Floats = NDArray[np.float64]


class CodedField(NamedTuple):
    """A field of codes and its columns."""

    field: Field
    codes: NDArray[np.int32]
    """``[n, width]``; −1 where a bag has no more values."""


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """Values of a schema's fields for n rows.

    Parameters
    ----------
    codes
        Columns of the user, the item, and of all categories and bags in the order of the schema.
    numbers
        Columns of all numbers, in the order of the schema.
    key
        A hash of each row's ids. Folds follow from it, so that they do not depend on the order of rows.
    """

    schema: Schema
    codes: NDArray[np.int32]
    numbers: NDArray[np.float32]
    key: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_] | slice) -> EncodedTable:
        """Return some of the rows."""
        return EncodedTable(self.schema, self.codes[rows], self.numbers[rows], self.key[rows])

    def blocks(self, size: int) -> Iterator[tuple[slice, EncodedTable]]:
        """Cut the rows into blocks."""
        for start in range(0, len(self), size):
            rows = slice(start, min(start + size, len(self)))
            yield rows, self.take(rows)

    @cached_property
    def coded(self) -> list[CodedField]:
        """The fields that have codes, ids first."""
        fields = [self.schema.user, self.schema.item]
        fields += [field for field in self.schema.features if not field.is_number]
        ends = np.cumsum([field.width for field in fields])
        return [
            CodedField(field, self.codes[:, end - field.width : end])
            for field, end in zip(fields, ends, strict=True)
        ]

    def folds(self, count: int, seed: int) -> NDArray[np.int64]:
        """Return a fold for each row: a function of its ids and the seed."""
        mixed = splitmix64(self.key + np.uint64(stream(seed, "folds of encodings")))
        return (mixed % np.uint64(count)).astype(np.int64)


class Examples(NamedTuple):
    """Rows with a target and a weight each."""

    rows: EncodedTable
    target: Floats
    weight: Floats

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> Examples:
        """Return some of the examples."""
        return Examples(self.rows.take(rows), self.target[rows], self.weight[rows])


def joined(tables: Sequence[EncodedTable]) -> EncodedTable:
    """Return the rows of several tables of one schema, one after another."""
    columns = ([getattr(table, name) for table in tables] for name in ("codes", "numbers", "key"))
    return EncodedTable(tables[0].schema, *map(np.concatenate, columns))


def read_by_tables(log: Log, fields: Sequence[str] | None) -> Log:
    """Return a log with what a learner of tables reads: its features, or those of the users and items."""
    if log.features is None and (log.user_features is not None or log.item_features is not None):
        log = log.with_features("auto")
    return log if log.features is None else log.reading(fields)


def table_of(
    schema: Schema, rows: Rows, hashes: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
) -> EncodedTable:
    """Return rows ``[1, n]`` as plain arrays.

    Parameters
    ----------
    hashes
        Hashes of the ids by the codes of users, and of items, the last for whoever is not known: for rows
        that are dealt to folds.
    """
    arrays = {name: rows[name][0].cpu().numpy() for name in rows}
    user, item = arrays["user"], arrays["item"]
    columns = [user[:, None], item[:, None], *([arrays["codes"]] if "codes" in arrays else [])]
    numbers = arrays.get("numbers", np.empty((len(user), 0), np.float32))
    key = np.zeros(len(user), dtype=np.uint64)
    if hashes is not None:
        of_user, of_item = (values.view(np.uint64) for values in hashes)
        key = of_user[user] + splitmix64(of_item)[item]
    return EncodedTable(schema, np.hstack(columns).astype(np.int32), numbers, key)
