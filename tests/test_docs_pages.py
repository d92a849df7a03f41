"""Every link leads somewhere, and the README names what there is; test_examples.py runs what pages show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import unskew as us
from unskew.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s#]+)[^)]*\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert missing == []


def test_every_page_can_be_reached_from_the_map():
    seen, waiting = set(), [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            waiting += [page.parent / link for link in LINK.findall(page.read_text(encoding="utf-8"))]
    assert {page for page in PAGES if page.parent.name != ROOT.name} <= seen


def test_the_readme_names_every_verb():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for verb in app.registered_commands:
        assert f"unskew {verb.name or verb.callback.__name__}" in text


def test_every_dataset_has_a_section():
    text = (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")
    assert [name for name in us.DATASETS if f"\n## `{name}`" not in text] == []
