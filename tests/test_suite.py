"""The suite itself: it can be collected wherever the library can be used."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

TESTS = Path(__file__).parent
TOOLS = {"pytest", "pytest_xdist", "pytest_randomly", "hypothesis", "ruff", "mypy"}
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
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls", "os", "sys"):
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
            if re.match(r"_[a-zA-Z]", name) and name not in OF_NAMED_TUPLES
        ]
    return found


def test_no_test_reads_a_private_name():
    assert not [each for file in sorted(TESTS.rglob("*.py")) for each in private_names(file)]


def test_what_is_called_slow_is_there_and_every_package_has_fast_tests_too():
    """``make times`` writes ``slow.json``; names that are gone mean that it was not run for long."""
    slow = json.loads((TESTS / "slow.json").read_text(encoding="utf-8"))
    texts = {file: file.read_text(encoding="utf-8") for file in TESTS.rglob("*.py")}
    defined = {name for text in texts.values() for name in re.findall(r"def (\w+)\(", text)}
    gone = [
        key
        for key in slow
        if not (TESTS.parent / key.partition("::")[0]).exists() or key.rpartition("::")[2] not in defined
    ]
    assert not gone, "run make times"
    for package in (path.parent.name for path in (TESTS.parent / "src/unskew").glob("*/__init__.py")):
        own = [text for file, text in texts.items() if file.parent == TESTS / package]
        tests = sum(text.count("def test_") for text in own)
        called_slow = sum(key.startswith(f"tests/{package}/") and "::test_" in key for key in slow)
        assert not own or called_slow < tests, f"{package} has no fast test"
