"""Files into the store of a monitor: read once, known by their content, never counted twice."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.audit.group_sketches import CELLS, MOST_VALUES, GroupSketches
from unskew.audit.monitor_store import (
    Addition,
    CountedSource,
    MonitorSettings,
    MonitorStore,
    locked_for_long,
    require_same,
)
from unskew.audit.periods import PeriodCodes
from unskew.audit.segments import MISSING, ValueCodes
from unskew.audit.sql import PERIOD_GRID
from unskew.base.errors import DataError
from unskew.base.files import check_file, real
from unskew.base.progress import SILENT, Progress
from unskew.base.tables import column_names, expand_paths
from unskew.data.stream import FileBatch, Roles, located, number_columns, stream, tracked
from unskew.metrics import CalibrationSketch
from unskew.metrics.cell_frames import COUNTS, RESOLUTION, CellTable, read_cells
from unskew.metrics.sketch_grid import grid

SURELY_SOME = 20.0
"""Expected rows of an outcome of which one at least comes: none has a chance of e^-20."""

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
            if now.table.num_rows:
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
        return MonitorStore.empty(path, settings, **PERIOD_GRID)
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
        cells = {*COUNTS, *RESOLUTION} <= set(column_names(each.file))
        found, left = reader.cells(each, kept) if cells else reader.rows(each, kept, progress)
        additions.append(found)
        closed += left
    return reader.finished(additions), closed


class _Reader:
    """Files as additions; cells of closed periods are gathered over all files, which bounds the memory."""

    def __init__(self, store: MonitorStore) -> None:
        self.store = store
        self.settings = store.settings
        self.grid = grid(store.bins, store.mantissa_bits)
        self.columns = self.settings.roles.segments or (None,)
        self.values = {
            column: ValueCodes(MOST_VALUES, store.values(column))
            for column in self.columns
            if column is not None
        }
        self.periods = PeriodCodes(self.settings.by, self.settings.zone)
        self.closed = self._sketches()

    def _sketches(self) -> list[GroupSketches]:
        return [
            GroupSketches(self.grid, column, self.values.get(column or "", ValueCodes()))
            for column in self.columns
        ]

    def _table(self, sketches: Sequence[GroupSketches]) -> Any:
        return pa.concat_tables([each.table(self.periods) for each in sketches])

    def rows(self, planned: _Planned, kept: frozenset[str], progress: Progress) -> tuple[Addition, int]:
        """A file of rows; those of periods that are ``kept`` are left out."""
        roles, by = self.settings.roles, self.settings.by
        names = list(dict.fromkeys([*roles.names, by.column]))
        text = [*roles.segments, by.column]
        batches = stream([planned.file], columns=names, numbers=roles.numbers, text=text)
        opened = self._sketches()
        seen: dict[str, None] = {}
        left: set[str] = set()
        rows = 0
        for batch in tracked(batches, progress, planned.file.name):
            with located(batch):
                period = self.periods.codes(batch.record.column(by.column), batch.first_row)
            labels = list(self.periods.labels)
            here: list[int] = np.flatnonzero(np.bincount(period, minlength=len(labels))).tolist()
            left |= {labels[code] for code in here} & kept
            fresh = {code for code in here if labels[code] not in kept}
            seen |= dict.fromkeys(labels[code] for code in sorted(fresh))
            mature = {code for code in fresh if self.settings.is_closed(labels[code], planned.as_of)}
            for sketches, codes in ((self.closed, mature), (opened, fresh - mature)):
                part, of = _rows_of(batch, period, codes, len(labels))
                rows += len(of)
                for sketch in sketches if len(of) else ():
                    try:
                        sketch.add(part, roles, of)
                    except DataError:
                        # Some of the batch's rows were left out: the whole batch tells the row's number.
                        _name_row(batch, roles)
                        raise
        if not rows and not left:
            raise DataError("there are no rows", where=str(planned.file), remedy="leave the file out")
        source = CountedSource(planned.name, planned.digest, str(planned.as_of), rows, tuple(seen))
        return Addition(source, CELLS.empty_table(), self._table(opened)), len(left)

    def cells(self, planned: _Planned, kept: frozenset[str]) -> tuple[Addition, int]:
        """A file of cells, as the query of :mod:`unskew.audit.sql` gives them."""
        found = read_cells(planned.file)
        with located(FileBatch(planned.file, 0, 0, None, 1.0)):
            self._require_same_grid(found)
            table = self._of_cells(found)
        labels = table.column("period").to_pylist()
        counted = np.array(table.column("segment").to_pylist()) == found.groups[0].segment
        is_kept = {label: label in kept for label in set(labels)}
        fresh = np.array([not is_kept[label] for label in labels])
        closing = {label: self.settings.is_closed(label, planned.as_of) for label in set(labels)}
        closed = np.array([closing[label] for label in labels])
        rows = int(np.asarray(table.column("rows"))[fresh & counted].sum())
        periods = tuple(sorted(label for label in set(labels) if not is_kept[label]))
        source = CountedSource(planned.name, planned.digest, str(planned.as_of), rows, periods)
        parts = (table.filter(pa.array(fresh & which)) for which in (closed, ~closed))
        return Addition(source, *parts), sum(is_kept.values())

    def _require_same_grid(self, found: CellTable) -> None:
        for name in RESOLUTION:
            mine, theirs = getattr(self.store, name), getattr(found, name)
            if mine != theirs:
                raise DataError(
                    f"holds cells of {name}={theirs}, where the store has {name}={mine}",
                    remedy="make the cells with unskew audit --sql … --by, which has the store's grid",
                )
        segments = {group.segment for group in found.groups}
        wanted = set(self.settings.roles.segments) or {""}
        if segments != wanted or any(not group.period for group in found.groups):
            raise DataError(
                f"holds cells of {sorted(segments)}, where the store has {sorted(wanted)} by period",
                remedy="make the cells with the store's --segment and --by",
            )

    def _of_cells(self, found: CellTable) -> Any:
        groups = [
            (self.periods.label_of(group.period), group.segment, group.value or MISSING)
            for group in found.groups
        ]
        keys = [list(each) for each in zip(*groups, strict=True)]
        code = pa.array(found.group)
        named = [pa.array(values, pa.string()).take(code) for values in keys]
        if self.settings.roles.segments == ():
            named[2] = pa.array([""], pa.string()).take(pa.array(np.zeros(len(found.group), dtype=np.int64)))
        numbers = [pa.array(found.columns[name]) for name in CELLS.names[3:]]
        return pa.table([*named, *numbers], names=CELLS.names).cast(CELLS)

    def finished(self, additions: list[Addition]) -> list[Addition]:
        """The additions, the last with what all files gave to closed periods."""
        gathered = self._table(self.closed)
        if not additions or not len(gathered):
            return additions
        last = additions[-1]
        whole = pa.concat_tables([last.closed, gathered])
        return [*additions[:-1], replace(last, closed=whole)]


def _rows_of(
    batch: FileBatch, period: NDArray[np.int64], codes: set[int], count: int
) -> tuple[FileBatch, NDArray[np.int64]]:
    """The rows of some periods."""
    wanted = np.zeros(count, dtype=bool)
    wanted[list(codes)] = True
    here = wanted[period]
    if here.all():
        return batch, period
    return batch._replace(record=batch.record.filter(pa.array(here))), period[here]


def _name_row(batch: FileBatch, roles: Roles) -> None:
    """An error for the first bad row of a batch, if there is one."""
    names = (roles.score, roles.outcome, roles.weight or "weight")
    with located(batch):
        CalibrationSketch().update(
            *number_columns(batch, roles.numbers), first_row=batch.first_row, names=names
        )


def _require_both_outcomes(store: MonitorStore, additions: Sequence[Addition]) -> None:
    """An error for a closed period of one outcome alone, where that is no chance."""
    touched = {period for each in additions for period in each.source.periods}
    first = (*store.settings.roles.segments, "")[0]
    kept = store.table.select(["period", "segment", "source", "outcome", "rows", "score"])
    summed = kept.group_by(["period", "segment", "source", "outcome"]).aggregate(
        [("rows", "sum"), ("score", "sum")]
    )
    found: dict[str, dict[int, tuple[int, float]]] = {}
    for each in summed.to_pylist():
        if each["period"] in touched and each["segment"] == first and not each["source"]:
            found.setdefault(each["period"], {})[each["outcome"]] = (each["rows_sum"], each["score_sum"])
    for period, by_outcome in sorted(found.items()):
        if len(by_outcome) > 1:
            continue
        ((outcome, (rows, score)),) = by_outcome.items()
        missing = score if outcome == 0 else rows - score
        if missing > SURELY_SOME:
            raise DataError(
                f"'{store.settings.roles.outcome}' is {outcome} on all {rows:,} rows of {period}, where the"
                f" scores expect {missing:,.0f} of {1 - outcome}: were the outcomes joined, and all"
                " rows kept?",
                where=str(store.path),
                remedy="add the period when its outcomes are in; --maturity keeps it open until then",
            )


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
