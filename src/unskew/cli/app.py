"""The application and its verbs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from unskew import __version__
from unskew.base import processes
from unskew.base.errors import ParameterError
from unskew.cli.audit import audit
from unskew.cli.compare import compare
from unskew.cli.export import export
from unskew.cli.init import init
from unskew.cli.make_data import make_data
from unskew.cli.methods import methods
from unskew.cli.monitor import monitor
from unskew.cli.plan_random import plan_random
from unskew.cli.reproduce import reproduce
from unskew.cli.run import add_run
from unskew.cli.score import score
from unskew.cli.serve import serve
from unskew.cli.settings import config
from unskew.cli.study import study
from unskew.cli.verb import add_verb
from unskew.cli.weights import weights


class Verbs(TyperGroup):
    """The list of verbs, as plain text: rich takes a third of the command's time to load."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "rich_markup_mode": None})


app = typer.Typer(
    name="unskew",
    cls=Verbs,
    help="Honest propensities and debiased conversion models for recommenders.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(show: bool) -> None:
    if show:
        print(f"unskew {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    with_: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="FILE.py",
            help="Run this file first, to register your own method, calibrator, learner or dataset.",
        ),
    ] = None,
) -> None:
    """Honest propensities and debiased conversion models for recommenders."""
    verb = context.invoked_subcommand
    if processes.world() > 1 and verb != "run":
        raise ParameterError(
            f"unskew {verb} is the work of one process, and torchrun started {processes.world()}",
            remedy="start it without torchrun"
            + ("; for larger data use DuckDB or Spark" if verb in ("audit", "weights", "score") else ""),
        )
    if with_ and verb == "serve":
        # For the process that makes models ready: the one that serves loads no torch.
        context.obj = tuple(with_)
    elif with_:
        from unskew.base.own_code import load_own_code

        for path in with_:
            load_own_code(path)


add_verb(app, init)
add_run(app)
OTHERS: tuple[Callable[..., Any], ...] = (
    *(audit, monitor, weights, score, export, serve, compare, plan_random),
    *(methods, config, make_data, reproduce, study),
)
for verb in OTHERS:
    add_verb(app, verb)

command = typer.main.get_command(app)
"""The verbs and their options as they are run: made once, since that takes longer than to read a command."""
