"""Rows per second and memory of ``score`` and ``weights``. ``python -m benchmarks.scoring``

A run with a matrix factorisation of one seed and a logistic propensity of five folds, on 10⁵ users and 10⁴
items, scores files of pairs with four further columns; ``weights`` calibrates one of these. Each command runs
once in a process of its own; "above start-up" is its peak memory less that of the same command on a thousand
rows. The files take up to 2 GB, and are removed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bounded_memory import MILLION, PIECE_ROWS

USERS, ITEMS = 100_000, 10_000
START_UP_ROWS = 1_000


def write_impressions(path: Path, rows: int) -> None:
    """Impressions with clicks, conversions, a price, a position and somebody's propensity."""
    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, PIECE_ROWS):
        n = min(PIECE_ROWS, rows - start)
        user = (USERS * rng.random(n) ** 1.5).astype(np.int64)
        item = (ITEMS * rng.random(n) ** 2).astype(np.int64)
        p = 1 / (1 + np.exp(2 - np.sin(0.37 * user) - np.cos(0.11 * item)))
        click = (rng.random(n) < p).astype(np.int8)
        conversion = click * (rng.random(n) < 0.3)
        table = pa.table(
            {
                "user": user,
                "item": item,
                "click": click,
                "conversion": conversion.astype(np.int8),
                "price": rng.random(n).round(4),
                "position": rng.integers(0, 10, n).astype(np.int8),
                "p": p.astype(np.float32),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def measured(arguments: list[str]) -> tuple[float, float, float]:
    """Peak resident memory in MB, seconds, and seconds of the processor of a command."""
    import time

    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "unskew", *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"unskew {' '.join(arguments)} failed")
    return used.ru_maxrss * 1024 / MILLION, time.perf_counter() - start, used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[3e6, 3e7])
    parser.add_argument("--json", default=None, help="also write the results to this file")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="unskew-scoring-") as place:
        folder = Path(place)
        trained, pairs = folder / "trained.parquet", folder / "pairs.parquet"
        write_impressions(trained, MILLION)
        run = ["run", "--data", str(trained), "--space", "impressions", "--propensity", "linear"]
        run += ["--learner", "mf", "--seeds", "1", "--set", "method.epochs=1", "--out", str(folder / "run")]
        measured(run)
        score = ["score", str(folder / "run"), str(pairs), "--unseen", "nan", "--overwrite"]
        weights = ["weights", str(pairs), "--score", "p", "--outcome", "click", "--overwrite"]
        commands = {
            "score, one file": [*score, "-o", str(folder / "out.parquet")],
            "score, part files": [*score, "-o", f"{folder}/parts/"],
            "weights --score": [*weights, "-o", str(folder / "weights.parquet")],
        }
        write_impressions(pairs, START_UP_ROWS)
        start_up = {name: measured(command) for name, command in commands.items()}
        for rows in map(int, options.rows):
            write_impressions(pairs, rows)
            for name, command in commands.items():
                peak, seconds, processor = measured(command)
                before, seconds_before, processor_before = start_up[name]
                results.append(
                    {
                        "command": name,
                        "rows": rows,
                        "MB above start-up": round(peak - before),
                        "million rows a second": round(rows / MILLION / (seconds - seconds_before), 2),
                        "and a second of the processor": round(
                            rows / MILLION / (processor - processor_before), 2
                        ),
                    }
                )
                print("| " + " | ".join(str(each) for each in results[-1].values()) + " |", flush=True)
    print(json.dumps(results))
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
