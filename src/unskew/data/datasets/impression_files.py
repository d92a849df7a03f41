"""The impression world as Parquet: any number of rows in bounded memory; files are whole or not there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from unskew.base.errors import ParameterError, RunFolderError
from unskew.base.estimator import require_whole
from unskew.base.files import check_place, whole_file, write_json
from unskew.base.progress import SILENT, Progress
from unskew.data.datasets.impression_tables import COLUMNS, TRUTH, log_table, test_table, truth_table
from unskew.data.datasets.impression_world import ImpressionWorld

DESCRIPTION = "world.json"
"""Says what the folder holds. It is written first, so that a later call knows what is missing."""

FORMAT = 1
ROWS_PER_FILE = 1 << 22
"""Rows of a file, about, where the number of files is not given."""

COMPRESSION = "lz4"


@dataclass(frozen=True)
class Written:
    """The outcome of a call."""

    folder: Path
    rows: int
    files: int
    files_kept: int
    """Files that an earlier call had written."""
    bytes: int


def write_world(
    world: ImpressionWorld,
    folder: str | Path,
    *,
    files: int | None = None,
    test_rows: int = 100_000,
    truth: bool = True,
    progress: Progress = SILENT,
) -> Written:
    """Write ``log/part-*.parquet``, ``truth/part-*.parquet`` (the same rows), ``test.parquet`` and its truth.

    The rows do not depend on the number of files. A row group is a chunk of the world. Called again with the
    same arguments, it writes what is missing; a folder that holds anything else is refused.

    Parameters
    ----------
    files
        Files that the log is spread over; by default one for some four million rows.
    test_rows
        Pairs shown at random, at most; 0 writes none.
    truth
        Write the truth too.
    """
    target = Path(folder)
    count = max(1, -(-world.n_rows // ROWS_PER_FILE)) if files is None else files
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= world.n_chunks:
        raise ParameterError(
            f"files must be from 1 to {world.n_chunks} (chunks of {world.chunk_rows:,} rows), not {count!r}",
            remedy="give fewer files, or leave it out",
        )
    require_whole(0, test_rows=test_rows)
    options = {"files": count, "test_rows": test_rows, "truth": truth}
    _begin(target, {"world": "impressions", "format": FORMAT, "parameters": asdict(world), **options})
    bounds = [number * world.n_chunks // count for number in range(count + 1)]
    kept = 0
    tracker = progress.task("impressions", world.n_rows)
    for number in range(count):
        chunks = range(bounds[number], bounds[number + 1])
        rows = min(chunks.stop * world.chunk_rows, world.n_rows) - chunks.start * world.chunk_rows
        name = f"part-{number:05d}-of-{count:05d}.parquet"
        places = [target / "log" / name, *([target / "truth" / name] if truth else [])]
        tracker.say(name)
        drawn = (world.chunk(chunk) for chunk in chunks)
        tables = ((log_table(world, chunk), truth_table(chunk))[: len(places)] for chunk in drawn)
        kept += not _write(places, rows, tables)
        tracker.advance(rows)
    if test_rows:
        shown = world.random(test_rows)
        places = [target / "test.parquet", *([target / "test_truth.parquet"] if truth else [])]
        _write(places, len(shown["user"]), [(test_table(world, shown), truth_table(shown))[: len(places)]])
    tracker.finish()
    size = sum(path.stat().st_size for path in target.rglob("*.parquet"))
    return Written(target, world.n_rows, count, kept, size)


def _begin(folder: Path, description: dict[str, Any]) -> None:
    """Describe a new folder, or check that an old one holds the same world."""
    check_place(folder)
    place = folder / DESCRIPTION
    if not place.is_file():
        if folder.is_dir() and any(folder.iterdir()):
            raise RunFolderError(
                "is a folder with other things in it", where=str(folder), remedy="choose another --out"
            )
        columns = {"log": dict(COLUMNS), **({"truth": dict(TRUTH)} if description["truth"] else {})}
        for name in columns:
            (folder / name).mkdir(parents=True, exist_ok=True)
        write_json(place, {**description, "columns": columns})
        return
    try:
        written = json.loads(place.read_text(encoding="utf-8"))
        there, here = ({**facts, **facts["parameters"]} for facts in (written, description))
        differing = [
            f"{name} {there[name]!r} there and {value!r} here"
            for name, value in here.items()
            if name != "parameters" and there[name] != value
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"{DESCRIPTION} is not what unskew wrote", where=str(folder), remedy="choose another --out"
        ) from error
    if differing:
        raise RunFolderError(
            f"holds another world: {', '.join(differing)}",
            where=str(folder),
            remedy="choose another --out, or give the same options to go on with it",
        )


def _is_whole(place: Path, rows: int) -> bool:
    """Return whether a file is there; it was moved into place when it was whole."""
    if not place.is_file():
        return False
    there = pq.read_metadata(place).num_rows
    if there != rows:
        raise RunFolderError(
            f"holds {there:,} rows where {rows:,} belong", where=str(place), remedy="delete this file"
        )
    return True


def _write(places: Sequence[Path], rows: int, chunks: Iterable[Sequence[Any]]) -> bool:
    """Write files side by side, a row group a table; return False where they are there already."""
    if all(_is_whole(place, rows) for place in places):
        return False
    with ExitStack() as stack:
        besides = [stack.enter_context(whole_file(place)) for place in places]
        writers: list[Any] = []
        for tables in chunks:
            writers = writers or [
                stack.enter_context(pq.ParquetWriter(beside, table.schema, compression=COMPRESSION))
                for beside, table in zip(besides, tables, strict=True)
            ]
            for writer, table in zip(writers, tables, strict=True):
                writer.write_table(table, row_group_size=len(table))
    return True
