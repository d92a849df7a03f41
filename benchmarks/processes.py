"""Two processes beside one, each with one thread. ``python -m benchmarks.processes [--rows N]``

Four DCN, of which each of two processes trains two, as a click model over a stream of impressions of 10⁶
users × 10⁵ items (``benchmarks.streams``). A ratio is the time of one process over that of two in the
same run, of a second round. Where other programs want the cores the clock says little; the time of the
processor, which leaves waiting out, says more.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

WORLD = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=8_192)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--json", default=None, help="also write the results to this file")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        _work(options)
        return 0
    from benchmarks.common import tell

    one, two = (_started(options, world) for world in (1, WORLD))
    lines = []
    for what in one:
        most = {name: max(each[name] for each in two[what]) for name in ("seconds", "processor")}
        lines.append(
            {
                "shared": what,
                "one: seconds": one[what][0]["seconds"],
                "two: seconds": most["seconds"],
                "ratio by the clock": one[what][0]["seconds"] / most["seconds"],
                "ratio by the processor": one[what][0]["processor"] / most["processor"],
            }
        )
    tell("Two processes of one thread beside one", lines, "cpu", options.json)
    return 0


def _started(options: argparse.Namespace, world: int) -> dict[str, list[dict[str, float]]]:
    """What each of so many processes measured, by what is shared."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    own = [f"--{name}={getattr(options, name)}" for name in ("rows", "batch", "replicas")]
    started = []
    for rank in range(world):
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
        group = {**ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.processes", "--work", *own],
                env={**os.environ, **{name: str(value) for name, value in group.items()}},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    told = [json.loads(each.communicate()[0].splitlines()[-1]) for each in started]
    return {what: [each[what] for each in told] for what in told[0]}


def _work(options: argparse.Namespace) -> None:
    import torch

    import unskew as us
    from benchmarks import streams
    from unskew.base import processes
    from unskew.data import StreamedLog

    torch.set_num_threads(1)
    log = streams.impressions(options.rows)
    source = StreamedLog.of(log, block_rows=1 << 14)
    found: dict[str, Any] = {}

    def measured(replicas: int) -> dict[str, float]:
        clock = _Clock()
        streams.streamed(source, log, options.batch, replicas, clock.now)
        return clock.between()

    with us.torchrun():
        share = processes.share(options.replicas)
        found["replicas"] = measured(share.stop - share.start)
    print(json.dumps(found))


class _Clock:
    """Both clocks at the ends of rounds."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, float]] = []

    def now(self) -> float:
        self._ends.append((time.perf_counter(), time.process_time()))
        return self._ends[-1][1]

    def between(self) -> dict[str, float]:
        (start, before), (end, after) = self._ends[-2:]
        return {"seconds": end - start, "processor": after - before}


if __name__ == "__main__":
    sys.exit(main())
