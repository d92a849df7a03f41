"""Files into the store of a monitor: read once, known by their content, never counted twice."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.audit.monitor_store import (
    Addition,
    CountedSource,
    MonitorSettings,
    MonitorStore,
    locked_for_long,
    require_same,
)
from unskew.audit.periods import PeriodCodes
from unskew.audit.reading import counted_cells, names_of, require_both_outcomes
from unskew.audit.segments import MISSING, ValueCodes
from unskew.base.errors import DataError
from unskew.base.files import check_file, real
from unskew.base.progress import SILENT, Progress
from unskew.data.files import expand_paths
from unskew.data.files import names_of as columns_of
from unskew.data.stream import FileBatch, located, number_columns, stream, tracked
from unskew.metrics.cells import COUNTS, RESOLUTION, Cells, Key

MOST_VALUES = 1_000
"""Values of a column that are counted on their own, the first to be met; the rest is one group."""

SURELY_SOME = math.exp(-20.0)
"""A period of one outcome is an error where honest scores have no more than this chance of it."""

_ONE_OUTCOME = (
    "were the outcomes joined, and all rows kept?",
    "add the period when its outcomes are in; --maturity keeps it open until then",
)
"""What to ask, and what to do, where all outcomes of a period are the same."""

TRIES = 3
"""How often files are read again because another process added some of them meanwhile."""


@dataclass(frozen=True)
class Added:
    """What adding files did.

    Attributes
    ----------
    files, rows
        Files whose rows were added, and how many.
    known
        Files whose content was there already.
    closed
        Periods that a newer version of a known file has, and that are closed: they stay as they were.
    periods, open
        Periods of the store, and how many of them are open.
    """

    files: int
    rows: int
    known: int
    closed: int
    periods: int
    open: int


def add(
    store: str | Path,
    files: Any,
    *,
    settings: MonitorSettings | None = None,
    as_of: np.datetime64 | None = None,
    latest: bool = False,
    progress: Progress = SILENT,
) -> Added:
    """Add files of rows, or of cells that an engine counted, to a store; make it if there is none.

    A file whose content was added before is left out. A newer version of a file (the same name) takes the
    place of the older in open periods; closed ones stay as they are. Two processes may add at once.

    Parameters
    ----------
    store
        The store's file.
    files
        CSV, Parquet and Arrow files, folders and globs of them, or several of these.
    settings
        Columns and periods; needed for a new store only.
    as_of
        When the files' outcomes were as they are; by default when each file was written.
    latest
        Periods of these files are known from these files alone: what they held before is dropped.
    """
    path = Path(store)
    check_file(path)
    given = expand_paths(files)
    digests = {file: _digest(file) for file in given}
    for _ in range(TRIES):
        known = _load(path, settings, given)
        plan = _plan(digests, known, as_of, latest)
        additions, closed = _read(plan, known, latest, progress)
        with locked_for_long(path):
            now = MonitorStore.load(path) if path.exists() else known
            if not latest and _known(now, plan) != _known(known, plan):
                continue
            for each in (each for each in plan if each.known_as is not None):
                now = now.seen_again(str(each.known_as), each.as_of)
            now = now.extended(additions, latest=latest)
            _require_both_outcomes(now, additions)
            if now.cells.keys:
                now.save()
            periods = now.periods()
            return Added(
                files=len(additions),
                rows=sum(each.source.rows for each in additions),
                known=sum(each.known_as is not None for each in plan),
                closed=closed,
                periods=len(periods),
                open=sum(not is_closed for is_closed in periods.values()),
            )
    raise DataError(
        "other processes add the same files again and again",
        where=str(path),
        remedy="add each file by one process",
    )


@dataclass(frozen=True)
class _Planned:
    """A file, and what the store knows of it."""

    file: Path
    name: str
    digest: str
    as_of: np.datetime64
    known_as: str | None


def _plan(
    digests: Mapping[Path, str], store: MonitorStore, as_of: np.datetime64 | None, latest: bool
) -> list[_Planned]:
    """What to do with each file: one whose content is known, or comes twice, adds nothing.

    With ``latest`` all are read: what the store has of their periods is dropped.
    """
    plan: list[_Planned] = []
    names: dict[str, str] = {}
    for file, digest in digests.items():
        name = os.path.relpath(real(file), real(store.path).parent)
        known = None if latest else store.with_digest(digest)
        twice = names.get(digest) or (None if known is None else known.name)
        names.setdefault(digest, name)
        written = np.datetime64(file.stat().st_mtime_ns // 1000, "us")
        plan.append(_Planned(file, name, digest, written if as_of is None else as_of, twice))
    return plan


def _known(store: MonitorStore, plan: Sequence[_Planned]) -> list[Any]:
    """What a store knows of some files."""
    return [(store.source(each.name), store.with_digest(each.digest)) for each in plan]


def _load(path: Path, settings: MonitorSettings | None, files: Sequence[Path]) -> MonitorStore:
    if not path.exists():
        if settings is None:
            raise DataError(
                "there is no such store",
                where=str(path),
                remedy="name the columns: --score, --outcome and --by, with --time for a day, hour or week",
            )
        if real(path) in {real(file) for file in files}:
            raise DataError("is among the files to add", where=str(path), remedy="give it another name")
        return MonitorStore.empty(path, settings)
    store = MonitorStore.load(path)
    if settings is not None:
        require_same(store.settings, settings, path)
    return store


def _read(
    plan: Sequence[_Planned], store: MonitorStore, latest: bool, progress: Progress
) -> tuple[list[Addition], int]:
    """The additions of files that are new, and how many closed periods of known files were left."""
    new = [each for each in plan if each.known_as is None]
    reader = _Reader(store)
    additions, closed = [], 0
    for each in new:
        kept = frozenset() if latest else store.closed_of(each.name)
        cells = {*COUNTS, *RESOLUTION} <= set(columns_of(each.file))
        found, left = reader.cells(each, kept) if cells else reader.rows(each, kept, progress)
        additions.append(found)
        closed += left
    return reader.finished(additions), closed


class _Reader:
    """Files as additions; cells of closed periods are gathered over all files, which bounds the memory."""

    def __init__(self, store: MonitorStore) -> None:
        self.store = store
        self.settings = store.settings
        self.columns = self.settings.roles.segments or ("",)
        self.values = {column: ValueCodes(MOST_VALUES, store.values(column)) for column in self.columns}
        self.periods = PeriodCodes(self.settings.by, self.settings.zone)
        self.closed = self._empty()

    def _empty(self) -> Cells:
        grid = self.store.cells.grid
        return Cells([], bins=grid.bins, mantissa_bits=grid.mantissa_bits)

    def rows(self, planned: _Planned, kept: frozenset[str], progress: Progress) -> tuple[Addition, int]:
        """Count a file of rows; those of periods that are ``kept`` are left out."""
        roles, by = self.settings.roles, self.settings.by
        names = list(dict.fromkeys([*roles.names, by.column]))
        text = [*roles.segments, by.column]
        batches = stream([planned.file], columns=names, numbers=roles.numbers, text=text)
        opened, seen, left, rows = self._empty(), dict[str, None](), set[str](), 0
        for batch in tracked(batches, progress, planned.file.name):
            with located(batch):
                period = self.periods.codes(batch.record.column(by.column), batch.first_row)
            labels = list(self.periods.labels)
            here: list[int] = np.flatnonzero(np.bincount(period, minlength=len(labels))).tolist()
            left |= {labels[code] for code in here} & kept
            seen |= dict.fromkeys(labels[code] for code in here if labels[code] not in kept)
            counted = self._counted(batch, period, labels)
            counted = counted.select(lambda key: key.period not in kept)
            closed = {label for label in seen if self.settings.is_closed(label, planned.as_of)}
            self.closed.add(counted.select(partial(_is_of, closed, True)))
            opened.add(counted.select(partial(_is_of, closed, False)))
            rows += sum(n for key, n in counted.rows().items() if key.segment == self.columns[0])
        if not rows and not left:
            raise DataError("there are no rows", where=str(planned.file), remedy="leave the file out")
        source = CountedSource(planned.name, planned.digest, str(planned.as_of), rows, tuple(seen))
        return Addition(source, opened.renamed(lambda key: key._replace(source=planned.name))), len(left)

    def _counted(self, batch: FileBatch, period: NDArray[np.int64], labels: Sequence[str]) -> Cells:
        """Return the cells of a batch by period and value of each column."""
        roles, counted = self.settings.roles, self._empty()
        columns = number_columns(batch, roles.numbers)
        for column in self.columns:
            value = (
                self.values[column].codes(batch.record.column(column)) if column else np.zeros_like(period)
            )
            width = int(value.max(initial=0)) + 1
            pairs, number = np.unique(period * width + value, return_inverse=True)
            names = self.values[column].names() if column else [""]
            of_column = self._empty()
            of_column.keys = [
                Key(labels[which], column, names[code])
                for which, code in (divmod(int(p), width) for p in pairs)
            ]
            with located(batch):
                of_column.update(*columns, key=number, first_row=batch.first_row, names=names_of(roles))
            counted.add(of_column)
        return counted

    def cells(self, planned: _Planned, kept: frozenset[str]) -> tuple[Addition, int]:
        """Take a file of cells, as the query of :mod:`unskew.audit.sql` gives them."""
        given = counted_cells(planned.file)
        where = str(planned.file)
        self.store.cells.require_same_grid(given, where)
        segments = {key.segment for key in given.keys}
        wanted = set(self.columns)
        if segments != wanted or any(not key.period for key in given.keys):
            raise DataError(
                f"holds cells of {sorted(segments)}, where the store has {sorted(wanted)} by period",
                where=where,
                remedy="make the cells with the store's --segment and --by",
            )
        with located(FileBatch(planned.file, 0, 0, None, 1.0)):
            label = {name: self.periods.label_of(name) for name in {key.period for key in given.keys}}
        closed = {name: self.settings.is_closed(name, planned.as_of) for name in label.values()}

        def renamed(key: Key) -> Key:
            period, value = label[key.period], key.value or (MISSING if key.segment else "")
            return Key(period, key.segment, value, source="" if closed[period] else planned.name)

        cells = given.renamed(renamed).select(lambda key: key.period not in kept)
        rows = sum(n for key, n in cells.rows().items() if key.segment == self.columns[0])
        periods = tuple(sorted(name for name in closed if name not in kept))
        source = CountedSource(planned.name, planned.digest, str(planned.as_of), rows, periods)
        return Addition(source, cells), len(kept & set(closed))

    def finished(self, additions: list[Addition]) -> list[Addition]:
        """Return the additions, the last with what all files gave to closed periods."""
        if not additions:
            return additions
        last = additions[-1]
        return [*additions[:-1], replace(last, cells=self._empty().add(last.cells).add(self.closed))]


def _is_of(periods: Collection[str], inside: bool, key: Key) -> bool:
    return (key.period in periods) == inside


def _require_both_outcomes(store: MonitorStore, additions: Sequence[Addition]) -> None:
    """An error for a closed period of one outcome alone, where that is no chance."""
    touched = {period for each in additions for period in each.source.periods}
    first = (*store.settings.roles.segments, "")[0]
    closed = store.cells.select(lambda key: key.period in touched and key.segment == first and not key.source)
    by_period = closed.group("period")
    for number, key in sorted(enumerate(by_period.keys), key=lambda numbered: numbered[1]):
        require_both_outcomes(
            by_period.sketch_at(number),
            store.settings.roles.outcome,
            SURELY_SOME,
            where=f"{store.path}, period {key.period}",
            remedies=dict.fromkeys((0, 1), _ONE_OUTCOME),
        )


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
