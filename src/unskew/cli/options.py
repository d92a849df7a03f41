"""Options that several verbs have, and ``--option KEY=VALUE``, read as a dataset's loader expects it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from unskew.base.errors import ParameterError
from unskew.base.settings import option

OUTPUT = "Output"

Clip = float | Literal["auto"]
JsonFile = Annotated[
    Path | None, option(None, "Write the figures to this file too.", flag="--json", group=OUTPUT)
]
LogJson = Annotated[
    Path | None,
    option(None, "Append the progress to this file, a JSON object a line.", shown=False, group=OUTPUT),
]
Device = Annotated[str, option("auto", "auto, cpu, cuda or cuda:1.", shown=False)]
Seed = Annotated[int, option(0, "Seed of everything that is random.", shown=False, ge=0, le=2**32 - 1)]
Rows = Annotated[
    tuple[str, ...],
    option((), "CSV, Parquet or Arrow: files, folders or globs.", flag="argument", metavar="FILE..."),
]
OutRows = Annotated[
    str,
    option(..., "The Parquet file, or the folder (NAME/), to write.", flag="--out -o", group=OUTPUT),
]
Overwrite = Annotated[bool, option(False, "Replace an earlier output.", group=OUTPUT)]


def write_figures(file: Path | None, figures: Mapping[str, Any]) -> None:
    """Write figures as JSON where ``--json`` asks for them."""
    from unskew.base.files import write_json

    if file is not None:
        write_json(file, figures)


FLAGS = {"name": "--data", "root": "--root", "protocol": "--protocol"}
"""Arguments of every loader that have a flag of their own."""

TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

_KINDS: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a number"}


def loader_options(
    given: Sequence[str], loader: Callable[..., Any], flags: Mapping[str, str] = FLAGS
) -> dict[str, Any]:
    """Return the options as the loader takes them; it refuses names that it does not know itself.

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
        options[name] = _read(name, text, getattr(parameters.get(name), "default", None))
    return options


def _read(name: str, text: str, default: Any) -> Any:
    kind = type(default)
    if kind is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind not in _KINDS:
        return text
    try:
        return TRUTH[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise ParameterError(
            f"--option {name} must be {_KINDS[kind]}, not {text!r}",
            remedy=f"write for example {name}={str(default).lower()}",
        ) from None
