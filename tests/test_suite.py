"""The suite itself: it can be collected wherever the library can be used."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

TESTS = Path(__file__).parent
TOOLS = {"pytest", "pytest_xdist", "pytest_randomly", "hypothesis", "ruff", "mypy", "torch", "safetensors"}
"""What runs the suite. Without hypothesis, files that draw are left out (``conftest.py``)."""

OF_NAMED_TUPLES = {"_fields", "_replace"}


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
    extras = packages([each for extra in project["optional-dependencies"].values() for each in extra])
    optional = extras - TOOLS - packages(project["dependencies"]) - {project["name"]}
    assert {"pandas", "polars", "netcal", "betacal", "venn_abers", "onnx", "duckdb", "starlette"} <= optional
    wrong = {str(file.relative_to(TESTS)): at_import(file) & optional for file in TESTS.rglob("*.py")}
    assert not {file: found for file, found in wrong.items() if found}, "use pytest.importorskip"


def private_names(file: Path) -> list[str]:
    """Where a file reads a name of the library that begins with an underscore."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in (
            "self",
            "super()",
            "cls",
            "os",
            "sys",
        ):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("unskew"):
            names = [*str(node.module).split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Constant) and re.fullmatch(r"unskew(\.\w+)+", str(node.value)):
            names = str(node.value).split(".")
        else:
            continue
        found += [
            f"{file.relative_to(TESTS)}:{node.lineno} {name}"
            for name in names
            if re.match(r"_[a-zA-Z]", name) and name not in (*OF_NAMED_TUPLES, "_repr_html_")
        ]
    return found


def test_no_test_reads_a_private_name():
    assert not [each for file in sorted(TESTS.rglob("*.py")) for each in private_names(file)]


def test_every_package_has_fast_tests_too():
    """``make times`` writes ``slow.json``; tests that are gone may stay in it."""
    slow = json.loads((TESTS / "slow.json").read_text(encoding="utf-8"))
    for package in (path.parent.name for path in (TESTS.parent / "src/unskew").glob("*/__init__.py")):
        own = {f"tests/{package}/{file.name}": file for file in (TESTS / package).glob("*.py")}
        names = {
            f"{key}::{name}"
            for key, file in own.items()
            for name in re.findall(r"def (test_\w+)\(", file.read_text(encoding="utf-8"))
        }
        assert not names or names - set(slow), f"{package} has no fast test"
