"""Rows of a source as a log, in two passes of bounded memory.

The first pass learns what is in the columns: vocabularies, types, what is missing. The second checks every
value and writes codes and numbers. Small arrays stay in memory, large ones are mapped from files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.base.columns import is_text, is_utf8, numpy_of, require_utf8
from unskew.base.errors import DataError
from unskew.base.progress import SILENT, Progress
from unskew.data.arrays import MAPPED_BYTES, mapped, require_disk
from unskew.data.checks import (
    actions_of,
    binary_column,
    conversion_column,
    require_outcomes,
    resolve_duplicates,
    shown_probabilities,
)
from unskew.data.described import (
    AUTO,
    IGNORED,
    Described,
    FeatureColumn,
    Sources,
    asked_columns,
    described,
)
from unskew.data.distinct import Counts, as_numpy
from unskew.data.kinds import Bag, Category, TimePart
from unskew.data.log import Log
from unskew.data.options import LogOptions
from unskew.data.source import Source, is_time
from unskew.data.stream import FileBatch, rows_located, tracked
from unskew.data.vocabulary import Vocabulary, id_column

BUCKETS = 1 << 14
"""Codes that the users, or items, without one of their own share by a hash of their ids."""

LONGEST_TEXT = 256
"""Letters of a text that a mapped log carries along, at most."""


def log_of(
    source: Source,
    asked: LogOptions,
    folder: Callable[[int], Path] | None = None,
    progress: Progress = SILENT,
) -> Log:
    """Read the columns of a source that are asked for as a log.

    Parameters
    ----------
    folder
        Makes the folder that so many bytes of large arrays are mapped from; None keeps all in memory.
    """
    encoding = _Encoding(source, asked.found_in(source.names))
    batches = encoding.reading.batches
    for batch in tracked(batches(), progress, "reading vocabularies"):
        with rows_located(batch):
            encoding.learn(batch)
    with encoding.reading.located():
        encoding.decide(folder)
    for batch in tracked(batches(), progress, "encoding rows"):
        with rows_located(batch):
            encoding.write(batch)
    with encoding.reading.located():
        return encoding.log()


class _Encoding:
    """The state of both passes: what the first learns, and the arrays that the second writes."""

    def __init__(self, source: Source, asked: LogOptions) -> None:
        self.asked = asked
        self.lacked: dict[str, str] = {}
        wanted: Mapping[str, Any] = {}
        if asked.features is not None:
            lacking = {name: file for name, file in source.lacking.items() if name not in asked.taken}
            self.lacked = {name: f"{file} lacks it" for name, file in lacking.items()}
            fields = source.fields if AUTO in asked.features else source.names
            wanted = asked_columns(asked.features, fields, {*asked.taken, *self.lacked})
            self.lacked = {name: why for name, why in self.lacked.items() if name not in wanted}
        ids = [asked.user, asked.item, *asked.outcomes, *asked.carried, *asked.times]
        names = list(dict.fromkeys([*ids, *wanted]))
        text = {
            name for name, each in wanted.items() if any(isinstance(f, Category | TimePart) for f in each)
        }
        guessed = {*asked.numbers, *asked.outcomes, *({*wanted} - text - {*asked.keep})}
        self.reading = source.read(names, [name for name in names if name in guessed])
        kinds = {field.name: field.type for field in self.reading.schema}
        self.columns = {name: FeatureColumn(name, kinds[name], each) for name, each in wanted.items()}
        self.times = tuple(asked.times) or tuple(name for name in wanted if is_time(kinds[name]))
        self.rows = 0
        self.nulls: dict[str, int] = {}
        self.longest: dict[str, int] = {}
        self.sides = ((asked.user, asked.users), (asked.item, asked.items))
        self.ids = [Counts(asked.most_ids) for _ in self.sides]
        self.written: dict[str, int] = {}
        self.parts: dict[str, list[NDArray[Any]]] = {}

    def learn(self, batch: FileBatch) -> None:
        """Learn from some rows."""
        for (name, supplied), counts in zip(self.sides, self.ids, strict=True):
            if supplied is None:
                column = batch.record.column(name)
                require_utf8(column, name)
                counts.add_rows(id_column(column, name))
        for name in {*self.asked.carried, *self.times}:
            column = batch.record.column(name)
            self.nulls[name] = self.nulls.get(name, 0) + column.null_count
            if is_text(column.type) and is_utf8(column):
                longest = pc.max(pc.utf8_length(column.cast(pa.large_string()))).as_py()
                self.longest[name] = max(self.longest.get(name, 1), longest or 1)
        for name, entry in self.columns.items():
            entry.learn(batch.record.column(name))
        self.rows += batch.record.num_rows

    def decide(self, folder: Callable[[int], Path] | None) -> None:
        """Decide what columns are and where arrays lie, once all rows were seen."""
        if not self.rows:
            raise DataError("the log is empty", remedy="give at least a few clicked rows")
        self.vocabularies = tuple(
            given or _vocabulary(counts, name)
            for (name, given), counts in zip(self.sides, self.ids, strict=True)
        )
        known = (name for name in self.times if not self.nulls.get(name))
        self.time = self.asked.time or next(known, None)
        of_time = () if self.time is None else (self.time,)
        self.carried = tuple(dict.fromkeys((*self.asked.carried, *of_time)))
        row, elements = 13 + sum(4 * self.longest.get(name, 2) for name in self.carried), 0
        for column in self.columns.values():
            column.decide()
            row += column.row_bytes()
            elements += column.known if isinstance(column.coded, Bag) else 0
        total = row * self.rows + 4 * elements
        self.folder = folder(total) if folder is not None and total > MAPPED_BYTES else None
        if self.folder is not None:
            require_disk(self.folder, total)

    def write(self, batch: FileBatch) -> None:
        """Check some rows, and write their codes and numbers."""
        asked, record = self.asked, batch.record
        for role, (name, supplied), vocabulary in zip(
            ("user", "item"), self.sides, self.vocabularies, strict=True
        ):
            self._put(role, _codes(vocabulary, record.column(name), name, given=supplied is not None))
        click = np.ones(record.num_rows, dtype=np.uint8)
        if asked.click is not None:
            values = numpy_of(record.column(asked.click), asked.click)
            click = binary_column(values, asked.click).astype(np.uint8)
        self._put("click", click)
        if asked.conversion is not None:
            values = numpy_of(record.column(asked.conversion), asked.conversion)
            keep = asked.unclicked != "error"
            known = conversion_column(values, click, asked.space, asked.conversion, keep=keep)
            self._put("conversion", known)
        for number, name in enumerate(self.carried):
            values = numpy_of(record.column(name), name, gaps=bool(self.nulls.get(name)))
            values = shown_probabilities(values, name) if name == asked.known_propensity else values
            self._put(f"column {number}", self._plain(name, values))
        for number, (name, column) in enumerate(self.columns.items()):
            for kind, array in column.arrays(record.column(name)).items():
                is_list = kind == "codes" and isinstance(column.coded, Bag)
                self._put(f"feature {number}/{kind}", array, column.known if is_list else None)

    def _plain(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Return a carried column in a type that can be mapped."""
        if self.folder is None or values.dtype.kind in "biufM":
            return values
        longest = self.longest.get(name)
        if longest is None or longest > LONGEST_TEXT or self.nulls.get(name):
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
            shape = (self.rows if total is None else total, *values.shape[1:])
            parts.append(mapped(self.folder / f"{len(self.parts)}.npy", shape, values.dtype))
        start = self.written.get(name, 0)
        parts[0][start : start + len(values)] = values
        self.written[name] = start + len(values)

    def log(self) -> Log:
        """Return the log of what was written, checked as a whole."""
        asked, known = self.asked, self.asked.known_propensity
        arrays = {
            name: parts[0] if len(parts) == 1 else np.concatenate(parts) for name, parts in self.parts.items()
        }
        users, items = self.vocabularies
        log = Log(
            user=arrays["user"],
            item=arrays["item"],
            click=arrays["click"],
            conversion=arrays.get("conversion"),
            users=users,
            items=items,
            space=asked.space,
            user_features=asked.user_features,
            item_features=asked.item_features,
            columns={name: arrays[f"column {number}"] for number, name in enumerate(self.carried)},
            known_propensity=known,
            actions=None if known is None else actions_of(asked.actions, arrays["item"], len(items)),
            features=self._features(arrays),
            time=self.time,
        )
        if log.space == "matrix":
            log = resolve_duplicates(log, asked.duplicates, asked.called)
        require_outcomes(log, asked.called)
        return log

    def _features(self, arrays: Mapping[str, NDArray[Any]]) -> Described | None:
        """Return the features of all rows."""
        asked = self.asked
        if asked.features is None:
            return None
        empty = self.reading.schema.empty_table()
        columns = {}
        # The time of a row stands before what else was found.
        numbered = sorted(enumerate(self.columns.items()), key=lambda each: each[1][0] != self.time)
        for number, (name, column) in numbered:
            prefix = f"feature {number}/"
            own = {
                each.removeprefix(prefix): array for each, array in arrays.items() if each.startswith(prefix)
            }
            columns[name] = column.prepared(own, empty.column(name).combine_chunks())
        users, items = self.vocabularies
        tables = (asked.user_features, asked.item_features)
        sources = Sources(arrays["user"], arrays["item"], (len(users), len(items)), asked.space, tables)
        ignored = {*asked.ignore} if asked.auto_keeps else ()
        result = described(asked.features, columns, sources, ignored)
        left_out = {**result.left_out, **self.lacked}
        if AUTO in asked.features:
            made = {each.source for each in result.declared}
            left_out |= {name: IGNORED for name in self.carried if name not in made}
        return Described(result.declared, result.values, left_out, result.times)


def _vocabulary(counts: Counts, name: str) -> Vocabulary:
    """Return the ids that were counted, in their order; the rarest share codes where there are too many."""
    counts.cut()
    ids = np.empty(0)
    if len(counts):
        ids = as_numpy(counts.values.take(pc.array_sort_indices(counts.values)))
    return Vocabulary(ids, name, BUCKETS if counts.truncated else 0)


def _codes(vocabulary: Vocabulary, column: Any, name: str, *, given: bool) -> NDArray[np.int32]:
    """Return codes of ids; one that is not known is an error."""
    codes = vocabulary.encode_column(column)
    if (codes < 0).any():
        if given:
            vocabulary.encode(as_numpy(id_column(column, name)))
        raise DataError("has changed while it was read", where=f"column '{name}'", remedy="read it again")
    return codes
