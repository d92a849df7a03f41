"""``unskew run --checkpoint`` ended by ``kill -9``: the same command goes on, and the end is the same.

``make kills`` does so at 20 random moments, from the first import to the last file.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import unskew as us
from unskew.training.state_files import StateFiles

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as on POSIX")

RANDOM_KILLS = 20

COMMAND = (
    "run --data clicks.csv --space impressions --propensity mf --backbone mf --method dr-jl --seeds 2"
    " --crossfit 2 --set training.epochs=6 --set training.batch_size=40 --device cpu"
)

OFTEN = """
import numpy, unskew.report, unskew.training.checkpoint as checkpoint
checkpoint.duration = lambda text: numpy.timedelta64({milliseconds}, "ms")
# Figures take seconds, and are not trained.
unskew.report.render_run_report = lambda **told: "<html></html>"
unskew.report.overview_svg = lambda **told: "<svg/>"
from unskew.cli import entry
entry()
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    log = us.load("synthetic", n_users=25, n_items=20, density=0.4, seed=2).train
    bought = log.known_conversion().astype(int)
    rows = zip(log.user, log.item, bought, strict=True)
    lines = [f"{user},{item},1,{each}\n" for user, item, each in rows]
    lines += [f"{user},{(item + 1) % 20},0,0\n" for user, item in zip(log.user, log.item, strict=True)]
    text = "user,item,click,conversion\n" + "".join(lines)
    (folder / "clicks.csv").write_text(text, encoding="utf-8")
    return folder


def started(here: Path, out: str, *, milliseconds: int = 10) -> subprocess.Popen[bytes]:
    command = [*COMMAND.split(), "--out", out, "--checkpoint", f"{out}.states"]
    code = OFTEN.format(milliseconds=milliseconds)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", code, *command], cwd=here, env=environment, **streams)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    said, error = process.communicate()
    return process.returncode, said.decode(), error.decode()


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def uninterrupted(here):
    """The run without a kill: its files, and how long it took."""
    begin = time.monotonic()
    code, _, error = ended(started(here, "plain", milliseconds=10**9))
    assert (code, error) == (0, "")
    return content(here / "plain"), time.monotonic() - begin


def killed_when(process: subprocess.Popen[bytes], states: Path, wanted: str) -> None:
    """Kill it as soon as there is such a state."""
    while process.poll() is None and not list(states.glob(wanted)):
        time.sleep(0.002)
    process.kill()
    ended(process)


def test_killed_twice_it_goes_on_and_ends_with_the_same_files(here, uninterrupted):
    """In the propensity, and in the last conversion model; then between its run and its last word."""
    states = here / "twice.states"
    for wanted in ("training-0001-000004.json", "training-0004-0*.json"):
        killed_when(started(here, "twice"), states, wanted)
        assert list(states.glob(wanted)), "it was killed in time"
    code, _, error = ended(started(here, "twice"))
    assert (code, error) == (0, "unskew: going on from twice.states\n")
    assert content(here / "twice") == uninterrupted[0]
    assert [path.name for path in states.iterdir()] == ["job.json"]
    files = StateFiles(states)
    files.write("job", {**files.read("job").facts, "status": "saving"})
    code, said, error = ended(started(here, "twice"))
    assert (code, said, error) == (0, f"this job is done: its run is {here / 'twice'}\n", "")
    assert content(here / "twice") == uninterrupted[0]
    assert files.read("job").facts["status"] == "done"


@pytest.mark.hostile
def test_twenty_random_kills_change_nothing(here, uninterrupted, request):
    wanted, takes = uninterrupted
    chosen = random.Random(f"checkpoint {request.config.getoption('randomly_seed', 0)}")
    kills, late = 0, 0
    number = 0
    while kills < RANDOM_KILLS:
        number += 1
        out = f"random {number}"
        code = None
        while code is None and kills < RANDOM_KILLS:
            process = started(here, out)
            try:
                process.wait(chosen.uniform(0.2, 1.1) * takes)
                code, _, error = ended(process)
                assert code == 0, error
            except subprocess.TimeoutExpired:
                process.kill()
                ended(process)
                kills += 1
                late += (here / out).exists()
        if code is None:
            code, _, error = ended(started(here, out))
            assert code == 0, error
        assert content(here / out) == wanted
        assert [path.name for path in (here / f"{out}.states").iterdir()] == ["job.json"]
    print(f"{kills} kills of {number} runs, {late} of them after the run was in place")
