"""unskew: honest propensities and debiased conversion models for recommenders.

Names are loaded when they are first used, so importing the package stays light (no torch). ``__init__.pyi``
lists them.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_MODULE_OF = {
    alias.name: str(line.module)
    for line in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(line, ast.ImportFrom)
    for alias in line.names
}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'unskew' has no attribute {name!r}")
    if _MODULE_OF[name] == __name__:  # A module of unskew itself.
        return import_module(f"{__name__}.{name}")
    found = getattr(import_module(_MODULE_OF[name]), name)
    # ``run`` is the package too, which is callable, so that it is the same thing however it is reached.
    return globals().get(name, found)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
