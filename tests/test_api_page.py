"""Every public name has a docstring and one page of the site, and references in docstrings lead there."""

from __future__ import annotations

import importlib
import re

import make_api
import pytest
from public_names import SECTIONS, names_of

import unskew as us
from unskew.cli.app import VERBS


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return make_api.pages()


def test_every_public_name_says_what_it_is():
    silent = [
        f"{module}.{name}"
        for module in SECTIONS
        for name in importlib.import_module(module).__all__
        if not make_api.described(module, name)
    ]
    assert silent == []


@pytest.mark.parametrize("module", SECTIONS)
def test_every_public_name_is_in_the_table_of_its_module_and_has_a_page(module: str, pages):
    table = pages[f"{module}.module.md"]
    rows = re.findall(r"^\| \[`(\w+)[(`].*?\]\((\S+)\) \|", table, re.MULTILINE)
    assert [name for name, _ in rows] == names_of(module)
    assert {file for _, file in rows} <= set(pages)


def test_a_thing_that_two_modules_export_is_described_once(pages):
    assert us.Platt is us.calibration.Platt
    assert "unskew.Platt.rst" in pages
    assert "unskew.calibration.Platt.rst" not in pages
    assert "(unskew.Platt.rst)" in pages["unskew.calibration.module.md"]
    told = [line for text in pages.values() for line in text.splitlines() if line.startswith(".. auto")]
    assert len(told) == len(set(told))


def test_every_page_of_a_name_is_in_the_contents_of_one_module(pages):
    listed = [
        file
        for module in SECTIONS
        for file in re.findall(r"^\S+ <(\S+)>$", pages[f"{module}.module.md"], re.MULTILINE)
    ]
    assert sorted(listed) == sorted(name for name in pages if name.endswith(".rst"))


def test_every_verb_is_on_the_page_with_its_options(pages):
    page = pages["command-line.md"]
    for verb in VERBS:
        assert f"\n## `unskew {verb}`\n" in page
    assert "Usage: unskew audit [OPTIONS]" in page
    assert "--tolerance" in page


def test_constants_and_packages_that_are_called_have_their_text_on_the_page(pages):
    assert ".. py:data:: METHODS" in pages["unskew.METHODS.rst"]
    assert ".. py:function:: run(config" in pages["unskew.run.rst"]
    assert ".. py:function:: audit(data, **options)" in pages["unskew.audit.rst"]
