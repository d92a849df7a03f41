"""Every link leads somewhere, and the README names what there is; test_examples.py runs what pages show."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import unskew as us
from unskew.base.registry import METHODS
from unskew.cli.app import VERBS

ROOT = Path(__file__).parents[1]
GENERATED = ("_build", "api", "gallery")
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.relative_to(ROOT / "docs").parts[0] not in GENERATED
    ),
]
NAME = re.compile(r"(?<![\w./@-])(?:us|unskew)(?:\.[A-Za-z_]\w*)+")
"""A dotted name of the library, as users write it after ``import unskew as us``."""
RESOLVE = """
import json, sys
from importlib import import_module
from importlib.util import find_spec
import unskew

def is_module(path):
    try:
        return find_spec(path) is not None
    except ModuleNotFoundError:
        return False

def resolve(name):
    first, *parts = name.split(".")
    if first == "us":  # As on a fresh import: what other names have imported meanwhile does not count.
        thing = unskew.__getattr__(parts.pop(0))
    else:
        path = "unskew"
        while parts and is_module(f"{path}.{parts[0]}"):
            path = f"{path}.{parts.pop(0)}"
        thing = import_module(path) if parts else None
    for part in parts:
        thing = getattr(thing, part)

missing = []
for name in json.load(sys.stdin):
    try:
        resolve(name)
    except AttributeError as error:
        missing.append(f"{name}: {error}")
print(json.dumps(missing))
"""
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s#]+)[^)]*\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert missing == []


def test_every_dotted_name_of_pages_and_docstrings_is_there_on_a_fresh_import():
    texts = [page.read_text(encoding="utf-8") for page in PAGES if page.name != "CHANGELOG.md"]
    for file in (ROOT / "src").rglob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        texts += [ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented)]
    names = sorted({name for text in texts for name in NAME.findall(text)})
    assert {"us.metrics.wce", "us.calibration.CalibratedClassifier", "unskew.base.errors.HeldOutWarning"} < {
        *names
    }
    command = [sys.executable, "-c", RESOLVE]
    run = subprocess.run(command, input=json.dumps(names), capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == []


def test_the_readme_names_every_verb():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for verb in VERBS:
        assert f"unskew {verb}" in text


def test_every_dataset_has_a_section():
    text = (ROOT / "docs" / "reference" / "datasets.md").read_text(encoding="utf-8")
    assert [name for name in us.DATASETS if f"\n## `{name}`" not in text] == []


def test_the_page_of_defaults_says_where_every_parameter_of_a_method_comes_from():
    page = (ROOT / "docs" / "explanation" / "defaults.md").read_text(encoding="utf-8")
    chosen = page.split("## Where each default was chosen")[1]
    # What is no default: the network itself and which fields it reads.
    left_out = {"learner", "fields"}
    for name, kind in METHODS.built_in.items():
        missing = [each.name for each in fields(kind) if f"`{each.name}`" not in chosen]
        assert set(missing) <= left_out, f"{name}: {missing}"
