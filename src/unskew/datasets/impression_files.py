"""The impression world as Parquet: any number of rows in bounded memory; files are whole or not there."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from unskew.cores import usable_cores
from unskew.datasets.impression_tables import COLUMNS, TRUTH, log_table, test_table, truth_table
from unskew.datasets.impression_world import ImpressionWorld
from unskew.errors import ParameterError, RunFolderError
from unskew.estimator import require_whole
from unskew.io.files import check_place, whole_file, write_json
from unskew.progress import SILENT, Progress

DESCRIPTION = "world.json"
"""What the folder holds; it is written first, so that a later process knows what to go on with."""

FORMAT = 1
ROWS_PER_FILE = 1 << 22
"""Rows of a file, about, where the number of files is not given."""

THREADS = 2
"""Chunks that are drawn at once, while another is written."""

COMPRESSION = "lz4"
DICTIONARIES = ("country", "category", "device", "position", "true_examination")
"""Columns of few values; for others Parquet's dictionaries cost time and save little."""


@dataclass(frozen=True)
class Written:
    """What a call did."""

    folder: Path
    rows: int
    files: int
    files_kept: int
    """Those that an earlier call had written."""
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
    description = {
        "world": "impressions",
        "format": FORMAT,
        "parameters": asdict(world),
        "files": count,
        "test_rows": test_rows,
        "truth": truth,
    }
    _begin(target, description)
    world.prepare()
    bounds = [number * world.n_chunks // count for number in range(count + 1)]
    kept = 0
    tracker = progress.task("impressions", world.n_rows)
    for number in range(count):
        chunks = range(bounds[number], bounds[number + 1])
        rows = min(chunks.stop * world.chunk_rows, world.n_rows) - chunks.start * world.chunk_rows
        name = f"part-{number:05d}-of-{count:05d}.parquet"
        places = [target / "log" / name, *([target / "truth" / name] if truth else [])]
        tracker.say(name)
        if all(_is_whole(place, rows) for place in places):
            kept += 1
            tracker.advance(rows)
            continue
        _write(places, _drawn(world, chunks, truth), tracker)
    if test_rows:
        _write_test(world, target, test_rows, truth)
    tracker.finish()
    size = sum(path.stat().st_size for path in target.rglob("*.parquet"))
    return Written(target, world.n_rows, count, kept, size)


def _begin(folder: Path, description: dict[str, Any]) -> None:
    """Say what the folder will hold, or find that it holds just this."""
    check_place(folder)
    place = folder / DESCRIPTION
    if place.is_file():
        try:
            found = json.loads(place.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if not isinstance(found, dict) or not description.keys() <= found.keys():
            raise RunFolderError(
                f"{DESCRIPTION} is not what unskew wrote", where=str(folder), remedy="choose another --out"
            )
        differing = [_difference(name, found[name], given) for name, given in description.items()]
        if any(differing):
            raise RunFolderError(
                f"holds another world: {', '.join(filter(None, differing))}",
                where=str(folder),
                remedy="choose another --out, or give the same options to go on with it",
            )
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise RunFolderError(
            "is a folder with other things in it", where=str(folder), remedy="choose another --out"
        )
    for part in ("log", "truth") if description["truth"] else ("log",):
        (folder / part).mkdir(parents=True, exist_ok=True)
    columns = {"log": dict(COLUMNS), **({"truth": dict(TRUTH)} if description["truth"] else {})}
    write_json(place, {**description, "columns": columns})


def _difference(name: str, found: Any, given: Any) -> str:
    if isinstance(found, dict) and isinstance(given, dict):
        names = sorted(found.keys() | given.keys())
        inside = (_difference(each, found.get(each), given.get(each)) for each in names)
        return ", ".join(filter(None, inside))
    return "" if found == given else f"{name} {found!r} there and {given!r} here"


def _is_whole(place: Path, rows: int) -> bool:
    """Whether a file is there; it was moved into place when it was whole."""
    if not place.is_file():
        return False
    found = pq.read_metadata(place).num_rows
    if found != rows:
        raise RunFolderError(
            f"holds {found:,} rows where {rows:,} belong", where=str(place), remedy="delete this file"
        )
    return True


def _drawn(world: ImpressionWorld, chunks: Sequence[int], truth: bool) -> Iterator[tuple[Any, ...]]:
    """Tables of chunks in their order, some of them drawn ahead by threads."""

    def tables(number: int) -> tuple[Any, ...]:
        chunk = world.chunk(number)
        return (log_table(world, chunk), *([truth_table(chunk)] if truth else []))

    with ThreadPoolExecutor(min(THREADS, usable_cores())) as pool:
        pending: deque[Future[tuple[Any, ...]]] = deque()
        for number in chunks:
            pending.append(pool.submit(tables, number))
            if len(pending) > THREADS:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _write(places: Sequence[Path], tables: Iterator[tuple[Any, ...]], tracker: Any) -> None:
    """Files side by side, a row group for each table."""
    with ExitStack() as stack:
        besides = [stack.enter_context(whole_file(place)) for place in places]
        with ExitStack() as open_files:
            writers: list[Any] = []
            for parts in tables:
                if not writers:
                    writers = [
                        open_files.enter_context(
                            pq.ParquetWriter(
                                beside,
                                part.schema,
                                compression=COMPRESSION,
                                use_dictionary=[name for name in DICTIONARIES if name in part.schema.names],
                            )
                        )
                        for beside, part in zip(besides, parts, strict=True)
                    ]
                for writer, part in zip(writers, parts, strict=True):
                    writer.write_table(part, row_group_size=len(part))
                if tracker is not None:
                    tracker.advance(len(parts[0]))


def _write_test(world: ImpressionWorld, target: Path, rows: int, truth: bool) -> None:
    places = [target / "test.parquet", *([target / "test_truth.parquet"] if truth else [])]
    chunk = world.random(rows)
    if all(_is_whole(place, len(chunk["user"])) for place in places):
        return
    tables = (test_table(world, chunk), *([truth_table(chunk)] if truth else []))
    _write(places, iter([tables]), None)
