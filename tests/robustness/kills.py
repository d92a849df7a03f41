"""Kills a process at each of its steps, one after another: before every system call that touches a folder.

Run as a script (``python kills.py SCENARIO FOLDER``), and the work is done in children, so that no process is
forked while it has threads: what a thread has locked at that moment stays locked in the child for ever. Only
``run`` trains before, once. The steps are Python's own audit events, so that none has to be listed by hand.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 600
"""Seconds after which a child that hangs is ended, and told as such; a busy machine must not reach it."""

NEVER = sys.maxsize
"""A step that no work comes to."""


def touches(arguments: tuple[Any, ...], folder: str) -> bool:
    return any(
        isinstance(each, str | bytes | os.PathLike) and folder in os.fsdecode(each) for each in arguments
    )


def alone() -> bool:
    """Whether this process has one thread, as far as the system tells; jemalloc sees to its own at a fork."""
    tasks = Path("/proc/self/task").glob("*/comm")
    return sum(each.read_text(encoding="utf-8").strip() != "jemalloc_bg_thd" for each in tasks) <= 1


def killed_at(step: int, folder: Path, work: Callable[[], object]) -> tuple[int, str]:
    """Do the work in a child that is killed before that step; by what signal it ended, or 0, and where."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        seen = 0

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal seen
            if event.startswith(("os.", "open", "shutil.", "fcntl.")) and (
                event == "fcntl.flock" or touches(arguments, str(folder))
            ):
                seen += 1
                if seen > step:
                    os.write(writer, event.encode())
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        code = 1
        try:
            code = int(work() or 0)
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as told:
        event = told.read()
    _, status = os.waitpid(child, 0)
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, f"exit code {os.WEXITSTATUS(status)}"
    return (os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0), event


def content(place: Path) -> Any:
    """All that is at a place: bytes by name, bytes, or None."""
    if place.is_dir():
        return {path.name: path.read_bytes() for path in place.iterdir()}
    return place.read_bytes() if place.exists() else None


def check_each_step(
    place: Path,
    work: Callable[[], object],
    *,
    old: Any,
    is_new: Callable[[Any], bool],
    restore: Callable[[], object],
    heal: Callable[[], object] = lambda: None,
) -> dict[str, int]:
    """Kill before each step: the whole old or the whole new is there, and the next command works.

    ``heal`` is what any next command does first. Gives how often each step was met, and how it ended.
    """
    steps: dict[str, int] = {}
    step = 0
    while True:
        restore()
        ended, event = killed_at(step, place.parent, work)
        heal()
        found = content(place)
        assert found == old or is_new(found), f"after {event} (step {step}) there is {found!r:.300}"
        if ended == 0:
            assert is_new(found)
            return steps
        assert ended == signal.SIGKILL, f"after {event} (step {step}) it was ended by {ended}"
        outcome = "old" if found == old else "new"
        steps[f"{event} {outcome}"] = steps.get(f"{event} {outcome}", 0) + 1
        assert killed_at(NEVER, place.parent, work) == (0, "")
        assert is_new(content(place)), f"the next command after {event} (step {step})"
        # Whoever was killed may leave what it was writing, under a hidden name.
        hidden = (path.name for path in place.parent.iterdir() if path.name.startswith("."))
        left = sorted(name for name in hidden if ".partial-" not in name)
        assert not left, f"the next command after {event} (step {step}) left {left}"
        step += 1


def files(scenario: str, folder: Path) -> dict[str, int]:
    """The primitives of ``unskew.base.files``, without anything else."""
    from unskew.base.files import check_new_file, check_target, whole_file, whole_folder

    what, existing = scenario.split("-")
    place = folder / "place"
    old = None
    config = b'unskew = "1"\nformat = 4\n'
    if existing == "over":
        old = (
            {"config.toml": config, "model.safetensors": b"old" * 1000} if what == "folder" else b"old" * 1000
        )

    def restore() -> None:
        for each in folder.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        if isinstance(old, dict):
            place.mkdir()
            for name, text in old.items():
                (place / name).write_bytes(text)
        elif old is not None:
            place.write_bytes(old)

    if what == "folder":
        new = {"config.toml": config, "model.safetensors": b"new" * 1000}

        def work() -> None:
            with whole_folder(place, overwrite=True) as beside:
                for name, text in new.items():
                    (beside / name).write_bytes(text)

        return check_each_step(
            place,
            work,
            old=old,
            is_new=lambda found: found == new,
            restore=restore,
            heal=lambda: check_target(place, overwrite=True),
        )

    def work_on_file() -> None:
        with whole_file(check_new_file(place, overwrite=True)) as beside:
            beside.write_bytes(b"new" * 1000)

    return check_each_step(
        place, work_on_file, old=old, is_new=lambda found: found == b"new" * 1000, restore=restore
    )


def verb(scenario: str, folder: Path) -> dict[str, int]:
    """A verb with ``--overwrite``; its inputs lie in ``folder``, its output in ``folder/out``.

    Only steps at the output are killed. What differs from run to run is left out of what is new.
    """
    import contextlib
    import importlib
    import io

    import unskew.report
    import unskew.report.audit_report
    from unskew.cli import main

    # Figures take a second each, and touch no output.
    unskew.report.audit_report.render_audit_report = lambda result: "<html></html>"
    unskew.report.render_run_report = lambda **told: "<html></html>"
    unskew.report.overview_svg = lambda **told: "<svg/>"
    commands = {
        "audit": ["audit", "log.csv", "--score", "p", "--outcome", "o", "--out", "out/place"],
        "weights": ["weights", "log.csv", "--score", "p", "--outcome", "o", "-o", "out/place.parquet"],
        "score": ["score", "run", "pairs.csv", "-o", "out/place.parquet"],
        "export": ["export", "run", "-o", "out/place"],
        "run": [
            *("run", "--data", "clicks.csv", "--learner", "mf", "--seeds", "1", "--crossfit", "2"),
            *("--propensity-epochs", "1", "--method", "naive", "--out", "out/place"),
        ],
    }
    os.chdir(folder)
    command = [*commands[scenario], "--overwrite"]
    place = folder / commands[scenario][-1]

    def work() -> int:
        with contextlib.redirect_stdout(io.StringIO()):
            return main(command)

    # What it loads is loaded here as well, so that the children need not.
    loaded = folder / "loaded"

    def told_what_it_loads() -> int:
        code = work()
        loaded.write_text("\n".join(sys.modules), encoding="utf-8")
        return code

    if scenario == "run":
        # What is trained is the same each time: once is enough, and children find it in their memory.
        import unskew.run.job

        train, trained = unskew.run.job.run, []

        def train_once(*given: Any) -> Any:
            if not trained:
                trained.append(train(*given))
            return trained[0]

        unskew.run.job.run = train_once
        assert work() == 0
    else:
        assert killed_at(NEVER, folder, told_what_it_loads) == (0, "")
        for name in loaded.read_text(encoding="utf-8").split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        assert alone(), "what is loaded starts threads"
    new = content(place)
    old = {**new, "report.html": b"old"} if isinstance(new, dict) else b"old"

    def restore() -> None:
        shutil.rmtree(folder / "out")
        place.parent.mkdir()
        if isinstance(old, dict):
            place.mkdir()
            for name, text in old.items():
                (place / name).write_bytes(text)
        else:
            place.write_bytes(old)

    def is_new(found: Any) -> bool:
        return found.keys() == new.keys() and found != old if isinstance(new, dict) else found == new

    return check_each_step(place, work, old=old, is_new=is_new, restore=restore)


if __name__ == "__main__":
    of_what = verb if "-" not in sys.argv[1] else files
    print(json.dumps(of_what(sys.argv[1], Path(sys.argv[2]))))
