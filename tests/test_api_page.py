"""Every public name has a docstring, and the page of all names is that of the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import make_api
import pytest

import unskew as us
from unskew.cli.app import app

DOCS = Path(__file__).parents[1] / "docs"


def test_every_public_name_says_what_it_is():
    silent = [
        f"{module}.{name}"
        for module in make_api.SECTIONS
        for name in importlib.import_module(module).__all__
        if not make_api.described(module, name)
    ]
    assert silent == []


@pytest.mark.parametrize("name", us.__all__)
def test_every_public_name_is_on_the_page(name: str):
    assert re.search(rf"^\| `{name}[(`]", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_every_verb_is_on_the_page():
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    for verb in app.registered_commands:
        assert f"| `unskew {verb.name or verb.callback.__name__}" in page


def test_the_page_is_that_of_the_code():
    written = (DOCS / "api.md").read_text(encoding="utf-8")
    assert written == make_api.page(), "write it again: python docs/make_api.py"


def test_a_name_without_a_docstring_would_be_found(monkeypatch):
    monkeypatch.setattr(us.evaluate, "__doc__", None)
    assert make_api.described("unskew", "evaluate") == ""
