"""Rows a second and peak memory of a streamed log, by its rows. ``python -m benchmarks.stream``

Synthetic impressions (``unskew make-data impressions``) of 10⁶ users × 10⁵ items with eight features, each
size in a process of its own: the pass before training (vocabularies, schema, counts), reading and decoding an
epoch, and one epoch of a conversion model (naive, DCN) on it, which reads all rows and trains on the clicks.
Rows are by CPU-second, which a busy machine does not change much. Memory is the peak of the resident set less
that of Python with its libraries, and less the tables: parameters, moments, gradients and best weights.

The bars: from 10⁶ rows on, time per row grows by 1.3 × at most (it falls where what is done once is spread
over more rows); memory above the tables at most 1.5 GB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = ("1e5", "1e6", "1e7")
WORLD = ("--users", "1e6", "--items", "1e5", "--test-rows", "1e4", "--no-truth")
MOST_TIMES, MOST_BYTES = 1.3, 1.5e9
NOT_READ = ("session", "conversion_time")


def measured(folder: Path, train: bool) -> dict[str, Any]:
    """All figures of one log, in this process."""
    import unskew as us
    from unskew.training.memory import TRAINING_COPIES

    # Loaded before anything is measured.
    us.Naive(backbone=us.DCN())
    before = peak()
    found: dict[str, Any] = {}

    def scan() -> None:
        found["log"] = us.stream_log(
            folder / "log" / "*.parquet", conversion="conversion", features="auto", ignore=NOT_READ
        )

    figures: dict[str, Any] = {"scan": cpu_seconds(scan)}
    log = found["log"]
    figures["rows"] = len(log)
    figures["read"] = cpu_seconds(lambda: sum(map(len, log.blocks(seed=0, epoch=0))))
    figures["memory"] = {"read": peak() - before}
    if train:
        model = us.Naive(backbone=us.DCN(dim=16), epochs=1, patience=None, batch_size=8192)
        figures["train"] = cpu_seconds(lambda: model.fit(log, device="cpu"))
        network = model.networks_["prediction"]
        figures["tables"] = TRAINING_COPIES * sum(each.numel() * 4 for each in network.parameters())
        figures["memory"]["train"] = peak() - before - figures["tables"]
    return figures


def peak() -> float:
    """Bytes of the largest resident set so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds, of all threads, that some work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=SIZES, help="sizes, as 1e8")
    parser.add_argument("--data", type=Path, help="where logs are, or are made; a folder that is removed")
    parser.add_argument("--no-train", action="store_true", help="read alone")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure is not None:
        print(json.dumps(measured(asked.measure, not asked.no_train)))
        return 0
    figures = []
    with tempfile.TemporaryDirectory() as scratch:
        for size in asked.rows:
            folder = (asked.data or Path(scratch)) / f"rows-{size}"
            make = [sys.executable, "-m", "unskew", "make-data", "impressions", "--out", str(folder)]
            if not (folder / "world.json").exists():
                subprocess.run([*make, "--rows", size, *WORLD], check=True, stdout=subprocess.DEVNULL)
            measure = [sys.executable, "-m", "benchmarks.stream", "--measure", str(folder)]
            measure += ["--no-train"] if asked.no_train else []
            done = subprocess.run(measure, check=True, stdout=subprocess.PIPE, text=True)
            figures.append(json.loads(done.stdout.splitlines()[-1]))
            show(figures[-1])
    verdict = judged(figures)
    for line in verdict:
        print(line)
    if asked.json is not None:
        asked.json.write_text(json.dumps({"figures": figures, "verdict": verdict}, indent=1) + "\n")
    return 0


def show(figures: dict[str, Any]) -> None:
    """One line of a size."""
    rows, names = figures["rows"], [name for name in ("scan", "read", "train") if name in figures]
    rates = ", ".join(f"{name} {rows / figures[name]:,.0f}" for name in names)
    memory = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in figures["memory"].items())
    print(f"{rows:>11,} rows; a CPU-second: {rates}; GB above the tables: {memory}", flush=True)


def judged(figures: list[dict[str, Any]]) -> list[str]:
    """The bars, and whether they are met."""
    large = [each for each in figures if each["rows"] >= 1e6]
    lines = []
    for name in ("read", "train"):
        each = [one[name] / one["rows"] for one in large if name in one]
        if len(each) > 1:
            times = max(later / min(each[: place + 1]) for place, later in enumerate(each))
            met = times <= MOST_TIMES
            lines.append(f"{name}: time per row grows by {times:.2f} × (bar {MOST_TIMES}): {met}")
    most = max(max(one["memory"].values()) for one in figures)
    lines.append(f"memory above the tables at most {most / 1e9:.2f} GB (bar 1.5): {most <= MOST_BYTES}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
