"""Read from the source which module of the library imports which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "unskew"

LAYERS = (
    ("base",),
    ("metrics", "calibration", "theory"),
    ("data",),
    ("kernels",),
    ("learners",),
    ("training",),
    ("propensity", "debias"),
    ("offpolicy", "report", "audit"),
    ("run", "serve"),
    ("study",),
    ("cli",),
)
"""From the bottom up; each may import its own layer and those below."""


_HOMES = {name for names in LAYERS for name in names}


def modules() -> list[Path]:
    """Every module but the package's own ``__init__``, which loads names lazily, and ``__main__``."""
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0][:2] != "__"]


def home_of(path: Path) -> str:
    """Return the package, or the single file, that a module is in."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module, parsed once."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imported(path: Path, *, inside_functions: bool) -> tuple[tuple[str, int], ...]:
    """Names of imported modules and their lines; those for type checking alone are left out."""
    return tuple(_imported(path, inside_functions=inside_functions))


def _imported(path: Path, *, inside_functions: bool) -> Iterator[tuple[str, int]]:
    waiting: list[ast.AST] = [parsed(path)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            if node.module == "unskew":
                yield from (
                    (f"unskew.{each.name}", node.lineno) for each in node.names if each.name in _HOMES
                )
            else:
                yield node.module or "", node.lineno
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif inside_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += ast.iter_child_nodes(node)


def imported_files(path: Path) -> set[Path]:
    """Files of the library that a module's names come from, through whatever exports them."""
    found: set[Path] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "unskew":
            for alias in node.names:
                found |= _origins(str(node.module), alias.name)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "us":
            found |= _origins("unskew", node.attr)
    return found - {path}


def _origins(module: str, name: str) -> set[Path]:
    place = SOURCE.joinpath(*module.split(".")[1:])
    if place.with_suffix(".py").is_file():
        return {place.with_suffix(".py")}
    exports = place / ("__init__.py" if module != "unskew" else "__init__.pyi")
    for node in ast.walk(parsed(exports)):
        if name in _defined(node):
            return {exports}
        if (
            isinstance(node, ast.ImportFrom)
            and node.module != module
            and any(alias.name == name for alias in node.names)
        ):
            return _origins(str(node.module), name)
    if (place / f"{name}.py").is_file():
        return {place / f"{name}.py"}
    # A package under its own name: whatever it exports.
    inner = place / name / "__init__.py"
    return {
        origin
        for node in ast.walk(parsed(inner))
        if inner.is_file() and isinstance(node, ast.ImportFrom) and str(node.module).startswith("unskew.")
        for alias in node.names
        for origin in _origins(str(node.module), alias.name)
    }


def _defined(node: ast.AST) -> list[str]:
    """Return what a statement gives a name to: a function, or constants."""
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    return [ast.unparse(each) for each in node.targets] if isinstance(node, ast.Assign) else []
