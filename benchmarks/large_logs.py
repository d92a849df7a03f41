"""Time and memory of a large log. ``python -m benchmarks.large_logs [--rows 1e7] [--cache DIR] [--fit]``

Makes synthetic impressions where there are none, encodes them, maps them again, takes them in blocks, or with
``--fit`` trains a naive DCN for one epoch.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import unskew as us
from unskew.data.datasets.impression_world import ImpressionWorld
from unskew.data.datasets.impressions import write_world

IGNORED = ("session", "conversion_time")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument(
        "--users", type=float, help="a tenth of the rows by default; items are a tenth of them"
    )
    parser.add_argument("--fit", action="store_true", help="train in the second run")
    parser.add_argument("--folder", type=Path, default=Path("large_logs"))
    parser.add_argument("--cache", type=Path, default=Path("large_logs/cache"))
    parser.add_argument("--measure", action="store_true", help="measure in this process")
    options = parser.parse_args(arguments)
    world = options.folder / f"{options.rows:.0e}"
    if options.measure:
        print(json.dumps(measured(world / "log", options.cache, fit=options.fit)))
        return
    rows, users = int(options.rows), int(options.users or options.rows / 10)
    if not world.exists():
        drawn = ImpressionWorld(n_rows=rows, n_users=users, n_items=users // 10)
        write_world(drawn, world, truth=False)
    for run in ("first", "second"):
        command = [sys.executable, "-m", "benchmarks.large_logs", "--measure", "--rows", str(options.rows)]
        command += ["--folder", str(options.folder), "--cache", str(options.cache)]
        command += ["--fit"] if options.fit and run == "second" else []
        print(
            f"{run} run:", subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        )


def measured(folder: Path, cache: Path, *, fit: bool = False) -> dict[str, float]:
    """Return CPU seconds of each step, and the most memory that is not mapped from files (Linux)."""
    peak = [0.0]
    threading.Thread(target=_watch, args=(peak,), daemon=True).start()
    found: dict[str, float] = {}

    def step(name: str, work: Callable[[], object]) -> None:
        before = _cpu()
        work()
        found[name] = round(_cpu() - before, 2)

    log: list[us.Log] = []
    options = {"space": "impressions", "features": "auto", "ignore": IGNORED}
    step("read", lambda: log.append(us.read_log(folder, cache=cache, **options)))
    step("fit encoders", lambda: log[0].encoders)
    if fit:
        found["peak before MB"] = round(peak[0])
        method = us.Naive(learner=us.DCN(), epochs=1)
        step("epoch", lambda: method.fit(log[0], device="cpu"))
        weights = sum(p.numel() for p in method.networks_["prediction"].parameters())
        return {**found, "peak MB": round(peak[0]), "weights MB": 4e-6 * weights, "clicks": log[0].n_clicks}
    step("blocks", lambda: [block.encoded_rows() for block in log[0].blocks()])
    step("all rows", lambda: log[0].encoded_rows())
    disk = sum(path.stat().st_size for path in cache.rglob("*.npy"))
    return {**found, "peak MB": round(peak[0]), "rows": len(log[0]), "disk MB": round(disk / 1e6)}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _watch(peak: list[float]) -> None:
    while True:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("RssAnon"):
                peak[0] = max(peak[0], int(line.split()[1]) / 1024)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
