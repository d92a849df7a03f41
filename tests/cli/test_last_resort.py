"""What no verb foresaw is one line too, and never the exit code by which an audit says "miscalibrated"."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import warnings

import pytest

from unskew.base.errors import CollapseWarning
from unskew.cli import main, say_warning

COLUMNS = ["--score", "p", "--outcome", "o"]


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    """A log whose segments look like marks of a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("UNSKEW_DEBUG", raising=False)
    rows = [f"0.5,{number % 2},{'[/b]' if number % 4 < 2 else ':smile:'},0.9" for number in range(4000)]
    (tmp_path / "d[/x].csv").parent.mkdir()
    (tmp_path / "d[/x].csv").write_text("\n".join(["p,o,segment,q", *rows]))
    (tmp_path / "a.csv").write_text("\n".join(["p,o,segment,q", *rows]))


def audit_raises(error, monkeypatch) -> int:
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("unskew.audit.audit", fail)
    return main(["audit", "a.csv", *COLUMNS])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "No space left on device. To fix: free some space",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "x"), "x: Permission denied. To fix: see to its"),
        (OSError("odd"), "OSError: odd. To fix"),
        (MemoryError(), "the memory is full. To fix"),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator"),
            "the memory is full",
        ),
        (
            RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"),
            "the memory is",
        ),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA"), "the memory is full. To fix"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "not UTF-8"),
    ],
)
def test_what_a_user_can_mend_is_one_line_with_a_remedy(monkeypatch, capsys, error, told):
    assert audit_raises(error, monkeypatch) == 2
    said = capsys.readouterr().err
    assert said.startswith("unskew: ")
    assert told in said
    assert said.count("\n") == 1


def test_a_defect_is_told_as_one_with_its_place_and_a_code_of_its_own(monkeypatch, capsys):
    assert audit_raises(KeyError("params"), monkeypatch) == 70
    said = capsys.readouterr().err
    assert "this is a defect of unskew, not yours: KeyError: 'params' (unskew/cli/audit.py, line" in said
    assert "UNSKEW_DEBUG=1" in said
    assert said.count("\n") == 1


def test_the_traceback_is_shown_on_request(monkeypatch, capsys):
    monkeypatch.setenv("UNSKEW_DEBUG", "1")
    assert audit_raises(KeyError("params"), monkeypatch) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def command_line(*arguments: str, **more) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "unskew", *arguments], stderr=subprocess.PIPE, check=False, **more
    )


@pytest.mark.parametrize(("score", "verdict"), [("p", 0), ("q", 1)])
def test_a_reader_that_leaves_changes_no_verdict_and_makes_no_noise(tmp_path, score, verdict):
    reader, writer = os.pipe()
    os.close(reader)
    columns = ["--score", score, "--outcome", "o", "--out", "out", "--json", "told.json"]
    done = command_line("audit", "a.csv", *columns, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (verdict, b"")
    assert (tmp_path / "told.json").exists()
    assert (tmp_path / "out" / "report.html").exists()


def test_closed_errors_change_no_exit_code(tmp_path):
    for command, code in (
        (["audit", "a.csv", *COLUMNS, "--no-report"], 0),
        (["audit", "none.csv", *COLUMNS], 2),
    ):
        shell = 'exec "$@" >out.txt 2>&-'
        done = subprocess.run(
            ["sh", "-c", shell, "sh", sys.executable, "-m", "unskew", *command], check=False
        )
        assert done.returncode == code
        assert ("4,000 rows" in (tmp_path / "out.txt").read_text()) == (code == 0)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_an_output_that_is_full_is_one_line():
    with open("/dev/full", "wb") as full:
        done = command_line("audit", "a.csv", *COLUMNS, "--no-report", stdout=full)
    assert done.returncode == 2
    assert done.stderr.decode() == "unskew: No space left on device. To fix: free some space.\n"


def test_an_encoding_that_lacks_a_mark_shows_another():
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = command_line("audit", "a.csv", *COLUMNS, "--no-report", stdout=subprocess.PIPE, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Mean ? base rate" in done.stdout


def test_names_are_shown_as_they_are(capsys):
    assert main(["audit", "d[/x].csv", *COLUMNS, "--segments", "segment", "--no-report"]) == 0
    told = capsys.readouterr().out
    for each in ("d[/x].csv", "segment = [/b]", "segment = :smile:"):
        assert each in told


def test_an_interrupt_of_reproduce_tells_where_the_finished_parts_are(monkeypatch, capsys, tmp_path):
    def stop(presets, base, out, **options):
        out.mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr("unskew.study.reproduce.reproduce", stop)
    with pytest.raises(SystemExit, match="130"):
        main(["reproduce", "table-ece", "--data", "synthetic", "--out", "out"])
    assert "interrupted; what was finished is in out. Re-run to resume" in capsys.readouterr().err


def test_an_interrupt_before_anything_is_written_says_so(monkeypatch, capsys):
    assert audit_raises(KeyboardInterrupt(), monkeypatch) == 130
    assert "nothing was written" in capsys.readouterr().err


def test_a_warning_is_one_line_and_those_of_libraries_are_none(monkeypatch, capsys):
    monkeypatch.setattr(warnings, "showwarning", say_warning)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", say_warning)
        warnings.warn("the network\nlearned nothing\x1b[31m", CollapseWarning, stacklevel=1)
        warnings.warn("pass another argument", FutureWarning, stacklevel=1)
    assert capsys.readouterr().err == "unskew: the network learned nothing\\x1b[31m\n"
