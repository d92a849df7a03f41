"""Reading a stream by what its ids are. ``python -m benchmarks.ids [--rows 1e7] [--users 1e7]``

The same rows with users as whole numbers without gaps, as whole numbers far apart (hashes) and as text, each
in a process of its own: the pass before training, and reading and decoding an epoch, in CPU-seconds (the
second of two epochs: what is made once is made in the first).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import tell
from benchmarks.stream import cpu_seconds, peak

KINDS = ("whole numbers", "far apart", "text")


def write(folder: Path, rows: int, users: int) -> None:
    """A file for each kind: users at random, two features of theirs, two of rows."""
    random = np.random.default_rng(0)
    user = random.integers(users, size=rows)
    far = user.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    own = (far >> np.uint64(40)).astype(np.int64)
    click = random.random(rows) < 0.02
    columns = {
        "item": (random.random(rows) ** 2 * 1e5).astype(np.int64),
        "click": click.astype(np.int8),
        "conversion": (click & (random.random(rows) < 0.05)).astype(np.int8),
        "age": (own % 80).astype(np.float32),
        "country": pa.array(own % 200).cast(pa.string()).dictionary_encode(),
        "device": pa.array(random.integers(5, size=rows)).cast(pa.string()).dictionary_encode(),
        "price": random.random(rows).astype(np.float32),
    }
    of_kind = dict(zip(KINDS, (user, far.view(np.int64), pa.array(far).cast(pa.string())), strict=True))
    for kind, ids in of_kind.items():
        pq.write_table(pa.table({"user": ids, **columns}), folder / f"{kind}.parquet", row_group_size=1 << 20)


def measured(file: Path) -> dict[str, Any]:
    """All figures of one file, in this process."""
    import unskew as us

    found: dict[str, Any] = {}

    def scan() -> None:
        found["log"] = us.stream_log(file, conversion="conversion", features="auto")

    def epoch() -> None:
        sum(map(len, found["log"].blocks(seed=0, epoch=0)))

    seconds = cpu_seconds(scan)
    epoch()
    return {
        "ids": file.stem,
        "users": found["log"].n_users,
        "first pass": seconds,
        "epoch": cpu_seconds(epoch),
        "GB": peak() / 1e9,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--users", type=float, default=1e7, help="of whom not all come")
    parser.add_argument("--json", default=None)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure is not None:
        print(json.dumps(measured(asked.measure)))
        return 0
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), int(asked.rows), int(asked.users))
        for kind in KINDS:
            command = [sys.executable, "-m", "benchmarks.ids", "--measure", f"{folder}/{kind}.parquet"]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            lines.append(json.loads(done.stdout.splitlines()[-1]))
    tell(f"{asked.rows:,.0f} rows, CPU-seconds", lines, "cpu", asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
