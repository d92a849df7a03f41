"""Files into the store of a monitor: read once, known by their content, never counted twice."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unskew.audit.monitor_store import CountedSource, MonitorSettings, MonitorStore, locked, require_same
from unskew.audit.periods import PeriodCodes
from unskew.audit.reading import counted_cells, names_of, require_both_outcomes
from unskew.audit.segments import MISSING, ValueCodes
from unskew.base.errors import DataError
from unskew.base.files import check_file, real
from unskew.base.progress import SILENT, Progress
from unskew.data.files import expand_paths
from unskew.data.files import names_of as columns_of
from unskew.data.stream import FileBatch, located, number_columns, stream, tracked
from unskew.metrics.cells import COUNTS, RESOLUTION, Cells, Key, count

MOST_VALUES = 1_000
"""Values of a column that are counted on their own, the first to be met; the rest is one group."""

SURELY_SOME = math.exp(-20.0)
"""A period of one outcome is an error where honest scores have no more than this chance of it."""

_ONE_OUTCOME = (
    "were the outcomes joined, and all rows kept?",
    "add the period when its outcomes are in; --maturity keeps it open until then",
)
"""What to ask, and what to do, where all outcomes of a period are the same."""

TRIES = 10
"""How often files are read again because another process added some meanwhile."""


@dataclass(frozen=True)
class Added:
    """The result of adding files to a store.

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
    paths = expand_paths(files)
    digests = {file: _digest(file) for file in paths}
    for _ in range(TRIES):
        known = _load(path, settings, paths)
        reader = _Reader(known, latest)
        for file, digest in digests.items():
            written = np.datetime64(file.stat().st_mtime_ns // 1000, "us")
            reader.read(file, digest, written if as_of is None else as_of, progress)
        with locked(path):
            if path.exists() and MonitorStore.load(path).sources != known.sources:
                continue
            extended = reader.extended()
            if extended.cells.keys:
                extended.save()
        periods = extended.periods()
        return Added(
            files=len(reader.sources),
            rows=sum(source.rows for source in reader.sources),
            known=len(reader.seen_again),
            closed=reader.left,
            periods=len(periods),
            open=sum(not is_closed for is_closed in periods.values()),
        )
    raise DataError(
        "other processes add files again and again", where=str(path), remedy="add files by one process"
    )


def _load(path: Path, settings: MonitorSettings | None, files: Sequence[Path]) -> MonitorStore:
    if path.exists():
        store = MonitorStore.load(path)
        if settings is not None:
            require_same(store.settings, settings, path)
        return store
    if settings is None:
        raise DataError(
            "there is no such store",
            where=str(path),
            remedy="name the columns: --score, --outcome and --by, with --time for a day, hour or week",
        )
    if real(path) in {real(file) for file in files}:
        raise DataError("is among the files to add", where=str(path), remedy="give it another name")
    return MonitorStore.empty(path, settings)


class _Reader:
    """Files to be added to a store: their sources, and their cells in one table.

    ``cells`` has no source where a period is closed, and the file's name where it is open. ``seen_again`` are
    names of known content with the time at which it still was so, ``left`` counts closed periods of known
    files.
    """

    def __init__(self, store: MonitorStore, latest: bool) -> None:
        self.store, self.latest = store, latest
        self.settings = store.settings
        self.columns = self.settings.roles.segments or ("",)
        self.values = {column: ValueCodes(MOST_VALUES, store.values(column)) for column in self.columns}
        self.periods = PeriodCodes(self.settings.by, self.settings.zone)
        self.cells = store.cells.like([])
        self.sources: list[CountedSource] = []
        self.seen_again: list[tuple[str, np.datetime64]] = []
        self.left = 0

    def read(self, file: Path, digest: str, as_of: np.datetime64, progress: Progress) -> None:
        """Count a file, unless its content is known. With ``latest`` all are read, but for repeated ones."""
        name = os.path.relpath(real(file), real(self.store.path).parent)
        candidates = [*self.sources, *(() if self.latest else self.store.sources)]
        same = next((source for source in candidates if source.digest == digest), None)
        if same is not None:
            self.seen_again.append((same.name, as_of))
            return
        settled = frozenset() if self.latest else self.store.closed_of(name)
        is_cells = {*COUNTS, *RESOLUTION} <= set(columns_of(file))
        counted = iter([self._given(file)]) if is_cells else self._rows(file, progress)
        seen: dict[str, None] = {}
        rows = 0
        for cells in counted:
            seen |= dict.fromkeys(key.period for key in cells.keys)
            closed = {period for period in seen if self.settings.is_closed(period, as_of)}
            new = cells.select(lambda key: key.period not in settled)
            rows += sum(n for key, n in new.rows().items() if key.segment == self.columns[0])
            self.cells.add(
                new.renamed(lambda key, own=closed: key._replace(source="" if key.period in own else name))  # type: ignore[misc]
            )
        if not seen:
            raise DataError("there are no rows", where=str(file), remedy="leave the file out")
        self.left += len(settled & seen.keys())
        periods = tuple(sorted(seen.keys() - settled))
        self.sources.append(CountedSource(name, digest, str(as_of), rows, periods))

    def _rows(self, file: Path, progress: Progress) -> Iterable[Cells]:
        """Yield the cells of a file of rows, batch by batch."""
        roles, by = self.settings.roles, self.settings.by
        text = [*roles.segments, by.column]
        names = list(dict.fromkeys([*roles.names, by.column]))
        batches = stream([file], columns=names, numbers=roles.numbers, text=text)
        for batch in tracked(batches, progress, file.name):
            with located(batch):
                period = self.periods.codes(batch.record.column(by.column), batch.first_row)
            labels = list(self.periods.labels)
            tables = []
            for column in self.columns:
                value, names_of_values = np.zeros_like(period), [""]
                if column:
                    value = self.values[column].codes(batch.record.column(column))
                    names_of_values = self.values[column].names()
                pairs, key = np.unique(period * len(names_of_values) + value, return_inverse=True)
                places = (divmod(int(pair), len(names_of_values)) for pair in pairs)
                keys = [Key(labels[which], column, names_of_values[code]) for which, code in places]
                tables.append((self.store.cells.like(keys), key))
            with located(batch):
                columns = number_columns(batch, roles.numbers)
                count(tables, *columns, first_row=batch.first_row, names=names_of(roles))
            cells = self.store.cells.like([])
            for table, _ in tables:
                cells.add(table)
            yield cells

    def _given(self, file: Path) -> Cells:
        """Return the cells of a file that the query of :mod:`unskew.audit.sql` gave."""
        cells = counted_cells(file)
        where = str(file)
        self.store.cells.require_same_grid(cells, where)
        segments, wanted = {key.segment for key in cells.keys}, set(self.columns)
        if segments != wanted or any(not key.period for key in cells.keys):
            raise DataError(
                f"holds cells of {sorted(segments)}, where the store has {sorted(wanted)} by period",
                where=where,
                remedy="make the cells with the store's --segments and --by",
            )
        with located(FileBatch(file, 0, 0, None, 1.0)):
            label = {name: self.periods.label_of(name) for name in {key.period for key in cells.keys}}
        return cells.renamed(
            lambda key: Key(label[key.period], key.segment, key.value or (MISSING if key.segment else ""))
        )

    def extended(self) -> MonitorStore:
        """Return the store with the files: they replace their open periods; all else is added up."""
        store = self.store
        for name, as_of in self.seen_again:
            store = store.seen_again(name, as_of)
        sources = {source.name: source for source in store.sources}
        replaced = {(period, source.name) for source in self.sources for period in source.periods}
        dropped = {period for period, _ in replaced} if self.latest else set()
        if self.latest:
            sources = {
                name: replace(source, periods=tuple(p for p in source.periods if p not in dropped))
                for name, source in sources.items()
            }
        for source in self.sources:
            earlier = sources[source.name].periods if source.name in sources else ()
            sources[source.name] = replace(source, periods=tuple(sorted({*source.periods, *earlier})))
        cells = store.cells.select(
            lambda key: key.period not in dropped and (key.period, key.source) not in replaced
        )
        extended = replace(store, cells=cells.add(self.cells), sources=tuple(sources.values()))
        self._require_both_outcomes(extended, {period for period, _ in replaced})
        return extended

    def _require_both_outcomes(self, store: MonitorStore, touched: set[str]) -> None:
        """Raise an error for a closed period of one outcome alone, where that is no chance."""
        closed = store.cells.select(
            lambda key: key.period in touched and key.segment == self.columns[0] and not key.source
        )
        by_period = closed.group("period")
        for number, key in enumerate(by_period.keys):
            require_both_outcomes(
                by_period.sketch_at(number),
                self.settings.roles.outcome,
                SURELY_SOME,
                where=f"{store.path}, period {key.period}",
                remedies=dict.fromkeys((0, 1), _ONE_OUTCOME),
            )


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
