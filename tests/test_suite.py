"""The suite itself: it can be collected wherever the library can be used."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

TESTS = Path(__file__).parent
TOOLS = {"pytest", "pytest_xdist", "pytest_randomly", "hypothesis", "ruff", "mypy"}
"""What runs the suite. Without hypothesis, files that draw are left out (``conftest.py``)."""


def packages(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", each)[0].replace("-", "_") for each in requirements}


def at_import(file: Path) -> set[str]:
    """Packages that a file imports when it is loaded."""
    found, waiting = set(), list(ast.parse(file.read_text(encoding="utf-8")).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += ast.iter_child_nodes(node)
    return found


def test_a_package_that_only_some_tests_need_is_not_needed_to_collect():
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = packages(project["optional-dependencies"]["test"]) - TOOLS - packages(project["dependencies"])
    assert {"pandas", "polars", "netcal", "betacal", "venn_abers", "onnx", "onnxruntime"} <= optional
    wrong = {str(file.relative_to(TESTS)): at_import(file) & optional for file in TESTS.rglob("*.py")}
    assert not {file: found for file, found in wrong.items() if found}, "use pytest.importorskip"
