"""Files that are whole or not there: written beside and moved into place. And TOML, written plainly."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import RunFolderError

CONFIG = "config.toml"
"""What marks a folder as a run folder."""


def check_target(folder: Path, *, overwrite: bool, marker: str = CONFIG, holds: str = "a run") -> None:
    """An error if a folder of results could not be put there; call it before the long work.

    Parameters
    ----------
    overwrite
        Whether an earlier folder of the same kind may be replaced.
    marker
        The file that tells such a folder from others, which are never replaced.
    holds
        What such a folder holds, for the message.
    """
    parent = folder.resolve().parent
    existing = next(path for path in (parent, *parent.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise RunFolderError(
            f"cannot write into {existing}", where=str(folder), remedy="choose another --out"
        )
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunFolderError("is a file", where=str(folder), remedy="choose another --out")
    if not any(folder.iterdir()):
        return
    if not (folder / marker).is_file():
        raise RunFolderError(
            "is a folder with other things in it", where=str(folder), remedy="choose another --out"
        )
    if not overwrite:
        raise RunFolderError(
            f"holds {holds} already",
            where=str(folder),
            remedy="choose another --out, or give --overwrite (overwrite=True)",
        )


@contextmanager
def whole_folder(
    folder: Path, *, overwrite: bool, marker: str = CONFIG, holds: str = "a run"
) -> Iterator[Path]:
    """A new folder beside the target, moved into its place at the end; nothing is left of a failure."""
    check_target(folder, overwrite=overwrite, marker=marker, holds=holds)
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = folder.parent / f".{folder.name}.partial-{os.getpid()}"
    old = folder.parent / f".{folder.name}.replaced-{os.getpid()}"
    beside.mkdir()
    try:
        yield beside
        if folder.exists():
            folder.rename(old)
        beside.rename(folder)
    except BaseException:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A new file beside the target, moved into its place at the end; nothing is left of a failure."""
    if not path.parent.is_dir():
        raise RunFolderError("its folder does not exist", where=str(path), remedy="create the folder first")
    if path.is_dir():
        raise RunFolderError("is a folder", where=str(path), remedy="give the name of a file")
    beside = path.parent / f".{path.name}.partial-{os.getpid()}"
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Indented JSON; NaN and infinities, which JSON cannot say, become null."""
    with whole_file(path) as beside:
        beside.write_text(json.dumps(_finite(value), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def to_toml(table: Mapping[str, Any]) -> str:
    """TOML of nested tables of text, numbers, truth values and lists; None is written as ``"none"``.

    Examples
    --------
    >>> print(to_toml({"seeds": [0, 1], "backbone": {"name": "mf"}}))
    seeds = [0, 1]
    <BLANKLINE>
    [backbone]
    name = "mf"
    <BLANKLINE>
    """
    lines: list[str] = []
    _write_table(table, (), lines)
    return "\n".join(lines).lstrip("\n") + "\n"


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    nested = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    if path and (plain or not nested):
        lines += ["", f"[{'.'.join(map(_toml_key, path))}]"]
    lines += [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in plain.items()]
    for key, value in nested.items():
        _write_table(value, (*path, key), lines)


def _toml_value(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml_value(inner) for inner in value) + "]"
    if isinstance(value, (int, float)):
        return repr(value)
    return _toml_text(str(value))


def _toml_key(key: str) -> str:
    return key if key.isascii() and key.isidentifier() else _toml_text(key)


def _toml_text(text: str) -> str:
    # JSON's text is TOML's, but for one control character that JSON lets pass.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
