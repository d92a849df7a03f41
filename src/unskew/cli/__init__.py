"""The command line: one file a verb. ``--help`` loads no torch; errors are one line and exit code 2."""

from __future__ import annotations

import difflib
import gc
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO, cast

from unskew.base import processes
from unskew.cli import signals

EXIT_BAD_INPUT = 2
EXIT_DEFECT = 70

LONGEST_MESSAGE = 2000
"""Characters of the one line that an error is."""

COLLECT_EVERY = 50_000
"""Objects made between two collections of garbage; with Python's own 700 the modules alone cause hundreds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name of a file or a mark of a table that the terminal's encoding lacks must not end the command.
        sys.stdout.reconfigure(errors="replace")
    _placed().clear()
    code = EXIT_DEFECT
    try:
        code = _guarded(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        placed = _placed()
        written = f"{placed[-1]} is written, and no more" if placed else "nothing was written"
        _tell(f"{_why_ended()}; {written}. Re-run to start again.")
        code = signals.exit_code()
    finally:
        processes.leave(failed=code != 0)
    return code


def _why_ended() -> str:
    """Say how the command was interrupted: torchrun ends all processes when one of them dies."""
    how = signals.what_happened()
    return f"{how}, as all are where one dies" if processes.started() > 1 and how != "interrupted" else how


def _placed() -> list[Path]:
    """Return the files written so far; the module that lists them is loaded at the first one."""
    files = sys.modules.get("unskew.base.files")
    return [] if files is None else cast("list[Path]", files.PLACED)


@contextmanager
def resumable(folder: Path | None, words: str) -> Iterator[None]:
    """Say where the job goes on from when it is interrupted inside."""
    try:
        yield
    except KeyboardInterrupt:
        if folder is None or not folder.exists():
            raise
        _tell(f"{_why_ended()}; {words} {folder}. Re-run to resume.")
        sys.exit(signals.exit_code())


def _guarded(arguments: list[str]) -> int:
    """Run; an unforeseen error is one line as well, and never with an exit code of a verb."""
    try:
        code = _run(arguments)
        # Now, while it can be reported, and not when Python ends; without any output it is None.
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except Exception as error:
        from unskew.cli import last_resort

        last_resort.show_traceback(error)
        if last_resort.is_of_the_machine(error):
            last_resort.settle_output()
            return _fail(last_resort.machine_message(error))
        return _fail(last_resort.defect_message(error), EXIT_DEFECT)


def _run(arguments: list[str]) -> int:
    import click

    from unskew.base.errors import UnskewError
    from unskew.base.settings import FORMER
    from unskew.cli.app import command

    try:
        processes.join()
        if not processes.is_writer():
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        with command.make_context("unskew", arguments or ["--help"]) as context:
            result = command.invoke(context)
    except click.exceptions.Exit as done:
        result = done.exit_code
    except click.NoSuchOption as error:
        parameters = [] if error.ctx is None else error.ctx.command.params
        known = [flag.lstrip("-") for parameter in parameters for flag in parameter.opts]
        name = error.option_name.lstrip("-")
        near = difflib.get_close_matches(FORMER.get(name, name), known, n=1)
        remedy = f"use --{near[0]}" if near else "see --help and --help-all after the verb"
        return _fail(f"there is no option {error.option_name}. To fix: {remedy}.")
    except click.ClickException as error:
        return _fail(f"{error.format_message().rstrip('.')}. To fix: see --help after the verb.")
    except UnskewError as error:
        return _fail(str(error))
    return result if isinstance(result, int) else 0


def _fail(message: str, code: int = EXIT_BAD_INPUT) -> int:
    from unskew.base.plain_text import plain

    line = plain(message, LONGEST_MESSAGE)
    alone = processes.world() == 1 or line.startswith("rank ")
    _tell(line if alone else f"rank {processes.rank()} of {processes.world()}: {line}")
    return code


def _tell(line: str) -> None:
    """Say why the command ends; of several processes that have met the first that knows tells it."""
    if processes.failed(line) or processes.world() == 1:
        say(f"unskew: {line}")


def say(line: str) -> None:
    """Write a line to standard error, if it can be written."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)


_SHOWN: set[str] = set()
"""Warnings that were shown: each training of a run may give the same."""


def say_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning of unskew's as one line, once; warnings of libraries are not shown."""
    from unskew.base.plain_text import plain

    shown = plain(message, LONGEST_MESSAGE)
    if category.__module__.startswith("unskew") and processes.is_writer() and shown not in _SHOWN:
        _SHOWN.add(shown)
        say(f"unskew: {shown}")


def entry() -> None:
    """Run the console script."""
    warnings.showwarning = say_warning
    # Threads of PyTorch that wait must not spin on the cores of ours, which share the members of an ensemble.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Modules are hundreds of thousands of objects and no garbage: to look for it less often saves a tenth.
    gc.set_threshold(COLLECT_EVERY)
    signals.let_readers_leave()
    signals.listen()
    code = main()
    # Python takes a moment to end, in which a signal would be a traceback.
    signals.ignore()
    # Nor is it looked for at the end, when the system takes all memory back at once; but DuckDB would tell of
    # everything that is left of it.
    if "duckdb" not in sys.modules:
        gc.freeze()
    sys.exit(code)
