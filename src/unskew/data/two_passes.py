"""Rows of a source as the arrays of a log, in two passes of bounded memory.

The first pass learns what is in the columns: vocabularies, types, what is missing. The second checks every
value and writes codes and numbers. Small arrays stay in memory, large ones are mapped from files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.base.columns import (
    binary_column,
    column_of,
    conversion_column,
    frame_of,
    is_text,
    is_utf8,
    require_utf8,
)
from unskew.base.errors import DataError
from unskew.base.progress import SILENT, Progress
from unskew.data.arrays import MAPPED_BYTES, mapped, require_disk
from unskew.data.checks import Unclicked
from unskew.data.described import (
    AUTO,
    NO_FEATURE,
    Prepared,
    Wanted,
    lacked_by,
    without_auto,
)
from unskew.data.distinct import Counts, as_numpy
from unskew.data.feature_column import FeatureColumn, changed
from unskew.data.kinds import Bag, Category, Feature, TimePart
from unskew.data.known_propensity import shown_probabilities
from unskew.data.source import Reading, Source, is_time
from unskew.data.stream import FileBatch, rows_located, tracked
from unskew.data.vocabulary import Vocabulary, id_column

MOST_IDS = 10_000_000
"""Users, and items, that have a code of their own at most: the most frequent."""

BUCKETS = 1 << 14
"""Codes that the other users, or items, share by a hash of their ids."""

LONGEST_TEXT = 256
"""Letters of a text that a mapped log carries along, at most."""


@dataclass(frozen=True)
class LogColumns:
    """Which columns of a source are read, and as what.

    Attributes
    ----------
    click, conversion, known_propensity
        Outcomes; None where there is no such column.
    keep
        Further columns, carried along as they are.
    time, times
        The column that says when each row was; None for the first of ``times``, or else of the features,
        that is one of times without missing values.
    features, ignore
        What networks read beside the ids.
    guessed
        Columns of CSV files, beside features and outcomes, whose values tell their type.
    most_ids
        Users, and items, that have a code of their own at most.
    unclicked
        Rows that converted without a click are an error, or keep their conversion for what resolves them.
    """

    user: str
    item: str
    click: str | None = None
    conversion: str | None = None
    known_propensity: str | None = None
    keep: Iterable[str] = ()
    time: str | None = None
    times: tuple[str, ...] = ()
    features: Wanted | None = None
    ignore: Iterable[str] = ()
    guessed: Iterable[str] = ()
    most_ids: int = MOST_IDS
    unclicked: Unclicked = "error"

    @property
    def outcomes(self) -> list[str]:
        """The columns of outcomes."""
        return [name for name in (self.click, self.conversion, self.known_propensity) if name is not None]

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns that the log has beside ids, outcomes and features."""
        further = (self.known_propensity, self.time)
        return tuple(dict.fromkeys((*self.keep, *(name for name in further if name is not None))))


@dataclass(frozen=True)
class Encoded:
    """The arrays of a log: codes of ids, outcomes, further columns, and features by column."""

    users: Vocabulary
    items: Vocabulary
    user: NDArray[np.int32]
    item: NDArray[np.int32]
    click: NDArray[np.uint8]
    conversion: NDArray[np.float32] | None
    columns: Mapping[str, NDArray[Any]]
    features: Mapping[str, Prepared]
    left_out: Mapping[str, str]
    time: str | None
    place: Callable[[DataError], DataError]
    """How an error of the whole log is placed."""


def encoded(
    source: Source,
    asked: LogColumns,
    space: str,
    vocabularies: tuple[Vocabulary | None, Vocabulary | None] = (None, None),
    folder: Callable[[int], Path] | None = None,
    progress: Progress = SILENT,
) -> Encoded:
    """Read a source into the arrays of a log.

    Parameters
    ----------
    vocabularies
        Users and items of another log, whose codes are shared; None for those that are there.
    folder
        Makes the folder that so many bytes of large arrays are mapped from; None keeps all in memory.
    """
    columns, left_out = _feature_columns(source, asked)
    ids = [asked.user, asked.item, *asked.outcomes, *asked.carried, *asked.times]
    names = list(dict.fromkeys([*ids, *columns]))
    typed = {name for name, features in columns.items() if not any(map(_is_text_by_wish, features))}
    guessed = [name for name in names if name in {*asked.guessed, *asked.outcomes, *(typed - {*asked.keep})}]
    reading = source.read(names, guessed)
    first = _FirstPass(reading, asked, vocabularies, columns)
    for batch in tracked(reading.batches(), progress, "reading vocabularies"):
        with rows_located(batch):
            first.add(batch)
    try:
        if not first.rows:
            raise DataError("the log is empty", remedy="give at least a few clicked rows")
        second = _SecondPass(first, space, folder)
    except DataError as error:
        raise reading.place(error) from error
    return second.run(progress, left_out)


def _is_text_by_wish(feature: Feature | None) -> bool:
    return isinstance(feature, Category | TimePart)


def _feature_columns(
    source: Source, asked: LogColumns
) -> tuple[dict[str, tuple[Feature | None, ...]], dict[str, str]]:
    """Return the columns of features, each with what is declared of it, and those that are left out.

    None is declared of a column that is named, or found.
    """
    if asked.features is None:
        return {}, {}
    declared = without_auto(asked.features)
    named: dict[str, tuple[Feature | None, ...]] = {}
    for each in declared:
        source_name = each if isinstance(each, str) else each.source
        named[source_name] = (*named.get(source_name, ()), None if isinstance(each, str) else each)
    if AUTO not in asked.features:
        return named, {}
    taken = {asked.user, asked.item, *asked.outcomes, *asked.ignore, *asked.keep, *named}
    lacked = {name: lacked_by(file) for name, file in source.lacking.items() if name not in taken}
    found = [name for name in source.fields if name not in taken and name not in lacked]
    return {**named, **dict.fromkeys(found, (None,))}, lacked


@dataclass(eq=False)
class _FirstPass:
    """What the first pass learns."""

    reading: Reading
    asked: LogColumns
    vocabularies: tuple[Vocabulary | None, Vocabulary | None]
    declared: Mapping[str, Sequence[Feature | None]]
    rows: int = 0
    nulls: dict[str, int] = field(default_factory=dict)
    longest: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ids = [Counts(self.asked.most_ids) for _ in self.vocabularies]
        schema = self.reading.schema
        self.times = self.asked.times or tuple(
            name for name in self.declared if is_time(schema.field(name).type)
        )
        self.columns = {
            name: FeatureColumn(name, schema.field(name).type, declared)
            for name, declared in self.declared.items()
        }

    def add(self, batch: FileBatch) -> None:
        """Learn from some rows."""
        names = (self.asked.user, self.asked.item)
        for name, counts, given in zip(names, self.ids, self.vocabularies, strict=True):
            if given is None:
                column = batch.record.column(name)
                require_utf8(column, name)
                counts.add_rows(id_column(column, name))
        for name in {*self.asked.carried, *self.times}:
            column = batch.record.column(name)
            self.nulls[name] = self.nulls.get(name, 0) + column.null_count
            if is_text(column.type):
                longest = (
                    pc.max(pc.utf8_length(column.cast(pa.large_string()))).as_py() if is_utf8(column) else 1
                )
                self.longest[name] = max(self.longest.get(name, 1), longest or 1)
        for name, each in self.columns.items():
            each.learn(batch.record.column(name))
        self.rows += batch.record.num_rows

    @property
    def time(self) -> str | None:
        """The column that says when each row was."""
        known = (name for name in self.times if not self.nulls.get(name))
        return self.asked.time or next(known, None)

    def vocabulary(self, side: int) -> Vocabulary:
        """Return the users (0) or the items (1)."""
        given, counts = self.vocabularies[side], self.ids[side]
        if given is not None:
            return given
        name = (self.asked.user, self.asked.item)[side]
        counts.cut()
        ids = np.empty(0) if not len(counts) else counts.values.take(pc.array_sort_indices(counts.values))
        return Vocabulary(
            as_numpy(ids) if len(counts) else np.empty(0), name, BUCKETS if counts.truncated else 0
        )


class _SecondPass:
    """Codes and numbers of all rows, written batch by batch."""

    def __init__(self, first: _FirstPass, space: str, folder: Callable[[int], Path] | None) -> None:
        self.first, self.space, self.reading = first, space, first.reading
        self.vocabularies = (first.vocabulary(0), first.vocabulary(1))
        self.time = first.time
        asked = first.asked
        self.carried = tuple(dict.fromkeys((*asked.carried, *([] if self.time is None else [self.time]))))
        for column in first.columns.values():
            column.decide()
        total = self._bytes()
        self.folder = folder(total) if folder is not None and total > MAPPED_BYTES else None
        if self.folder is not None:
            require_disk(self.folder, total)
        self.written: dict[str, int] = {}
        self.parts: dict[str, list[NDArray[Any]]] = {}

    def _bytes(self) -> int:
        """Return what the arrays take, about."""
        row = 13 + sum(column.row_bytes() for column in self.first.columns.values())
        row += sum(4 * self.first.longest.get(name, 2) for name in self.carried)
        elements = sum(
            column.known for column in self.first.columns.values() if isinstance(column.coded, Bag)
        )
        return row * self.first.rows + 4 * elements

    def run(self, progress: Progress, left_out: Mapping[str, str]) -> Encoded:
        """Write all rows."""
        columns = self.first.columns
        for batch in tracked(self.reading.batches(), progress, "encoding rows"):
            with rows_located(batch):
                self._add(batch)
        arrays = {name: self._whole(parts) for name, parts in self.parts.items()}

        def of(prefix: str) -> dict[str, NDArray[Any]]:
            named = f"{prefix}/"
            return {name.removeprefix(named): each for name, each in arrays.items() if name.startswith(named)}

        empty = self.reading.schema.empty_table()
        features = {
            name: column.prepared(of(f"feature {number}"), empty.column(name).combine_chunks())
            # The time of a row stands before what else was found.
            for number, (name, column) in sorted(
                enumerate(columns.items()), key=lambda numbered: numbered[1][0] != self.time
            )
            if column.features
        }
        nothing = dict.fromkeys((name for name, column in columns.items() if not column.features), NO_FEATURE)
        return Encoded(
            *self.vocabularies,
            arrays["user"],
            arrays["item"],
            arrays["click"],
            arrays.get("conversion"),
            {name: arrays[f"column {number}"] for number, name in enumerate(self.carried)},
            features,
            {**left_out, **nothing},
            self.time,
            self.reading.place,
        )

    def _add(self, batch: FileBatch) -> None:
        asked = self.first.asked
        put = self._put
        frame = frame_of(pa.Table.from_batches([batch.record]))
        for role, vocabulary, name in zip(
            ("user", "item"), self.vocabularies, (asked.user, asked.item), strict=True
        ):
            put(
                role,
                _codes(vocabulary, batch, name, given=self.first.vocabularies[role == "item"] is not None),
            )
        click = np.ones(batch.record.num_rows, dtype=np.uint8)
        if asked.click is not None:
            click = binary_column(column_of(frame, asked.click), asked.click).astype(np.uint8)
        put("click", click)
        if asked.conversion is not None:
            values = column_of(frame, asked.conversion)
            keep = asked.unclicked != "error"
            put("conversion", conversion_column(values, click, self.space, asked.conversion, keep=keep))
        for number, name in enumerate(self.carried):
            require_utf8(batch.record.column(name), name)
            values = column_of(frame, name, gaps=bool(self.first.nulls.get(name)))
            if name == asked.known_propensity:
                values = shown_probabilities(values, name)
            put(f"column {number}", self._plain(name, values))
        for number, (name, column) in enumerate(self.first.columns.items()):
            for kind, array in column.arrays(batch.record.column(name)).items():
                is_list = kind == "codes" and isinstance(column.coded, Bag)
                put(f"feature {number}/{kind}", array, column.known if is_list else None)

    def _plain(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Return a carried column in a type that can be mapped."""
        if self.folder is None or values.dtype.kind in "biufM":
            return values
        longest = self.first.longest.get(name)
        if longest is None or longest > LONGEST_TEXT or self.first.nulls.get(name):
            raise DataError(
                f"a log of this size cannot carry it along: it is text with gaps, or of {longest} letters",
                where=f"column '{name}'",
                remedy=f"leave it out, fill in what is missing, or cut it to {LONGEST_TEXT} letters",
            )
        return values.astype(f"U{longest}")

    def _put(self, name: str, values: NDArray[Any], total: int | None = None) -> None:
        """Write the values of some rows, of ``total`` (of as many as the log has rows)."""
        parts = self.parts.setdefault(name, [])
        if self.folder is None:
            parts.append(values)
            return
        if not parts:
            shape = (self.first.rows if total is None else total, *values.shape[1:])
            parts.append(mapped(self.folder / f"{len(self.parts)}.npy", shape, values.dtype))
        start = self.written.get(name, 0)
        parts[0][start : start + len(values)] = values
        self.written[name] = start + len(values)

    @staticmethod
    def _whole(parts: list[NDArray[Any]]) -> NDArray[Any]:
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _codes(vocabulary: Vocabulary, batch: FileBatch, name: str, *, given: bool) -> NDArray[np.int32]:
    """Return codes of ids; one that is not known is an error."""
    column = batch.record.column(name)
    codes = vocabulary.encode_column(column)
    if (codes < 0).any():
        if given:
            vocabulary.encode(as_numpy(id_column(column, name)))
        raise changed(name)
    return codes
