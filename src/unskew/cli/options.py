"""Options that several verbs have, the places that verbs read and write, and ``KEY=VALUE`` as options."""

from __future__ import annotations

import inspect
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from unskew.base.errors import ParameterError
from unskew.base.settings import Settings, option
from unskew.cli.verb import flag_of

OUTPUT = "Output"

Clip = float | Literal["auto"]
JsonFile = Annotated[
    Path | None,
    option(None, "Write the figures to this file too.", flag="--json", group=OUTPUT, writes="file"),
]
LogJson = Annotated[
    Path | None,
    option(
        None,
        "Append the progress to this file, a JSON object a line.",
        shown=False,
        group=OUTPUT,
        writes="file",
    ),
]
Device = Annotated[str, option("auto", "auto, cpu, cuda or cuda:1.", shown=False)]
Seed = Annotated[int, option(0, "Seed of everything that is random.", shown=False, ge=0, le=2**32 - 1)]
Rows = Annotated[
    tuple[str, ...],
    option((), "CSV, Parquet or Arrow: files, folders or globs.", flag="argument", metavar="FILE..."),
]
OutRows = Annotated[
    str,
    option(
        ...,
        "The Parquet file, or the folder (NAME/), to write.",
        flag="--out -o",
        group=OUTPUT,
        writes="rows",
    ),
]
Overwrite = Annotated[bool, option(False, "Replace an earlier output.", group=OUTPUT)]


def write_figures(file: Path | None, figures: Mapping[str, Any]) -> None:
    """Write figures as JSON where ``--json`` asks for them."""
    from unskew.base.files import write_json

    if file is not None:
        write_json(file, figures)


def check_outputs(*records: Settings, read: Iterable[str | Path] = (), **folders: Path | None) -> None:
    """Raise if an output of a verb cannot be written there, or would take the place of something else.

    Parameters
    ----------
    records
        The options of the verb, whose fields say what they write. Whether a folder may be written is for
        ``check_target`` to tell.
    read
        Files and folders that the verb reads. No output may be one of them or, where it is a folder, lie
        in it; nor may they lie in a folder that is written.
    folders
        Folders that stand for options that were left out.
    """
    from unskew.base.files import check_file
    from unskew.data.row_files import is_folder

    written = {f"--{name}": path for name, path in folders.items() if path is not None}
    for record in records:
        for name, info in type(record).model_fields.items():
            extra: Any = info.json_schema_extra or {}
            value, kind = getattr(record, name), extra.get("writes")
            if kind and value is not None:
                flag, path = flag_of(name, info), Path(value)
                if kind == "file" or (kind == "rows" and not is_folder(str(value))):
                    check_file(path, f"{flag} {path}")
                written[flag] = path
    outputs = list(written.items())
    for number, (flag, path) in enumerate(outputs):
        for source in map(Path, read):
            if _overlap(path, source):
                raise ParameterError(
                    f"{flag} {path} would change {source}, which is read", remedy=f"give another {flag}"
                )
        for other, taken in outputs[number + 1 :]:
            if _overlap(path, taken):
                raise ParameterError(
                    f"{flag} {path} and {other} {taken} overlap", remedy=f"give another {flag}"
                )


def _overlap(one: Path, other: Path) -> bool:
    """Return whether two paths are the same, or one lies in the other, wherever links lead."""
    if one.exists() and other.exists() and one.samefile(other):
        return True
    real = [Path(os.path.realpath(path)) for path in (one, other)]
    return real[0].is_relative_to(real[1]) or real[1].is_relative_to(real[0])


def table_files(names: Iterable[str]) -> list[Path]:
    """Return the files that tables are read from; an empty name, which would mean all files, is an error."""
    from unskew.data.files import expand_paths

    listed = list(names)
    if not all(listed):
        raise ParameterError("the name of a file is empty", remedy="give a file, a folder or a glob")
    return expand_paths(listed)


def name_of_tables(first: str, otherwise: str) -> str:
    """Return what outputs of some files are called after: the file, or the last folder with a name."""
    from unskew.data.files import GLOB_MARKS

    for step in reversed(Path(first).parts):
        name = step.split(".")[0] if step == Path(first).name else step
        if name.strip("./") and GLOB_MARKS.isdisjoint(name):
            return name
    return otherwise


def run_files(run: Path) -> list[Path]:
    """Return a run folder as something that is read."""
    return [run] if (run / "config.toml").exists() else []


def plain_name(name: str, what: str) -> str:
    """Return a name that may become a folder's; one that leads elsewhere is an error."""
    if name in ("", ".", "..") or any(mark in name for mark in ("/", "\\", "\0")):
        raise ParameterError(f"{what} {name!r} cannot be the name of a folder", remedy="give --out FOLDER")
    return name


def assigned(pairs: Sequence[str], flag: str, example: str) -> dict[str, str]:
    """Read ``KEY=VALUE`` of an option that may be repeated; the last of two with one key counts."""
    values = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise ParameterError(f"{flag} {pair!r} is not KEY=VALUE", remedy=f"write for example {example}")
        values[name.strip()] = text.strip()
    return values


def plain_value(text: str) -> Any:
    """Read a value as TOML, or else as text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return {"True": True, "False": False, "None": "none"}.get(text, text)


KINDS: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a number"}


def loader_options(
    pairs: Sequence[str], loader: Callable[..., Any], flags: Mapping[str, str]
) -> dict[str, Any]:
    """Return ``--option KEY=VALUE`` as a loader takes them; it refuses names that it does not know itself.

    Parameters
    ----------
    loader
        Its defaults tell the kinds of its parameters; a list is parted by commas.
    flags
        Names that must be given by a flag instead.

    Examples
    --------
    >>> from unskew.data.datasets import DATASETS
    >>> loader_options(["n_users=200", "density=.12"], DATASETS["synthetic"], {})
    {'n_users': 200, 'density': 0.12}
    """
    parameters = inspect.signature(loader).parameters
    options: dict[str, Any] = {}
    for name, text in assigned(pairs, "--option", "n_users=200").items():
        if name in flags:
            raise ParameterError(f"--option {name} has a flag of its own", remedy=f"give {flags[name]}")
        default = getattr(parameters.get(name), "default", None)
        value = plain_value(f"0{text}" if text.startswith(".") else text)
        kind = type(default)
        if kind in KINDS:
            if type(value) is not kind and (kind is not float or type(value) is not int):
                raise ParameterError(
                    f"--option {name} must be {KINDS[kind]}, not {text!r}",
                    remedy=f"write for example {name}={str(default).lower()}",
                )
            options[name] = kind(value)
        elif kind is tuple:
            options[name] = tuple(part.strip() for part in text.split(",") if part.strip())
        else:
            options[name] = text
    return options
