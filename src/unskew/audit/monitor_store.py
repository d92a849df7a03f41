"""The store of a monitor: cells of periods and segments in one Parquet file, extended by adding.

A period is closed once its outcomes had the time to come in (``maturity``) when its rows were written; what
files gave to closed periods is added up. What they gave to open ones is kept by file, so that a newer version
of a file takes the place of the older. The file is replaced as a whole, under a lock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from unskew.audit.periods import By, end_of, require_zone
from unskew.audit.sql import PERIOD_GRID, cells_query
from unskew.base.errors import DataError, ParameterError
from unskew.base.files import Lock, real, whole_file
from unskew.calibration.sql import Dialect
from unskew.data.splitting import parse_duration
from unskew.data.stream import Roles
from unskew.metrics.cells import RESOLUTION, Cells

FORMAT = 1
MARK = b"unskew monitor"
"""The key of the file's metadata that tells a store from other Parquet files."""

LOCK_SECONDS = 60.0
"""How long to wait for others that extend a store in the same folder: each takes a second or two."""

STORED = (
    *("period", "segment", "value", "cell", "outcome"),
    *("rows", "weight", "square", "score", "inverse", "brier", "log_loss", "source"),
)
"""Columns of the file; ``source`` is the file that gave the cells of an open period, "" in closed ones."""


@dataclass(frozen=True)
class MonitorSettings:
    """The settings that all rows of a store share."""

    roles: Roles
    by: By
    zone: str = "UTC"
    maturity: str | None = None

    def __post_init__(self) -> None:
        require_zone(self.zone)
        if self.maturity is not None:
            parse_duration(self.maturity)
            if self.by.unit is None:
                raise ParameterError(
                    f"--maturity has no effect on periods that are values of '{self.by.column}'",
                    remedy="leave it out, or give --by hour, day or week with --time",
                )

    def to_dict(self) -> dict[str, Any]:
        """Return plain text and lists."""
        return asdict(self)

    @classmethod
    def from_dict(cls, header: dict[str, Any]) -> MonitorSettings:
        """Build the settings from what :meth:`to_dict` returned."""
        roles = {**header["roles"], "segments": tuple(header["roles"]["segments"])}
        return cls(Roles(**roles), By(**header["by"]), header["zone"], header["maturity"])

    def is_closed(self, period: str, as_of: np.datetime64) -> bool:
        """Return whether a period's outcomes were in at a time in UTC, when its rows were written."""
        end = end_of(period, self.by, self.zone)
        if end is None:
            return True
        return bool(
            as_of
            >= end + (np.timedelta64(0, "s") if self.maturity is None else parse_duration(self.maturity))
        )


@dataclass(frozen=True)
class CountedSource:
    """A file that was added: its name beside the store, what it held, and when that was so."""

    name: str
    digest: str
    as_of: str
    rows: int
    periods: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class MonitorStore:
    """The contents of a store of counts."""

    path: Path
    settings: MonitorSettings
    sources: tuple[CountedSource, ...]
    cells: Cells

    @classmethod
    def empty(cls, path: Path, settings: MonitorSettings) -> MonitorStore:
        """Return a store of no rows, not yet written."""
        return cls(path, settings, (), Cells([], **PERIOD_GRID))

    @classmethod
    def load(cls, path: Path) -> MonitorStore:
        """Read a store; raise an error for another file."""
        if not path.exists():
            raise DataError("there is no such store", where=str(path), remedy="make one with --add FILE...")
        try:
            # By one handle: by its path, schema and rows may come from two files, if one is replaced between.
            with path.open("rb") as file:
                table = pa.parquet.read_table(file)
            header = json.loads((table.schema.metadata or {})[MARK])
            version = header["format"]
        except (pa.ArrowException, OSError, KeyError, ValueError):
            raise DataError(
                "is not a store of unskew monitor, or is damaged",
                where=str(path),
                remedy="give a store, or another name for a new one",
            ) from None
        if version != FORMAT or tuple(table.column_names) != STORED:
            raise DataError(
                f"the store has format {version}, this library reads {FORMAT}",
                where=str(path),
                remedy="make it again from the files",
            )
        sources = tuple(
            CountedSource(**{**each, "periods": tuple(each["periods"])}) for each in header["sources"]
        )
        for name in RESOLUTION:
            table = table.append_column(name, pa.repeat(header[name], len(table)))
        cells = (
            Cells.from_cells(table)
            if len(table)
            else Cells([], **{name: header[name] for name in RESOLUTION})
        )
        return cls(path, MonitorSettings.from_dict(header["settings"]), sources, cells)

    def save(self) -> None:
        """Write the store; its folder is locked (:func:`locked`)."""
        header = {
            "format": FORMAT,
            **{name: getattr(self.cells.grid, name) for name in RESOLUTION},
            "settings": self.settings.to_dict(),
            "sources": [asdict(source) for source in self.sources],
        }
        table = self.cells.to_cells().select(STORED)
        marked = table.replace_schema_metadata({MARK: json.dumps(header).encode()})
        with whole_file(self.path) as beside:
            pa.parquet.write_table(marked, beside, compression="zstd")

    def query(self, table: str, dialect: Dialect) -> str:
        """Return the query that counts a table as this store counts files."""
        return cells_query(table, **asdict(self.settings.roles), by=self.settings.by, dialect=dialect)

    def values(self, column: str) -> list[str]:
        """Return the values of a segment's column."""
        return sorted({key.value for key in self.cells.keys if key.segment == column})

    def periods(self) -> dict[str, bool]:
        """Return every period, and whether it is closed."""
        closed: dict[str, bool] = {}
        for key in self.cells.keys:
            closed[key.period] = closed.get(key.period, True) and not key.source
        return closed

    def closed_of(self, name: str) -> frozenset[str]:
        """Return the periods of a file that are closed: nothing of it is added to them again."""
        return frozenset(
            period
            for source in self.sources
            for period in source.periods
            if source.name == name and self.settings.is_closed(period, np.datetime64(source.as_of))
        )

    def seen_again(self, name: str, as_of: np.datetime64) -> MonitorStore:
        """Return the store where a file's content is known to be that of a later time: more may be closed."""
        sources = tuple(
            replace(each, as_of=str(as_of))
            if each.name == name and as_of > np.datetime64(each.as_of)
            else each
            for each in self.sources
        )
        closed = {period: self.settings.is_closed(period, as_of) for period in self.periods()}
        cells = self.cells.renamed(
            lambda key: key._replace(source="") if key.source == name and closed[key.period] else key
        )
        return replace(self, cells=cells, sources=sources)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep the folder of a store for this process alone, while the store is read again and replaced."""
    lock = Lock(real(path).parent)
    try:
        if lock.take(seconds=LOCK_SECONDS) is False:
            raise DataError(
                f"another process has kept its folder for {LOCK_SECONDS:.0f} seconds",
                where=str(path),
                remedy="run it again when that has ended",
            )
        yield
    finally:
        lock.close()


def require_same(known: MonitorSettings, asked: MonitorSettings, path: Path) -> None:
    """Raise an error for the first setting that differs from the store's."""
    one, other = ({**asdict(each.roles), **asdict(each)} for each in (known, asked))
    for name in ("score", "outcome", "weight", "segments", "by", "zone", "maturity"):
        if one[name] != other[name]:
            raise ParameterError(
                f"the store {path} was made with --{name} {_shown(one[name])}, not {_shown(other[name])}",
                remedy="leave it out, or make another store",
            )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return (value["unit"] and f"{value['unit']} --time {value['column']}") or value["column"]
    return ", ".join(value) if isinstance(value, tuple) and value else str(value or "(none)")
