"""DuckDB's query beside our own pass, and ``unskew monitor --add`` by segment and day.

``python -m benchmarks.bench_monitor [--rows N] [--files N]``. Each work is a process of its own; seconds are
those of the wall and of all processors, the best of several taken in turns; memory is the peak of the process
above what it holds after its imports. Rows are spread over 50 countries and 30 days, in every file all of
them: the worst case for a store.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

SEGMENTS, DAYS = 50, 30
WORKS = ("read", "pass", "duckdb", "add")


def write(path: Path, rows: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    names = pa.array([f"country {number}" for number in range(SEGMENTS)])
    logit = generator.normal(-4.0, 1.2, rows)
    second = generator.integers(0, DAYS * 86_400, rows)
    columns = {
        "p": (1 / (1 + np.exp(-logit))).astype(np.float32),
        "clicked": (generator.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.uint8),
        "country": pa.DictionaryArray.from_arrays(
            pa.array(generator.integers(0, SEGMENTS, rows), pa.int32()), names
        ),
        "t": np.datetime64("2026-01-01", "us") + second.astype("timedelta64[s]"),
    }
    pa.parquet.write_table(pa.table(columns), path)


def child(work: str, folder: Path) -> dict[str, float]:
    """One work, in a process of its own."""
    from unskew.audit.monitor_add import add
    from unskew.audit.monitor_store import MonitorSettings
    from unskew.audit.periods import By
    from unskew.audit.sql import run_query, sketch_of
    from unskew.data.stream import Roles

    columns = {"score": "p", "outcome": "clicked"}
    held, start, before = _peak(), time.perf_counter(), _cpu()
    if work == "read":
        for file in sorted(folder.glob("*.parquet")):
            pa.parquet.read_table(file, columns=list(columns.values()))
    elif work == "pass":
        sketch_of(folder, **columns)
    elif work == "duckdb":
        run_query(f"{folder}/*.parquet", **columns)
    else:
        settings = MonitorSettings(Roles("p", "clicked", None, ("country",)), By("t", "day"))
        with tempfile.TemporaryDirectory() as place:
            add(f"{place}/store", folder, settings=settings, as_of=np.datetime64("2027-01-01"))
            print(f"store: {Path(place, 'store').stat().st_size / 1e6:.1f} MB", file=sys.stderr)
    return {"wall": time.perf_counter() - start, "cpu": _cpu() - before, "MB": (_peak() - held) / 1024}


def _peak() -> float:
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of all files")
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", nargs=2, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child[0], Path(options.child[1]))))
        return
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.files):
            write(Path(folder) / f"{number:03}.parquet", options.rows // options.files, number)
        found: dict[str, list[dict[str, float]]] = {work: [] for work in WORKS}
        for _ in range(options.repeats):
            for work in WORKS:
                command = [sys.executable, "-m", "benchmarks.bench_monitor", "--child", work, folder]
                found[work].append(
                    json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
                )
    best = {
        work: {kind: min(each[kind] for each in runs) for kind in runs[0]} for work, runs in found.items()
    }
    print(f"| {options.rows:,} rows, {options.files} files | wall s | CPU s | MB |\n|---|---:|---:|---:|")
    for work, name in zip(
        WORKS, ("read two columns", "our pass", "DuckDB's query", "monitor --add"), strict=True
    ):
        print(f"| {name} | {best[work]['wall']:.2f} | {best[work]['cpu']:.2f} | {best[work]['MB']:.0f} |")
    ratio = {kind: best["duckdb"][kind] / best["pass"][kind] for kind in ("wall", "cpu")}
    print(f"\nDuckDB's query ÷ our pass: {ratio['wall']:.1f} in wall time, {ratio['cpu']:.1f} in CPU time.")


if __name__ == "__main__":
    main()
