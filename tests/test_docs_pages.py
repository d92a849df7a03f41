"""The guide's examples are true, every link leads somewhere, and the README names what there is."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import unskew as us
from unskew.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s#]+)[^)]*\)")


def test_the_guide_does_what_it_says():
    result = doctest.testfile(str(ROOT / "docs" / "guide.md"), module_relative=False, encoding="utf-8")
    assert result.attempted > 15
    assert result.failed == 0


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


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(code.splitlines()) <= 12, "ten lines, and what parts them"
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), space)
    assert (tmp_path / "model").is_dir()
