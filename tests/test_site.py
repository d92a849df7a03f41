"""The site: every page has one place in its contents, anchors exist, and a dead link would be found."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import check_site
import pytest

from test_docs_pages import GENERATED, PAGES, ROOT

DOCS = ROOT / "docs"
TREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)
SITE_PAGES = [page for page in PAGES if page.is_relative_to(DOCS)]


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def listed(page: Path) -> list[Path]:
    """The pages in the contents of a page; a star stands for all that lie beside it."""
    found = []
    for tree in TREE.findall(page.read_text(encoding="utf-8")):
        for line in tree.splitlines():
            if line and not line.startswith(":"):
                file = re.sub(r"^.*<(.+)>$", r"\1", line) + ".md"
                beside = page.parent.glob(file) if "*" in file else [(page.parent / file).resolve()]
                found += [each for each in beside if each != page]
    return [each for each in found if each.relative_to(DOCS).parts[0] not in GENERATED]


def anchors(page: Path) -> set[str]:
    """What GitHub and MyST make of the headings."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


def test_every_page_has_one_place_in_the_contents():
    places = [each for page in SITE_PAGES for each in listed(page)]
    assert sorted(places) == sorted(page for page in SITE_PAGES if page != DOCS / "index.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_anchor_is_a_heading(page: Path):
    links = re.findall(r"\]\((?!https?:)([^)\s#]*)#([^)\s]+)\)", without_code(page))
    missing = [
        f"{file}#{anchor}"
        for file, anchor in links
        if anchor not in anchors((page.parent / file).resolve() if file else page)
    ]
    assert missing == []


def test_a_page_that_is_written_elsewhere_is_not_written_twice():
    for page in ("changelog", "contributing"):
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert f"```{{include}} ../{page.upper()}.md" in text
        assert len(text.splitlines()) < 10


def write(folder: Path, **pages: str) -> Path:
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('<a href="gone.html">', "index.html: gone.html: no such file"),
        ('<a href="index.html#gone">', "index.html: index.html#gone: no such anchor"),
        ('<a href="#gone">', "index.html: #gone: no such anchor"),
        ('<img src="gone.png">', "index.html: gone.png: no such file"),
        ('<script src="https://a.org/b.js">', "index.html: https://a.org/b.js: loaded from a network"),
        ('<link rel="stylesheet" href="//a.org/b.css">', "index.html: //a.org/b.css: loaded from a network"),
    ],
)
def test_a_fault_is_found(tmp_path, text, fault):
    assert check_site.faults(write(tmp_path, index=text)) == [fault]


@pytest.mark.hostile
def test_the_site_is_built_without_a_warning(tmp_path):
    """``make docs`` without the gallery's runs: minutes, and only where the extra ``docs`` is installed."""
    for package in ("myst_parser", "pydata_sphinx_theme", "sphinx_design", "sphinx_gallery", "ziamath"):
        pytest.importorskip(package)
    for folder in ("docs", "examples"):
        ignored = shutil.ignore_patterns(*GENERATED)
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    for file in ROOT.glob("*.md"):
        shutil.copy(file, tmp_path)
    site = tmp_path / "site"
    build = [sys.executable, "-m", "sphinx", "--quiet", "-W", "--keep-going", "-D", "plot_gallery=0"]
    done = subprocess.run([*build, tmp_path / "docs", site], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert check_site.faults(site) == []
