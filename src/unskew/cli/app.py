"""The application and its verbs, each of which is loaded when it is asked for."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from unskew import __version__
from unskew.base import processes
from unskew.base.errors import ParameterError
from unskew.cli.verb import Verb, verb_of

VERBS = (
    "init", "run", "audit", "monitor", "weights", "score", "export", "serve", "compare", "plan-random",
    "tune", "methods", "config", "make-data", "reproduce", "study",
)  # fmt: skip
"""In the order of the help; each is a function of the module of its name."""


class Application(click.Group):
    """The verbs."""

    def list_commands(self, ctx: click.Context) -> Sequence[str]:  # type: ignore[override]
        """Return the names of the verbs."""
        return VERBS

    def get_command(self, ctx: click.Context | None, name: str) -> click.Command | None:
        """Return a verb by its name."""
        if name not in VERBS:
            near = difflib.get_close_matches(name, VERBS, n=1)
            remedy = f"use {near[0]}" if near else "see unskew --help"
            raise ParameterError(f"there is no verb {name!r}", remedy=remedy)
        plain = name.replace("-", "_")
        found: Any = getattr(import_module(f"unskew.cli.{plain}"), plain)
        return found if isinstance(found, Verb) else verb_of(found, name)


def _version(context: click.Context, _: click.Parameter, show: bool) -> None:
    if show:
        print(f"unskew {__version__}")
        context.exit()


@click.pass_context
def _common(context: click.Context, own_code: Sequence[Path]) -> None:
    verb = context.invoked_subcommand
    if processes.world() > 1 and verb != "run":
        raise ParameterError(
            f"unskew {verb} is the work of one process, and torchrun started {processes.world()}",
            remedy="start it without torchrun"
            + ("; for larger data use DuckDB or Spark" if verb in ("audit", "weights", "score") else ""),
        )
    if own_code and verb == "serve":
        # For the process that makes models ready: the one that serves loads no torch.
        context.obj = tuple(own_code)
    elif own_code:
        from unskew.base.own_code import load_own_code

        for path in own_code:
            load_own_code(path)


command = Application(
    name="unskew",
    help="Honest propensities and debiased conversion models for recommenders.",
    callback=_common,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Show the version.",
        ),
        click.Option(
            ["--with", "own_code"],
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="FILE.py",
            help="Run this file first, to register your own method, calibrator, learner or dataset.",
        ),
    ],
)
"""The command line."""
