"""Kills, signals, two writers, full disks, missing rights and closed descriptors.

The whole old or the whole new is in place, the next command leaves nothing else, and what can be told is one
line. ``make thorough`` adds random kills of every verb.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unskew as us
from forked import Forked
from unskew.base.files import AUDIT, RUN

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and rights as on POSIX")

KILLS = Path(__file__).with_name("kills.py")
RANDOM_KILLS = 25

COMMANDS = {
    "run": "run --data clicks.csv --learner mf --seeds 1 --crossfit 2 --propensity-epochs 1 --method naive"
    " --out out/place",
    "audit": "audit log.csv --score p --outcome o --out out/place",
    "weights": "weights log.csv --score p --outcome o -o out/place.parquet",
    "score": "score run pairs.csv -o out/place.parquet",
    "export": "export run -o out/place",
}

BEFORE_ENTRY = """
import os, resource, signal, sys, time

STEP = {step!r}  # The first touch of what lies beside the output: checks are done, writing begins.
done = False

def hook(event, arguments):
    global done
    touches = any(isinstance(each, (str, os.PathLike)) and STEP in os.fspath(each) for each in arguments)
    if touches and event in ("open", "os.mkdir") and not done:
        done = True
        {action}

if STEP:
    sys.addaudithook(hook)
# Whoever started the tests (nohup, a shell in the background) may have had them ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
for each in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, signal.SIG_DFL)
import unskew.report, unskew.report.audit_report
# Figures take seconds, and touch no output.
unskew.report.audit_report.render_audit_report = lambda result: "<html></html>"
unskew.report.render_run_report = lambda **told: "<html></html>"
unskew.report.overview_svg = lambda **told: "<svg/>"
{first}
from unskew.cli import entry
entry()
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A log to audit, clicks to train on, a saved model and pairs to score."""
    folder = tmp_path_factory.mktemp("inputs")
    draw = np.random.default_rng(0)
    rows = [f"{p:.4f},{int(draw.random() < p)}\n" for p in draw.uniform(0.1, 0.9, 400)]
    (folder / "log.csv").write_text("p,o\n" + "".join(rows), encoding="utf-8")
    log = us.load("synthetic", n_users=12, n_items=20, density=0.3).train
    pairs = zip(log.user, log.item, log.known_conversion().astype(int), strict=True)
    clicks = "".join(f"{user},{item},{bought}\n" for user, item, bought in pairs)
    (folder / "clicks.csv").write_text("user,item,conversion\n" + clicks, encoding="utf-8")
    (folder / "pairs.csv").write_text("user,item\n1,2\n3,4\n", encoding="utf-8")
    us.Naive(learner=us.MF(dim=2), epochs=1).fit(log).save(folder / "run")
    return folder


@pytest.fixture
def here(inputs, tmp_path):
    shutil.copytree(inputs, tmp_path / "here")
    (tmp_path / "here" / "out").mkdir()
    return tmp_path / "here"


def arguments(verb: str, *more: str) -> list[str]:
    return [*COMMANDS[verb].split(), *more]


def started(
    here: Path, command: list[str], *, step: str = "", action: str = "pass", first: str = "", **more
) -> subprocess.Popen[bytes]:
    """The command line, with something done before it or at its first step beside the output."""
    code = BEFORE_ENTRY.format(step=step, action=action, first=first)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", code, *command], cwd=here, env=environment, **streams)


def the_command(here: Path, command: list[str], code: str) -> None:
    """What a process that is forked does."""
    os.chdir(here)
    sys.argv = ["-c", *command]
    exec(code, {"__name__": "__main__"})


def forked(
    here: Path, command: list[str], *, step: str = "", action: str = "pass", first: str = ""
) -> Forked:
    """The same where nothing depends on how Python starts or ends: it takes a tenth of the time."""
    code = BEFORE_ENTRY.format(step=step, action=action, first=first)
    return Forked(__file__, "the_command", here, command, code)


def ended(process: subprocess.Popen[bytes] | Forked) -> tuple[int, str]:
    """Exit code and what was said on standard error."""
    if isinstance(process, Forked):
        code, _, said = process.ended()
        return code, said
    _, error = process.communicate()
    return process.returncode, (error or b"").decode()


def content(place: Path):
    """All that is at a place, by name."""
    return {
        path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()
    }


def place_of(here: Path, verb: str) -> Path:
    return here / COMMANDS[verb].split()[-1]


def put_old(here: Path, verb: str) -> None:
    """An earlier output, as far as it is looked at."""
    place = place_of(here, verb)
    if verb in ("run", "audit"):
        kind = RUN if verb == "run" else AUDIT
        place.mkdir()
        text = 'unskew = "1"\nformat = 4\n' if verb == "run" else json.dumps(dict.fromkeys(kind.keys))
        (place / kind.marker).write_text(text, encoding="utf-8")
    else:
        place.write_text("old", encoding="utf-8")


def some_by_default(*verbs: str) -> list[Any]:
    """All verbs; those that are not named in ``make thorough`` alone, because each takes seconds to start."""
    return [each if each in verbs else pytest.param(each, marks=pytest.mark.hostile) for each in COMMANDS]


@pytest.mark.parametrize("existing", ["over", "new"])
@pytest.mark.parametrize("what", ["folder", "file"])
def test_killed_before_each_step_the_old_or_the_new_is_there(tmp_path, what, existing):
    command = [sys.executable, KILLS, f"{what}-{existing}", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    met = json.loads(done.stdout)
    assert {each.split()[1] for each in met} == {"old", "new"}
    assert sum(met.values()) >= 6


@pytest.mark.parametrize("verb", some_by_default("weights"))
def test_a_verb_killed_before_each_step_leaves_the_old_or_the_new(here, verb):
    if verb == "export":
        pytest.importorskip("onnx")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, KILLS, verb, here]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert {each.split()[1] for each in json.loads(done.stdout)} == {"old", "new"}


@pytest.mark.parametrize(
    ("verb", "name"), [("audit", "SIGTERM"), ("weights", "SIGHUP"), ("weights", "SIGINT")]
)
def test_a_signal_is_one_line_and_leaves_nothing(here, verb, name):
    number = getattr(signal, name)
    process = forked(here, arguments(verb), step=".place", action=f"signal.raise_signal({int(number)})")
    code, said = ended(process)
    how = "interrupted" if name == "SIGINT" else f"ended by {name}"
    assert said == f"unskew: {how}; nothing was written. Re-run to start again.\n"
    assert code == 128 + number
    assert not list((here / "out").iterdir())


def test_what_was_written_before_a_signal_is_told(here):
    command = arguments("weights", "--json", "told.json")
    process = forked(here, command, step=".told.json", action="signal.raise_signal(signal.SIGTERM)")
    code, said = ended(process)
    assert code == 128 + signal.SIGTERM
    assert said.startswith("unskew: ended by SIGTERM; out/place.parquet is written, and no more. ")
    assert [path.name for path in (here / "out").iterdir()] == ["place.parquet"]
    assert not (here / "told.json").exists()


def test_a_signal_that_was_ignored_from_the_beginning_stays_so(here):
    process = forked(
        here,
        arguments("weights"),
        step=".place",
        action="signal.raise_signal(signal.SIGHUP)",
        first="signal.signal(signal.SIGHUP, signal.SIG_IGN)",
    )
    assert ended(process) == (0, "")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_after_the_work_changes_nothing(here, name):
    """While Python ends, as after a second Ctrl-C."""
    late = f"import atexit; atexit.register(signal.raise_signal, signal.{name})"
    assert ended(started(here, arguments("weights"), first=late)) == (0, "")
    assert [path.name for path in (here / "out").iterdir()] == ["place.parquet"]


@pytest.mark.parametrize("verb", ["audit", "weights"])
def test_of_two_writers_the_first_to_end_wins_and_the_other_is_told(here, verb):
    """The first waits, ready to write, until the second has written."""
    os.mkfifo(here / "go")
    first = forked(here, arguments(verb), step=".place", action="open('go').read()")
    with (here / "go").open("w"):  # Opens when the first has come there.
        assert ended(forked(here, arguments(verb))) == (0, "")
        place = place_of(here, verb)
        written = content(place)
    code, said = ended(first)
    assert code == 2
    assert "another process wrote there meanwhile, and what it wrote was left. To fix: " in said
    assert said.count("\n") == 1
    assert content(place) == written


def test_standard_output_is_appended_to(here):
    (here / "log").write_text("before\n")
    for _ in range(2):
        with (here / "log").open("a") as log:
            command = [*COMMANDS["audit"].split()[:-2], "--no-report", "--json", "/dev/stdout"]
            assert ended(started(here, command, stdout=log)) == (0, "")
    text = (here / "log").read_text()
    assert text.startswith("before\n{")
    assert text.count('"verdict"') == 2
    assert sorted(path.name for path in here.iterdir() if "log" in path.name) == ["log", "log.csv"]


LIMIT = "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))"


@pytest.mark.parametrize("more", [[], ["--overwrite"]], ids=["new", "overwrite"])
@pytest.mark.parametrize("verb", some_by_default("audit", "weights"))
def test_a_disk_that_is_full_is_one_line_and_leaves_what_was_there(here, verb, more):
    """A limit on the size of files meets every writer as a full disk does: in the middle of a write."""
    if verb == "export":
        pytest.importorskip("onnx")
    if more:
        put_old(here, verb)
    before = content(here)
    code, said = ended(started(here, arguments(verb, *more), step=".place", action=LIMIT))
    assert (code, said.count("\n")) == (2, 1), said
    assert "cannot be written: File too large. To fix: " in said
    assert content(here) == before
    assert [path.name for path in (here / "out").iterdir()] == ([place_of(here, verb).name] if more else [])


def test_a_full_disk_leaves_no_part_of_a_sketch(tmp_path):
    code = (
        "import resource, sys, numpy as np\n"
        "from unskew.metrics import CalibrationSketch\n"
        "draw = np.random.default_rng(0).random(5000)\n"
        "sketch = CalibrationSketch.of(score=draw, outcome=np.tile([0, 1], 2500))\n"
        f"{LIMIT}\n"
        "try:\n    sketch.save('s.npz')\n"
        "except Exception as error:\n    sys.exit(str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr.startswith("s.npz: cannot be written: File too large. To fix: ")
    assert not list(tmp_path.iterdir())


AS_NOBODY = """
from unskew.cli import main
code = main([*sys.argv[1:-1], "warm/" + sys.argv[-1].split("/")[-1]])  # All that is loaded is loaded.
assert code == 0
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
"""


@pytest.mark.parametrize("verb", some_by_default("audit", "weights"))
def test_without_rights_it_is_one_line(here, verb):
    """As root, the process gives its rights away first; the inputs can be read, the outputs not written."""
    if verb == "export":
        pytest.importorskip("onnx")
    is_root = os.geteuid() == 0
    (here / "warm").mkdir()
    # pytest's own folders are closed to other users; how many there are depends on how it was started.
    with tempfile.TemporaryDirectory() as open_to_all:
        place = Path(open_to_all)
        place.chmod(0o755)
        if any(not each.stat().st_mode & 0o001 for each in place.parents):
            pytest.skip("the folder of temporary files is closed to other users")
        shutil.copytree(here, place / "here")
        (place / "here").chmod(0o755)
        (place / "here" / "out").chmod(0o555)
        code, said = ended(forked(place / "here", arguments(verb), first=AS_NOBODY if is_root else ""))
        (place / "here" / "out").chmod(0o755)
        assert (code, said.count("\n")) == (2, 1), said
        assert "cannot write into" in said
        assert "To fix: " in said
        assert not list((place / "here" / "out").iterdir())
