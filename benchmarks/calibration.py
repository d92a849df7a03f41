"""Metrics and calibrators beside other libraries, on the same arrays. ``python -m benchmarks.calibration``

    pip install -c constraints.txt netcal betacal venn-abers relplot probcal torchmetrics
    python -m benchmarks.bench_audit --json audit.json
    python -m benchmarks.calibration --audit audit.json --write PAGE.md

CPU seconds of one thread, best of several, all in one process; scores float64 and outcomes int64,
logit-normal around 5 %, over-spread and shifted. Extra memory is the peak of the process during the work
above what it held before, less the result. A library that would take longer than ``--limit`` at a size, going
by a tenth of it, is left out there; so is one that is not installed. At 10⁸ rows (float32 scores, uint8
outcomes) only unskew runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import time
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.calibration_page import ECE, NARROW, READ, WIDE, page
from benchmarks.calibration_works import LIBRARIES, OURS, Work, ours

MEGABYTE = 1 << 20
SLOPE, SHIFT, CENTRE, SPREAD = 1.5, 0.5, -3.6, 1.2
"""Over-spread and shifted scores around a base rate of 5 %."""
WARM_UP = 10_000
SECONDS, LEAST_SECONDS, ENOUGH = 2.0, 0.2, 7
"""A work is repeated for so long at most, and so often at least unless that takes longer; a short one goes on
until it has had a fair share of quiet moments."""
LARGE_RUNS = 3
"""Runs of ours at the largest size, however long: one alone pays for the first touch of its memory."""
TYPES = {WIDE: (np.float64, np.int64), NARROW: (np.float32, np.uint8)}


def arrays(rows: int, score_type: Any, outcome_type: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scores and outcomes, made in pieces so that large ones need no memory beside their own."""
    score, outcome = np.empty(rows, score_type), np.empty(rows, outcome_type)
    random = np.random.default_rng(rows)
    for start in range(0, rows, 1_000_000):
        part = slice(start, min(start + 1_000_000, rows))
        z = random.normal(CENTRE, SPREAD, part.stop - start)
        outcome[part] = random.random(len(z)) < 1 / (1 + np.exp(-z))
        score[part] = 1 / (1 + np.exp(-(CENTRE + SHIFT + SLOPE * (z - CENTRE))))
    return score, outcome


def memory(field: str) -> int:
    """``VmRSS``, or the peak since the last reset ``VmHWM``, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {field}")


def reset_peak() -> None:
    """Start a new peak of resident memory (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def measured(work: Callable[[], Any], *, at_least: int = 1) -> dict[str, float]:
    """Best CPU seconds and greatest extra memory of several runs."""
    best, extra, begun = float("inf"), 0.0, time.process_time()
    for repeat in itertools.count(1):
        reset_peak()
        before = memory("VmRSS")
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
        size = result.nbytes if isinstance(result, np.ndarray) else 0
        extra = max(extra, memory("VmHWM") - before - size)
        del result
        long_enough = SECONDS if repeat < ENOUGH else LEAST_SECONDS
        if repeat >= at_least and time.process_time() - begun > long_enough:
            break
    return {"seconds": best, "extra_mb": extra / MEGABYTE}


def plain_read(score: NDArray[Any], outcome: NDArray[Any]) -> int:
    """Touch every byte of both arrays once, as fast as NumPy can."""
    words = (array.view(np.uint64) for array in (score, outcome))
    return int(sum(np.bitwise_or.reduce(array) & np.uint64(1) for array in words))


def installed() -> tuple[dict[str, dict[str, Work]], dict[str, str]]:
    """Works and versions of the libraries that are here."""
    works, versions = {OURS: ours()}, {OURS: version("unskew")}
    for name, (distribution, make) in LIBRARIES.items():
        try:
            versions[name] = version(distribution)
        except PackageNotFoundError:
            continue
        works[name] = make()
    return works, versions


def compare(
    libraries: dict[str, dict[str, Work]],
    sizes: list[int],
    limit: float,
    *,
    types: str = WIDE,
    only: tuple[str, ...] | None = None,
) -> list[dict[str, Any]]:
    """One record for each work, library and size."""
    records: list[dict[str, Any]] = []
    last: dict[tuple[str, str], float] = {}

    def tell(work: str, library: str, rows: int, found: dict[str, float]) -> None:
        records.append({"work": work, "library": library, "rows": rows, "types": types, **found})
        print(f"{rows:>11,}  {work:24}{library:24}{found['seconds']:9.4f} s", flush=True)

    for rows in [WARM_UP, *sizes]:
        score, outcome = arrays(rows, *TYPES[types])
        score = np.clip(score, *(np.asarray([1e-9, 1 - 1e-9]).astype(score.dtype)))
        if rows != WARM_UP:
            tell(READ, "NumPy", rows, measured(lambda s=score, o=outcome: plain_read(s, o)))
        for work in libraries[OURS] if only is None else only:
            for library, works in libraries.items():
                if work not in works or last.get((work, library), 0.0) * 10 > limit:
                    continue
                found = measured(lambda w=works[work], s=score, o=outcome: w(s, o))
                last[work, library] = found["seconds"]
                if rows != WARM_UP:
                    tell(work, library, rows, found)
    return records


def scaling(small: int, large: int) -> list[dict[str, Any]]:
    """Our works at two sizes on the types of large logs; time a row should not grow."""
    records = []
    for work in ours().values():
        # The first call of each loads its compiled code.
        work(*arrays(WARM_UP, *TYPES[NARROW]))
        work(*arrays(10 * WARM_UP, *TYPES[NARROW]))
    for rows in (small, large):
        score, outcome = arrays(rows, *TYPES[NARROW])
        read = measured(lambda s=score, o=outcome: plain_read(s, o))
        for name, work in {READ: None, **ours()}.items():
            found = read
            if work is not None:
                found = measured(lambda w=work, s=score, o=outcome: w(s, o), at_least=LARGE_RUNS)
            records.append({"work": name, "rows": rows, **found})
            print(f"{rows:>11,}  {name:24}{found['seconds'] / rows * 1e9:9.2f} ns a row", flush=True)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--large", type=int, default=100_000_000, help="rows for unskew alone; 0 for none")
    parser.add_argument("--limit", type=float, default=60.0, help="CPU seconds a library may take")
    parser.add_argument("--audit", type=Path, default=None, help="a JSON of bench_audit, for the page")
    parser.add_argument("--json", type=Path, default=None, help="also write the results to this file")
    parser.add_argument("--write", type=Path, default=None, help="write the page of the documentation")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    libraries, versions = installed()
    with threadpool_limits(1):
        sizes = sorted(options.sizes)
        records = compare(libraries, sizes, options.limit)
        records += compare(libraries, sizes, options.limit, types=NARROW, only=(ECE,))
        large = scaling(1_000_000, options.large) if options.large else []
    told = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread used",
        "versions": {"Python": platform.python_version(), "NumPy": np.__version__, **versions},
        "limit": options.limit,
        "records": records,
        "large": large,
        "audit": json.loads(options.audit.read_text(encoding="utf-8")) if options.audit else None,
    }
    text = page(told)
    print(text)
    print(json.dumps(told))
    if options.json:
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if options.write:
        options.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
