"""What all benchmarks share: the world, the clock, and how results are told."""

from __future__ import annotations

import argparse
import json
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unskew.data import Log

SHAPES = {"coat": ((290, 300), 0.08), "yahoo": ((15_400, 1_000), 0.02)}
"""Users, items and density of the datasets whose size matters."""
BATCH = 1024


def sized_log(shape: str, seed: int = 0) -> Log:
    """Return a log of a dataset's shape and density; what is in the cells does not change the time."""
    (users, items), density = SHAPES[shape]
    rng = np.random.default_rng(seed)
    cells = np.sort(rng.choice(users * items, round(density * users * items), replace=False))
    return Log.from_arrays(
        user=cells // items, item=cells % items, conversion=(rng.random(len(cells)) < 0.3).astype(float)
    )


def coat_sized_log(seed: int = 0) -> Log:
    """Return a log with the shape and the density of Coat."""
    return sized_log("coat", seed)


def arguments(description: str, *, shape: bool = False, batch: int | None = None) -> argparse.Namespace:
    """Parse the options of every benchmark; ``shape`` adds that of D, ``batch`` that of rows a step."""
    parser = argparse.ArgumentParser(description=description)
    if shape:
        parser.add_argument("--shape", choices=tuple(SHAPES), default="coat")
    if batch is not None:
        parser.add_argument("--batch", type=int, default=batch, help=f"rows of a step [{batch}]")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", default=None, help="also write the results to this file")
    return parser.parse_args()


def seconds(work: Callable[[], Any], repeats: int, device: str) -> float:
    """Return the best of several timings: CPU seconds, or on a GPU those of the clock with an empty queue.

    CPU seconds say the same on a busy machine as on a quiet one; those of several threads add up.
    """
    clock = time.perf_counter if device.startswith("cuda") else time.process_time
    times = []
    for _ in range(repeats):
        synchronise(device)
        start = clock()
        work()
        synchronise(device)
        times.append(clock() - start)
    return min(times)


def synchronise(device: str) -> None:
    """Wait until a GPU has nothing left to do."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def machine(device: str) -> dict[str, Any]:
    """Return the machine's class and the versions."""
    gpu = torch.cuda.get_device_name() if device.startswith("cuda") else None
    return {
        "device": gpu or f"CPU, {torch.get_num_threads()} threads",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def tell(title: str, rows: Sequence[Mapping[str, Any]], device: str, path: str | None = None) -> None:
    """Print a table, then the same as one line of JSON."""
    columns = list(rows[0])
    cells = [[_text(row[column]) for column in columns] for row in rows]
    widths = [max(len(c), *(len(line[k]) for line in cells)) for k, c in enumerate(columns)]
    print(f"\n{title}")
    for line in (columns, ["-" * width for width in widths], *cells):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
    result = {"title": title, "machine": machine(device), "rows": [dict(row) for row in rows]}
    print(json.dumps(result))
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Return a table in Markdown; the first ``words`` columns are flush left."""
    marks = ["---"] * words + ["---:"] * (len(columns) - words)
    lines = [" | ".join(line) for line in (columns, *rows)]
    return "\n".join([f"| {lines[0]} |", f"|{'|'.join(marks)}|", *(f"| {line} |" for line in lines[1:])])


def put(page: Path, name: str, text: str) -> None:
    """Replace a page's text between ``<!-- benchmark: NAME -->`` and ``<!-- end of benchmark -->``."""
    whole = page.read_text(encoding="utf-8")
    mark = re.compile(rf"(<!-- benchmark: {name} -->\n).*?(<!-- end of benchmark -->)", re.DOTALL)
    page.write_text(mark.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", whole), encoding="utf-8")


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
