"""The code of a user's own that a class rests on, as a hash: its module, its bases', and what they import."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import unskew

NOT_OWN = tuple(
    Path(each).resolve() for name, each in sysconfig.get_paths().items() if "lib" in name and each
)
"""Where Python's own modules and installed packages are: their versions are not a study's to follow."""


@cache
def source_hash(kind: type) -> str:
    """A hash of every file of the user's own on which a class may depend.

    These are the modules of the class and of its bases, and of what these import, in turn, wherever it lies
    outside unskew, Python and the installed packages: a constant, a helper and a base class change what is
    computed as much as the class itself does. Where there is no file (a notebook), the classes' own source.
    """
    modules = [sys.modules[base.__module__] for base in kind.__mro__ if base.__module__ in sys.modules]
    files = _with_imports([module for module in modules if _is_own(module)])
    texts = {hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    texts |= {_own_text(base) for base in kind.__mro__ if _has_no_file(base)}
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()


def _with_imports(modules: list[ModuleType]) -> set[Path]:
    waiting = [(_file_of(module), module.__package__ or "") for module in modules]
    found: set[Path] = set()
    while waiting:
        file, package = waiting.pop()
        if file is None or file in found:
            continue
        found.add(file)
        for name in _imported(file, package):
            module = sys.modules.get(name)
            if module is not None and _is_own(module):
                waiting.append((_file_of(module), module.__package__ or ""))
            elif module is None:
                waiting += [(beside, package) for beside in _beside(file, name)]
    return found


def _imported(file: Path, package: str) -> Iterator[str]:
    """Names of what a file imports, at its top or in a function; a name may be a module's or of one in it."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # It is not imported, or it would have been told.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each for alias in node.names for each in _with_parents(alias.name))
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            home = ".".join([*above, *([node.module] if node.module else [])])
            yield from _with_parents(home)
            yield from (f"{home}.{alias.name}" for alias in node.names)


def _with_parents(name: str) -> Iterator[str]:
    """A module's name, and those of the packages that it is in."""
    parts = name.split(".")
    yield from (".".join(parts[: end + 1]) for end in range(len(parts)))


def _beside(file: Path, name: str) -> Iterator[Path]:
    """Files that a module which is not imported yet would come from."""
    place = file.parent.joinpath(*name.split("."))
    yield from (each for each in (place.with_suffix(".py"), place / "__init__.py") if each.is_file())


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if file and Path(file).suffix == ".py" and Path(file).is_file() else None


def _is_own(module: ModuleType) -> bool:
    file = _file_of(module)
    home = Path(unskew.__file__).resolve().parent
    return file is not None and not any(file.is_relative_to(place) for place in (home, *NOT_OWN))


def _has_no_file(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return kind.__module__ != "builtins" and (module is None or _file_of(module) is None)


def _own_text(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return f"{kind.__module__}.{kind.__qualname__}"
