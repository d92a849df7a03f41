"""The command line: one file a verb. ``--help`` loads no torch; errors are one line and exit code 2."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
INTERRUPTED = "unskew: interrupted; nothing was written. Give the same command to start again."

COLLECT_EVERY = 50_000
"""Objects made between two collections of garbage; with Python's own 700 the modules alone cause hundreds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give the exit code."""
    import typer

    from unskew.cli.app import app
    from unskew.errors import UnskewError

    # typer carries its own click in newer versions and imports it in older ones: the base of its usage
    # errors is reached the same way in both.
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = app(args=given or ["--help"], standalone_mode=False)
    except typer.Exit as done:
        result = done.exit_code
    except (typer.Abort, KeyboardInterrupt):
        result = EXIT_INTERRUPTED
    except usage_error as error:
        message = getattr(error, "format_message", error.__str__)()
        return _fail(f"{message} (unskew --help tells more)")
    except UnskewError as error:
        return _fail(str(error))
    if result == EXIT_INTERRUPTED:
        # typer catches an interrupt itself and gives this code without a word.
        print(INTERRUPTED, file=sys.stderr)
    return result if isinstance(result, int) else 0


def _fail(message: str) -> int:
    print(f"unskew: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_BAD_INPUT


def entry() -> None:
    """The console script."""
    # Modules are hundreds of thousands of objects and no garbage: to look for it less often saves a tenth.
    gc.set_threshold(COLLECT_EVERY)
    code = main()
    # Nor is it looked for at the end, when the system takes all memory back at once.
    gc.freeze()
    sys.exit(code)
