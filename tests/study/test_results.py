"""A study's cells are made again when the file of a user's own method changes."""

from __future__ import annotations

import sys

import pytest

from unskew.base.own_code import load_own_code
from unskew.debias import METHODS
from unskew.study.results import described, source_hash

METHOD = """
from dataclasses import dataclass
from typing import ClassVar
import unskew as us
POWER = 0.5

@us.register
@dataclass(kw_only=True)
class Mine(us.IPS):
    name: ClassVar[str] = "mine-of-tests"
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "my_method.py"
    path.write_text(METHOD, encoding="utf-8")
    yield path
    _forget()


def _forget() -> None:
    if "mine-of-tests" in METHODS:
        del METHODS["mine-of-tests"]
    sys.modules.pop("with_my_method", None)


def key(file) -> str:
    """Return the digest of the method's code, as another process would have it."""
    _forget()
    source_hash.cache_clear()
    load_own_code(file)
    return described(METHODS["mine-of-tests"]())["source"]


def test_the_key_changes_with_the_file_of_the_method_and_with_nothing_else(file):
    before = key(file)
    file.with_name("beside.py").write_text("X = 2\n", encoding="utf-8")
    assert key(file) == before
    file.write_text(METHOD.replace("0.5", "0.7"), encoding="utf-8")
    assert key(file) != before
