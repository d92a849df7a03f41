"""Every link leads somewhere, and the README names what there is; test_examples.py runs what pages show."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import unskew as us
from unskew.cli.app import app
from unskew.registry import METHODS

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
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s#]+)[^)]*\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert missing == []


def test_the_readme_names_every_verb():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for verb in app.registered_commands:
        assert f"unskew {verb.name or verb.callback.__name__}" in text


def test_every_dataset_has_a_section():
    text = (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")
    assert [name for name in us.DATASETS if f"\n## `{name}`" not in text] == []


def test_the_page_of_defaults_says_where_every_parameter_of_a_method_comes_from():
    page = (ROOT / "docs" / "defaults.md").read_text(encoding="utf-8")
    chosen = page.split("## Where each default was chosen")[1]
    # What is no default: the network itself and which fields it reads.
    left_out = {"backbone", "fields"}
    for name, kind in METHODS.built_in.items():
        missing = [each.name for each in fields(kind) if f"`{each.name}`" not in chosen]
        assert set(missing) <= left_out, f"{name}: {missing}"
