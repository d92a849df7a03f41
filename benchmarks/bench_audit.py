"""``unskew audit`` beside a plain read of the two columns. ``python -m benchmarks.bench_audit``

Times are the best of several, taken in turns, so that a busy machine hurts all alike. In one process, after
its imports: ``read`` is ``pyarrow.parquet.read_table`` of the two columns, ``pass`` the one streaming pass of
an audit (reading, checking, five sketches), ``audit`` everything up to the verdict, ``report`` the drawing
of report.html. What an audit adds to its pass does not grow with the rows. Of whole processes: the command,
and a Python that loads pyarrow and reads the two columns. Memory is the peak of a fresh process above what it
holds after its imports.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.make_audit_data import TYPES, write

MEGABYTE = 1 << 20
WANTED_RATIO = 3.0
WANTED_MEGABYTES = 700
READING, COMMAND = "Python that reads the two columns", "unskew audit, with report.html"
PRINTING = "unskew audit --no-report"

LIMIT = """Of the command's time most goes to the start, not to the rows: loading Python, click with pydantic,
NumPy, pyarrow and SciPy, and numba with the compiled pass; a report loads matplotlib and draws. None of it
grows with the rows, and all of it holds Python's lock, so that no second thread can hide it. Who wants the
verdict alone gets it with --no-report."""


def child(path: str, repeats: int) -> dict[str, float]:
    """Measure times and peak memory, in a process of its own."""
    import pyarrow.parquet

    from unskew.audit import audit
    from unskew.audit.crossfit import FOLDS
    from unskew.audit.reading import read as read_sketches
    from unskew.data.files import expand_paths
    from unskew.data.stream import Roles
    from unskew.report.audit_report import render_audit_report

    started = _resident()
    result = audit(path, score="p", outcome="clicked")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - started
    files = expand_paths(path)
    works: dict[str, Callable[[], Any]] = {
        "read": lambda: [pyarrow.parquet.read_table(file, columns=["p", "clicked"]) for file in files],
        "pass": lambda: read_sketches(files, Roles("p", "clicked"), folds=FOLDS),
        "audit": lambda: audit(path, score="p", outcome="clicked"),
        "report": lambda: render_audit_report(result),
    }
    if len(files) > 1:
        # All files at once would need the memory that the audit does not.
        works["read"] = lambda: [
            pyarrow.parquet.read_table(file, columns=["p", "clicked"]).num_rows for file in files
        ]
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeats):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    return {"rows": result.rows, "peak MB": peak / MEGABYTE, **best}


def command_seconds(path: Path, repeats: int) -> dict[str, dict[str, float]]:
    """Wall and CPU seconds of the whole command, and of a Python that reads the two columns."""
    reading = f"import pyarrow.parquet as pq; pq.read_table({str(path)!r}, columns=['p', 'clicked'])"
    auditing = ["-m", "unskew", "audit", str(path), "--score", "p", "--outcome", "clicked"]
    best = {name: {"wall": float("inf"), "cpu": float("inf")} for name in (READING, COMMAND, PRINTING)}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            for name, arguments in (
                (READING, ["-c", reading]),
                (COMMAND, [*auditing, "--out", f"{folder}/out"]),
                (PRINTING, [*auditing, "--no-report"]),
            ):
                start, before = time.perf_counter(), _children_seconds()
                subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=False)
                found = {"wall": time.perf_counter() - start, "cpu": _children_seconds() - before}
                best[name] = {kind: min(found[kind], best[name][kind]) for kind in found}
    return best


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _measured(path: Path, repeats: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_audit", "--child", str(path), "--repeats", str(repeats)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=100, help="of a tenth of the rows each")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path, default=None, help="also write the results to this file")
    parser.add_argument("--child", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child, options.repeats)))
        return
    with tempfile.TemporaryDirectory() as folder:
        cases: list[tuple[str, Path, int]] = []
        for types, (score, outcome) in TYPES.items():
            name = f"1 file, {score.__name__} + {outcome.__name__}"
            path = write(Path(folder) / f"{types}.parquet", options.rows, types=types)
            cases.append((name, path, options.repeats))
        many = Path(folder) / "many"
        many.mkdir()
        for number in range(options.files):
            write(many / f"part-{number:03}.parquet", options.rows // 10, seed=number)
        if options.files:
            cases.append((f"{options.files} files, float32 + uint8", many, 2))
        rows = [{"data": name, **_measured(path, repeats)} for name, path, repeats in cases]
        command = command_seconds(cases[0][1], options.repeats)
    tell(rows, command, options.json)


def bars(rows: list[dict[str, Any]], command: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Return what is wanted, and whether it is reached."""

    def ratio(what: str, found: float) -> dict[str, Any]:
        reached = found <= WANTED_RATIO
        return {
            "what": what,
            "wanted": f"≤ {WANTED_RATIO:g} ×",
            "found": f"{found:.1f} ×",
            "reached": reached,
        }

    told = []
    for row in rows:
        told += [
            ratio(f"pass beside a read, {row['data']}", row["pass"] / row["read"]),
            ratio(f"pass to verdict beside a read, {row['data']}", row["audit"] / row["read"]),
            {
                "what": f"peak memory, {row['data']}",
                "wanted": f"≤ {WANTED_MEGABYTES} MB",
                "found": f"{row['peak MB']:.0f} MB",
                "reached": row["peak MB"] <= WANTED_MEGABYTES,
            },
        ]
    first = rows[0]
    whole = command[COMMAND]["wall"]
    told += [
        ratio(
            f"verdict and report beside a read, {first['data']}",
            (first["audit"] + first["report"]) / first["read"],
        ),
        ratio(
            "the command beside a Python that reads the columns",
            whole / command[READING]["wall"],
        ),
        ratio(
            "the command with --no-report beside a Python that reads the columns",
            command[PRINTING]["wall"] / command[READING]["wall"],
        ),
        ratio("the whole command beside a read in a process that runs", whole / first["read"]),
    ]
    return told


def tell(rows: list[dict[str, Any]], command: dict[str, dict[str, float]], path: Path | None) -> None:
    columns = list(rows[0])
    cells = [[f"{row[c]:.3f}" if isinstance(row[c], float) else f"{row[c]}" for c in columns] for row in rows]
    widths = [max(len(c), *(len(line[k]) for line in cells)) for k, c in enumerate(columns)]
    for line in (columns, ["-" * width for width in widths], *cells):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
    print()
    for name, of in command.items():
        print(f"{name}: {of['wall']:.2f} s, {of['cpu']:.2f} s of CPU")
    wanted = bars(rows, command)
    for bar in wanted:
        word = "reached" if bar["reached"] else "NOT reached"
        print(f"{word:12}{bar['found']:>9} {bar['wanted']:>9}  {bar['what']}")
    result = {
        "machine": f"CPU, {os.cpu_count()} cores, {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("numpy", "numba", "pyarrow", "unskew")},
        "rows": rows,
        "command": command,
        "bars": wanted,
        "limit": LIMIT,
    }
    print(json.dumps(result))
    if path:
        path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
