"""Cases in processes of their own, which are ended and replaced when they hang or die."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fuzz.suite import Result, keep, run_case
from fuzz.trial import WAITING

HARD_LIMIT = 3 * WAITING
"""Seconds after which a process that does not answer is ended; a case may make several calls."""

MEMORY_BYTES = 6 << 30
"""Address space that a process may take beyond what it has after its imports."""


def work(connection: Connection, seed: int, folder: Path, assets: Path) -> None:
    """Run the cases that come over the connection."""
    _limit_memory()
    # What a library prints past Python is not unskew's word, and would hide the table.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    while True:
        kind, number = connection.recv()
        connection.send(run_case(kind, number, seed, folder, assets))


def _limit_memory() -> None:
    try:
        import resource

        import torch  # noqa: F401

        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except (ImportError, OSError):
        return
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))


@dataclass
class Worker:
    """A process and what it is at."""

    seed: int
    folder: Path
    assets: Path
    at: tuple[str, int] | None = None
    since: float = 0.0
    process: Any = field(init=False)
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=work, args=(theirs, self.seed, self.folder, self.assets), daemon=True
        )
        self.process.start()
        theirs.close()

    def give(self, case: tuple[str, int]) -> None:
        self.at, self.since = case, time.monotonic()
        self.connection.send(case)

    def taken(self) -> Result | None:
        """What came of its case; None while it works on it."""
        assert self.at is not None
        try:
            if self.connection.poll():
                result: Result = self.connection.recv()
                return result
            if time.monotonic() - self.since < HARD_LIMIT:
                return None
            what = f"hang: no answer in {HARD_LIMIT:g} s"
        except (EOFError, ConnectionResetError):
            self.process.join(10)
            what = f"the process ended with code {self.process.exitcode}"
        self.process.kill()
        self.process.join()
        result = Result(*self.at, problems=[what], codes={"died": 1}, story=[])
        self.start()
        return result


def run_all(
    wanted: list[tuple[str, int]], seed: int, workers: int, folder: Path, assets: Path
) -> list[Result]:
    """Every case, on so many processes, in a random order, so that one class does not wait for the others."""
    order = list(wanted)
    random.Random(seed).shuffle(order)
    pending, results = deque(order), []
    crew = [Worker(seed, folder, assets) for _ in range(min(workers, len(order)))]
    shown = time.monotonic()
    try:
        while pending or any(each.at for each in crew):
            for each in crew:
                if each.at is None and pending:
                    each.give(pending.popleft())
            wait([each.connection for each in crew if each.at], timeout=1.0)
            for each in crew:
                result = each.taken() if each.at else None
                if result is not None:
                    each.at = None
                    results.append(result)
                    if result.problems:
                        keep(result, seed, folder, folder.parent / "failed")
            if time.monotonic() - shown > 15:
                shown = time.monotonic()
                failed = sum(bool(each.problems) for each in results)
                print(
                    f"  {len(results):,} of {len(order):,} cases, {failed} failed",
                    file=sys.stderr,
                    flush=True,
                )
    finally:
        for each in crew:
            each.process.kill()
            each.process.join()
    return results
