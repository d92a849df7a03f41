"""A study's cells are made again when any code of the user's own changes that they rest on."""

from __future__ import annotations

import importlib
import sys

import pytest

import unskew as us
from unskew.debias import METHODS
from unskew.own_code import load_own_code
from unskew.study.results import described, source_hash

FILES = {
    "my_method.py": """
from dataclasses import dataclass
from typing import ClassVar
import unskew as us
from base_of_mine import Base
import package_of_mine.inner
POWER = 0.5

def helper(p):
    from late_of_mine import OFFSET
    return p ** POWER + OFFSET

@us.register
@dataclass(kw_only=True)
class Mine(Base):
    name: ClassVar[str] = "mine-of-tests"
""",
    "base_of_mine.py": """
from dataclasses import dataclass
import unskew as us
from constants_of_mine import SCALE

@dataclass(kw_only=True)
class Base(us.IPS):
    pass
""",
    "constants_of_mine.py": "SCALE = 1\n",
    "late_of_mine.py": "OFFSET = 0\n",
    "package_of_mine/__init__.py": "",
    "package_of_mine/inner.py": "from .deeper import DEPTH\n",
    "package_of_mine/deeper.py": "DEPTH = 1\n",
    "unrelated_of_mine.py": "X = 1\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    yield tmp_path
    _forget()


def _forget() -> None:
    if "mine-of-tests" in METHODS:
        del METHODS["mine-of-tests"]
    for name in [each for each in sys.modules if "_of_mine" in each or each == "with_my_method"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def key(folder) -> str:
    """As another process would have it."""
    _forget()
    load_own_code(folder / "my_method.py")
    return described(METHODS["mine-of-tests"]())["source"]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("my_method.py", "POWER = 0.5", "POWER = 0.7"),
        ("my_method.py", "return p **", "return 2 * p **"),
        ("base_of_mine.py", "pass", "extra: int = 1"),
        ("constants_of_mine.py", "SCALE = 1", "SCALE = 2"),
        ("late_of_mine.py", "OFFSET = 0", "OFFSET = 3"),
        ("package_of_mine/inner.py", "import DEPTH", "import DEPTH as D"),
        ("package_of_mine/deeper.py", "DEPTH = 1", "DEPTH = 2"),
        ("package_of_mine/__init__.py", "", "Y = 1\n"),
    ],
)
def test_the_key_changes_with_whatever_the_method_rests_on(folder, file, old, new):
    before = key(folder)
    assert key(folder) == before, "and with nothing else"
    path = folder / file
    path.write_text(path.read_text().replace(old, new, 1) if old else new, encoding="utf-8")
    assert key(folder) != before


def test_the_key_does_not_change_with_what_it_does_not_rest_on(folder):
    before = key(folder)
    (folder / "unrelated_of_mine.py").write_text("X = 2\n", encoding="utf-8")
    assert key(folder) == before


def test_the_packages_own_methods_have_no_source_in_their_key():
    assert "source" not in described(us.IPS())


def test_a_class_without_a_file_is_known_by_its_own_source():
    made: dict[str, type] = {}
    exec("class Typed:\n    pass\n", {"__name__": "nowhere_of_mine"}, made)
    assert source_hash(made["Typed"]) == source_hash(made["Typed"])
    other: dict[str, type] = {}
    exec("class Other:\n    pass\n", {"__name__": "nowhere_of_mine"}, other)
    assert source_hash(made["Typed"]) != source_hash(other["Other"])
