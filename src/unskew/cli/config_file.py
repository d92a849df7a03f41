"""``--config FILE`` and ``--set KEY=VALUE``: options of ``unskew run`` from TOML; the command line wins."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from unskew.base.errors import DataError, ParameterError

if TYPE_CHECKING:
    from unskew.run.run_config import RunConfig

OPTIONS, PARAMETERS = "unskew.options", "unskew.parameters"
"""Where a context keeps those of the file, which ``--option`` and ``--set`` add to."""

OF_FEATURES = ("features", "numeric", "bag", "ignore", "propensity_features", "model_features")
"""Options that are names, parted by commas on the command line; a file may list them."""

NO_VALUE = "none"
"""How TOML says None."""


def defaults_of_file(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options of a file as the defaults of a verb; the callback of ``--config``."""
    if path is None:
        return None
    others = ("config", "set_", "help_all")
    known = {each.name: each for each in context.command.params if each.name not in others}
    table = _read(path)
    context.meta[OPTIONS] = dict(_table(table.pop("options", {}), "options", path))
    context.meta[PARAMETERS] = {
        **_table(table.pop("parameters", {}), "parameters", path),
        **_table(table.pop("set", {}), "set", path),
    }
    defaults: dict[str, Any] = {}
    for name in OF_FEATURES:
        if (given := table.pop(name, context.meta[OPTIONS].pop(name, None))) is not None:
            table[name] = ",".join(given) if isinstance(given, list) else given
    files = context.meta[OPTIONS] if table.get("data") in (None, "files") else {}
    if "train" in files:
        table["data"] = files.pop("train")
    for name in [each for each in files if each in known]:
        table.setdefault(name, files.pop(name))
    if table.get("test", NO_VALUE) == NO_VALUE:
        table.pop("test_is", None)
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known:
            near = difflib.get_close_matches(name, [str(each) for each in known], n=1)
            remedy = f"use {near[0]}" if near else "see unskew run --help-all: every option is a key"
            raise ParameterError(f"there is no option {key!r}", where=str(path), remedy=remedy)
        if isinstance(value, list) and not known[name].multiple:
            raise ParameterError(
                f"{key} is a list", where=str(path), remedy="give one value; a glob for files"
            )
        if value == NO_VALUE and name == "crossfit":
            defaults[name] = 0
        elif value != NO_VALUE or known[name].default == NO_VALUE or name in ("calibrator", "method"):
            defaults[name] = value
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


def _read(path: Path) -> dict[str, Any]:
    """The table of options: that of a run folder, or the whole file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError("there is no such file", where=str(path), remedy="give --config a file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"cannot be read as TOML: {error}", where=str(path), remedy="see what --save-config writes"
        ) from error
    return dict(_table(content.get("run", content), "run", path))


def _table(found: Any, name: str, path: Path) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise DataError(f"{name} is no table", where=str(path), remedy=f"write [{name}] and its keys below")
    return found


def options_of_file(context: typer.Context) -> dict[str, Any]:
    """The loader's options of the file, if there is one; those that are None are left out."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in context.meta.get(OPTIONS, {}).items()
        if value != NO_VALUE
    }


def parameters(context: typer.Context, given: Sequence[str]) -> dict[str, Any]:
    """What ``--set`` gives, each read as TOML or else as text, over what the file has."""
    found = dict(context.meta.get(PARAMETERS, {}))
    for each in given:
        name, equals, text = each.partition("=")
        if not name or not equals:
            raise ParameterError(
                f"--set {each!r} is not KEY=VALUE", remedy="write for example method.learning_rate=0.01"
            )
        found[name.strip()] = _value(text.strip())
    return found


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return {"True": True, "False": False, "None": NO_VALUE}.get(text, text)


def save_config(path: Path, config: RunConfig) -> None:
    """Write all options of a run as ``--config`` reads them."""
    from unskew.base.files import write_text
    from unskew.base.toml_text import to_toml

    write_text(path, to_toml({"run": config.to_dict()}))
