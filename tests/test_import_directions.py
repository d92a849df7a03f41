"""Imports point one way, and what must be light loads no torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import unskew

SOURCE = Path(unskew.__file__).parent

LAYERS = (
    ("errors", "plain_text", "registry", "io", "log", "estimator", "seeds", "progress", "compiled"),
    ("metrics", "calibration", "theory", "datasets"),
    ("backbones",),
    ("training",),
    ("propensity", "debias"),
    ("audit", "evaluation", "export", "offpolicy", "report"),
    ("run",),
    ("study",),
    ("reproduce",),
    ("cli",),
)
"""From the bottom up; each may import its own layer and those below."""

WITHOUT_TORCH = (*LAYERS[0], *LAYERS[1], "audit", "report", "cli")
"""Accept tensors by their duck type, and import torch, if at all, inside a function."""

HEAVY = ("torch", "safetensors")
LAYER_OF = {name: level for level, names in enumerate(LAYERS) for name in names}


def modules() -> list[Path]:
    """Every module but the package's own ``__init__``, which loads names lazily, and ``__main__``."""
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0][:2] != "__"]


def home_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path, *, inside_functions: bool) -> Iterator[tuple[str, int]]:
    """Names of imported modules and their lines; those for type checking alone are left out."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            yield node.module or "", node.lineno
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif inside_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += ast.iter_child_nodes(node)


def test_every_module_has_its_layer():
    assert {home_of(path) for path in modules()} <= set(LAYER_OF), "place the new module in LAYERS"


@pytest.mark.parametrize("home", LAYER_OF)
def test_imports_point_to_the_same_layer_or_below(home):
    wrong = [
        f"{path.relative_to(SOURCE)}:{line} imports {name}"
        for path in modules()
        if home_of(path) == home
        for name, line in imported(path, inside_functions=True)
        if name.startswith("unskew.") and LAYER_OF[name.split(".")[1]] > LAYER_OF[home]
    ]
    assert wrong == []


@pytest.mark.parametrize("home", WITHOUT_TORCH)
def test_what_must_be_light_imports_no_torch(home):
    wrong = [
        f"{path.relative_to(SOURCE)}:{line} imports {name}"
        for path in modules()
        if home_of(path) == home
        for name, line in imported(path, inside_functions=False)
        if name.split(".")[0] in HEAVY
    ]
    assert wrong == []


def test_packages_of_one_layer_have_no_cycles():
    needs: dict[str, set[str]] = {name: set() for name in LAYER_OF}
    for path in modules():
        home = home_of(path)
        for name, _ in imported(path, inside_functions=False):
            if name.startswith("unskew."):
                needs[home].add(name.split(".")[1])
        needs[home].discard(home)
    settled: set[str] = set()
    while ready := {name for name, others in needs.items() if others <= settled and name not in settled}:
        settled |= ready
    assert settled == set(needs), f"these import one another: {set(needs) - settled}"


def test_every_promised_name_is_there():
    for name in unskew.__all__:
        assert getattr(unskew, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Magic'"):
        _ = unskew.Magic
