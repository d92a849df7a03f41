"""``unskew run --checkpoint`` and the encoding of a log ended by ``kill -9``: the same command goes on.

The end is the same, bit by bit. Logs are mapped from a cache.

``make thorough`` does so at 20 random moments, from the first import to the last file.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from forked import Forked
from unskew.training import checkpoint
from unskew.training.state import read_state

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as on POSIX")

RANDOM_KILLS = 20
LARGE_ROWS = 10**6

COMMAND = (
    "run --data clicks.parquet --space impressions --propensity mf --learner mf --method dr-jl --seeds 2"
    " --crossfit 2 --set training.epochs=6 --set training.batch_size=40 --device cpu --cache cache --out"
)

LARGE_COMMAND = (
    "run --data large.parquet --space impressions --propensity popularity --learner mf --method ips --seeds 1"
    " --members 1 --crossfit 2 --set method.epochs=4 --device cpu --cache cache --out"
)


def map_all_logs() -> None:
    """Take every log for a large one, in this process."""
    from unskew.data import arrays, cache, two_passes

    cache.HELD_BYTES = two_passes.MAPPED_BYTES = arrays.TAKEN_BYTES = 0


def the_encoding(here: Path, name: str) -> None:
    """What a process does that reads a log into a cache."""
    map_all_logs()
    log = us.read_log(here / "large.parquet", space="impressions", features="auto", cache=here / name)
    assert isinstance(log.user, np.memmap)


def the_command(here: Path, arguments: list[str], milliseconds: int, ends_at: str = "") -> None:
    """What a process does: ``unskew ARGUMENTS``, with a state every few milliseconds.

    It kills itself as soon as there is a state of the name ``ends_at``: who watches from outside comes too
    late for states that are there for a few milliseconds.
    """
    import unskew.report
    from unskew.cli import entry

    map_all_logs()
    checkpoint.parse_duration = lambda text: np.timedelta64(milliseconds, "ms")
    # Figures take seconds, and are not trained.
    unskew.report.render_run_report = lambda **told: "<html></html>"
    unskew.report.overview_svg = lambda **told: "<svg/>"
    write = checkpoint.write_state

    def written(path, facts, tensors):
        write(path, facts, tensors)
        if fnmatch(path.stem, ends_at):
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.write_state = written
    os.chdir(here)
    sys.argv = ["unskew", *arguments]
    entry()


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    log = us.load("synthetic", n_users=25, n_items=20, density=0.4, seed=2).train
    clicks = len(log)
    columns = {
        "user": np.tile(log.user, 2),
        "item": np.concatenate([log.item, (log.item + 1) % 20]),
        "click": np.repeat([1, 0], clicks),
        "conversion": np.append(log.known_conversion(), np.zeros(clicks)).astype(int),
    }
    pq.write_table(pa.table(columns), folder / "clicks.parquet", row_group_size=50)
    return folder


def write_large(folder: Path) -> None:
    """Write a log of a million rows."""
    draw = np.random.default_rng(3)
    click = draw.random(LARGE_ROWS) < 0.3
    columns = {
        "user": [f"u{code}" for code in draw.integers(50_000, size=LARGE_ROWS)],
        "item": draw.integers(3_000, size=LARGE_ROWS),
        "click": click,
        "conversion": click & (draw.random(LARGE_ROWS) < 0.4),
        "device": draw.choice(["tv", "phone", "pc"], LARGE_ROWS),
        "price": draw.lognormal(size=LARGE_ROWS),
    }
    pq.write_table(pa.table(columns), folder / "large.parquet", row_group_size=50_000)


def started(
    here: Path, out: str, *, milliseconds: int = 10, ends_at: str = "", command: str = COMMAND
) -> Forked:
    words = [*command.split(), out, "--checkpoint", f"{out}.states"]
    return Forked(__file__, "the_command", here, words, milliseconds, ends_at)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@cache
def uninterrupted(here: Path, command: str = COMMAND) -> tuple[dict[str, bytes], float]:
    """The files of a run without a kill, and how long it took."""
    # The first process of all waits for libraries, which the others are forked with.
    for out in ("first", "plain"):
        begin = time.monotonic()
        code, _, error = started(here, out, milliseconds=10**9, command=command).ended()
        assert code == 0, error
    return content(here / out), time.monotonic() - begin


def test_killed_twice_it_goes_on_and_ends_with_the_same_files(here):
    """In the propensity, and in the last conversion model; then between its run and its last word."""
    wanted_files, _ = uninterrupted(here)
    out = "twice"
    states = here / f"{out}.states"
    for wanted in ("training-0001-000004", "training-0004-0*"):
        code, _, error = started(here, out, milliseconds=0, ends_at=wanted).ended()
        assert code == -signal.SIGKILL, error
        assert list(states.glob(f"{wanted}.safetensors"))
    code, _, error = started(here, out).ended()
    # Beside it, a line now and then of how far it is.
    assert code == 0, error
    assert f"unskew: going on from {out}.states: " in error
    assert content(here / out) == wanted_files
    assert [path.name for path in states.iterdir()] == ["job.safetensors"]
    job = states / "job.safetensors"
    checkpoint.write_state(job, {**read_state(job).facts, "status": "saving"}, {})
    code, said, error = started(here, out).ended()
    assert code == 0, error
    assert said == f"this job is done: its run is {here / out}\n"
    assert content(here / out) == wanted_files
    assert read_state(job).facts["status"] == "done"


def killed_at_random(start: Callable[[str], Forked], check: Callable[[str], object], takes: float) -> str:
    """Kill a job until it ends, and begin others until there were 20 kills; check each end."""
    chosen = random.Random("kills")
    kills = runs = late = 0
    while kills < RANDOM_KILLS:
        runs += 1
        out = f"random {runs}"
        code = None
        while code is None:
            process = start(out)
            # The last one is left alone.
            if kills == RANDOM_KILLS or process.wait(chosen.uniform(0.0, 1.1) * takes) is not None:
                code, _, error = process.ended()
                assert code == 0, error
            else:
                process.kill()
                late += process.ended()[0] == 0
                kills += 1
        check(out)
    return f"{kills} kills of {runs} jobs, {late} of them after the end; one alone takes {takes:.1f} s"


@pytest.mark.hostile
@pytest.mark.parametrize("size", ["small", "large"])
def test_twenty_random_kills_of_a_run_change_nothing(here, tmp_path, size):
    if size == "large":
        here = tmp_path
        write_large(here)
    command, milliseconds = (COMMAND, 10) if size == "small" else (LARGE_COMMAND, 300)
    wanted, takes = uninterrupted(here, command)

    def check(out: str) -> None:
        assert content(here / out) == wanted
        assert [path.name for path in (here / f"{out}.states").iterdir()] == ["job.safetensors"]

    def start(out: str) -> Forked:
        return started(here, out, milliseconds=milliseconds, command=command)

    print(killed_at_random(start, check, takes))


@pytest.mark.hostile
def test_twenty_random_kills_of_an_encoding_change_nothing(tmp_path):
    write_large(tmp_path)

    def encoding(name: str) -> Forked:
        return Forked(__file__, "the_encoding", tmp_path, name)

    def logs(name: str) -> dict[str, dict[str, bytes]]:
        return {path.name: content(path) for path in (tmp_path / name).iterdir() if path.is_dir()}

    for name in ("first", "plain"):
        begin = time.monotonic()
        code, _, error = encoding(name).ended()
        assert code == 0, error
    takes, wanted = time.monotonic() - begin, logs("plain")
    assert len(wanted) == 1

    def check(name: str) -> None:
        assert logs(name) == wanted

    print(killed_at_random(encoding, check, takes))
