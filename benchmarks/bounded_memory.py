"""Peak memory of ``audit`` and ``weights`` by the number of rows. ``python -m benchmarks.bounded_memory``

Files of a score, an outcome and three columns that are carried along (whole numbers, text, floats), in
Parquet with one row group (of 64 Mi rows at most, the writer's limit) and with many of 1 Mi rows, and in CSV.
Each command runs once, in a process of its own; memory is the peak of its resident set, of which some 200 MB
are Python and the libraries. It is bounded if it does not grow with the rows. The files take up to 4 GB, and
are removed after each measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

MILLION = 1_000_000
ROWS = {"parquet, one row group": (5, 20, 80), "parquet, many row groups": (5, 20, 80), "csv": (20, 60)}
"""Millions of rows of each kind."""

PIECE_ROWS = 1 << 20
LARGEST_GROUP = 1 << 26
DIFFERENT = 3
"""Pieces that are drawn; the others repeat them, which changes no size."""


def pieces(rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows, a piece at a time."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(DIFFERENT):
        p = rng.beta(1, 20, PIECE_ROWS).astype(np.float32)
        made.append(
            pa.record_batch(
                {
                    "p": p,
                    "clicked": (rng.random(PIECE_ROWS) < p).astype(np.int8),
                    "user": rng.integers(0, 5 * MILLION, PIECE_ROWS),
                    "item": pa.array(rng.integers(0, 100_000, PIECE_ROWS).astype("U")),
                    "price": rng.random(PIECE_ROWS).round(4),
                }
            )
        )
    for number, start in enumerate(range(0, rows, PIECE_ROWS)):
        yield made[number % DIFFERENT].slice(0, rows - start)


def write(path: Path, rows: int, kind: str) -> None:
    """Write a file of so many rows."""
    made = pieces(rows)
    if kind == "csv":
        first = next(made)
        with pa.csv.CSVWriter(path, first.schema) as writer:
            writer.write_batch(first)
            for piece in made:
                writer.write_batch(piece)
        return
    table = pa.Table.from_batches(made)
    pq.write_table(table, path, row_group_size=PIECE_ROWS if "many" in kind else LARGEST_GROUP)


def measured(arguments: list[str]) -> tuple[float, float]:
    """Peak resident memory in MB, and seconds, of a command."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "unskew", *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 1):
        raise RuntimeError(f"unskew {' '.join(arguments)} ended with code {code}")
    return used.ru_maxrss * 1024 / MILLION, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of rows, to try it")
    parser.add_argument("--kind", choices=list(ROWS), default=None, help="one kind of files alone")
    parser.add_argument("--json", default=None, help="also write the results to this file")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    columns = ["--score", "p", "--outcome", "clicked"]
    for kind in [options.kind] if options.kind else ROWS:
        for millions in ROWS[kind]:
            with tempfile.TemporaryDirectory(prefix="unskew-memory-") as place:
                path = Path(place) / f"log.{kind.split(',')[0]}"
                # In a process of its own, whose memory goes back to the system before anything is measured.
                rows = int(millions * MILLION * options.scale)
                maker = (
                    f"from benchmarks.bounded_memory import *; write(Path({str(path)!r}), {rows}, {kind!r})"
                )
                subprocess.run([sys.executable, "-c", maker], check=True)
                size = path.stat().st_size
                audit = measured(["audit", str(path), *columns, "--no-report"])
                weights = measured(["weights", str(path), *columns, "-o", str(Path(place) / "out.parquet")])
            results.append(
                {
                    "files": kind,
                    "rows": rows,
                    "file MB": round(size / MILLION),
                    "audit MB": round(audit[0]),
                    "weights MB": round(weights[0]),
                    "audit s": round(audit[1], 1),
                    "weights s": round(weights[1], 1),
                }
            )
            print(
                "| "
                + " | ".join(
                    f"{each:,}" if isinstance(each, int) else str(each) for each in results[-1].values()
                )
                + " |",
                flush=True,
            )
    print(json.dumps(results))
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
