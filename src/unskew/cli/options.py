"""Options: which were given, and ``--option KEY=VALUE``, read as the kind that a dataset's loader expects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from unskew.base.errors import ParameterError
from unskew.base.settings import option

OUTPUT = "Output"

Clip = float | Literal["auto"]
JsonFile = Annotated[
    Path | None, option(None, "Write the figures to this file too.", flag="--json", group=OUTPUT)
]
LogFile = Annotated[
    Path | None,
    option(
        None,
        "Append the progress to this file: a JSON object a line, with rows/s, loss, memory.",
        flag="--log-json",
        shown=False,
        group=OUTPUT,
    ),
]
Device = Annotated[str, option("auto", "auto, cpu, cuda or cuda:1.", shown=False)]
Seed = Annotated[int, option(0, "Seed of everything that is random.", shown=False, ge=0, le=2**32 - 1)]
TensorBoardFolder = Annotated[
    Path | None,
    option(
        None,
        "Write losses for TensorBoard into this folder, if it is installed.",
        flag="--tensorboard",
        shown=False,
        group=OUTPUT,
    ),
]
MLflowLog = Annotated[
    bool,
    option(
        False,
        "Log losses to MLflow's active run, if it is installed.",
        flag="--mlflow",
        shown=False,
        group=OUTPUT,
    ),
]
Rows = Annotated[
    tuple[str, ...],
    option((), "CSV, Parquet or Arrow: files, folders or globs.", flag="argument", metavar="FILE..."),
]
OutRows = Annotated[
    str,
    option(
        ...,
        "The Parquet file to write, or a folder (its name ends in /) of part files.",
        flag="--out -o",
        group=OUTPUT,
    ),
]
Overwrite = Annotated[bool, option(False, "Replace an earlier output.", group=OUTPUT)]

FLAGS = {"name": "--data", "root": "--root", "protocol": "--protocol"}
"""Arguments of every loader that have a flag of their own."""

LogJson = Annotated[
    Path | None,
    typer.Option(
        "--log-json",
        help="Append the progress to this file: a JSON object a line, with rows/s, loss, memory.",
    ),
]
TensorBoard = Annotated[
    Path | None, typer.Option(help="Write losses for TensorBoard into this folder, if it is installed.")
]
MLflow = Annotated[
    bool, typer.Option("--mlflow", help="Log losses to MLflow's active run, if it is installed.")
]

TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def clip(text: str) -> float | Literal["auto"]:
    """The value of ``--p-min``: ``auto`` or a number."""
    try:
        return "auto" if text == "auto" else float(text)
    except ValueError:
        raise ParameterError(
            f"--p-min must be auto or a number, not {text!r}", remedy="write --p-min auto, or --p-min 0.01"
        ) from None


_KINDS: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a number"}


def refuse(context: typer.Context, names: Sequence[str], because: str, remedy: str = "leave it out") -> None:
    """An error for the first of some options that was given, though it has no effect ``because``.

    Parameters
    ----------
    names
        Names of parameters of the verb.
    """
    flags = {
        each.name: each.opts[0] if each.opts[0].startswith("-") else each.metavar
        for each in context.command.params
    }
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise ParameterError(f"{flags[name]} has no effect {because}", remedy=remedy)


def is_default(context: typer.Context, name: str) -> bool:
    """Whether an option was given nowhere, neither on the command line nor in a file."""
    source = context.get_parameter_source(name)
    return source is None or source.name == "DEFAULT"


def feature_options(
    context: typer.Context, features: str | None, numeric: str, bag: str, ignore: str
) -> dict[str, Any]:
    """What ``--features``, ``--numeric``, ``--bag`` and ``--ignore`` ask of :func:`unskew.load`."""
    named = {"numeric": names_in(numeric), "bag": names_in(bag)}
    if features is None and not any(named.values()):
        refuse(context, ("ignore",), "without --features auto")
        return {}
    asked: dict[str, Any] = {name: each for name, each in named.items() if each}
    if features is not None:
        asked["features"] = "auto" if features.strip() == "auto" else names_in(features)
    if asked.get("features") == "auto":
        asked["ignore"] = names_in(ignore)
    else:
        refuse(context, ("ignore",), "without --features auto")
    return asked


def names_in(text: str) -> tuple[str, ...]:
    """Names parted by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def loader_options(
    given: Sequence[str], loader: Callable[..., Any], flags: Mapping[str, str] = FLAGS
) -> dict[str, Any]:
    """The options as the loader takes them; a name that it does not know is left for it to refuse.

    Parameters
    ----------
    given
        ``KEY=VALUE`` each; the last of two with one key counts.
    loader
        One of ``DATASETS``; the default of a parameter tells its kind, and a list is parted by commas.
    flags
        Names that must be given by a flag instead.

    Examples
    --------
    >>> from unskew.data.datasets import DATASETS
    >>> loader_options(["n_users=200", "density=.12"], DATASETS["synthetic"])
    {'n_users': 200, 'density': 0.12}
    """
    parameters = inspect.signature(loader).parameters
    options: dict[str, Any] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not name or not equals:
            raise ParameterError(
                f"--option {each!r} is not KEY=VALUE", remedy="write for example n_users=200"
            )
        if name in flags:
            raise ParameterError(f"--option {name} has a flag of its own", remedy=f"give {flags[name]}")
        parameter = parameters.get(name)
        default = None if parameter is None else parameter.default
        if default is None and parameter is not None and "bool" in str(parameter.annotation):
            # It takes more than a truth; what is none is left to it.
            options[name] = TRUTH.get(text.lower(), text)
        else:
            options[name] = _read(name, text, default)
    return options


def _read(name: str, text: str, default: Any) -> Any:
    kind = type(default)
    if kind is tuple:
        return names_in(text)
    if kind not in _KINDS:
        return text
    try:
        return TRUTH[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise ParameterError(
            f"--option {name} must be {_KINDS[kind]}, not {text!r}",
            remedy=f"write for example {name}={str(default).lower()}",
        ) from None
