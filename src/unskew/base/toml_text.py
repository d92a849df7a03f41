"""TOML of plain values; Python's own library only reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np


def to_toml(table: Mapping[str, Any]) -> str:
    """Return TOML of nested tables of text, numbers, truth values and lists; None is written as ``"none"``.

    Examples
    --------
    >>> print(to_toml({"seeds": [0, 1], "learner": {"name": "mf"}}))
    seeds = [0, 1]
    <BLANKLINE>
    [learner]
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
    # JSON's text is TOML's, but for one control character that JSON lets pass. A file's name may hold bytes
    # that are no text at all, which TOML cannot say.
    known = text.encode("utf-8", errors="replace").decode("utf-8")
    return json.dumps(known, ensure_ascii=False).replace("\x7f", "\\u007f")
