"""Compiled functions work where nothing can be kept."""

from __future__ import annotations

import importlib
import os
import sys
from types import SimpleNamespace

import numba
import pytest

from unskew import compiled


def twice(x):
    return 2 * x


def test_without_a_place_to_keep_it_a_function_is_compiled_anew(monkeypatch):
    asked = []

    def njit(*, cache=False, **options):
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function 'twice': no locator available")
        return numba.njit(**options)

    monkeypatch.setattr(compiled, "njit", njit)
    made = compiled.compiled(error_model="numpy")(twice)
    assert asked == [True, False]
    assert made(21) == 42


@pytest.mark.parametrize("value", [1, 2.5])
def test_otherwise_it_is_the_same_function(value):
    assert compiled.compiled()(twice)(value) == twice(value)


def test_one_process_at_a_time_writes_to_the_cache(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    saved = []

    def save(key, data):
        with open(tmp_path / "cache" / ".lock") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        saved.append((key, data))

    cache = SimpleNamespace(save_overload=save)
    made = SimpleNamespace(_cache=cache, stats=SimpleNamespace(cache_path=str(tmp_path / "cache")))
    compiled.save_one_at_a_time(made)
    cache.save_overload("int64", "code")
    assert saved == [("int64", "code")]


@pytest.mark.parametrize("missing", ["locks", "rights"])
def test_without_locks_it_is_saved_as_numba_does(tmp_path, monkeypatch, missing):
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / "cache").mkdir()
    if missing == "rights":
        # A folder in its place cannot be opened, whoever asks.
        (tmp_path / "cache" / ".lock").mkdir()
    else:

        def flock(file, kind):
            raise OSError("no locks here")

        monkeypatch.setattr(fcntl, "flock", flock)
    saved = []
    cache = SimpleNamespace(save_overload=lambda *given: saved.append(given))
    made = SimpleNamespace(_cache=cache, stats=SimpleNamespace(cache_path=str(tmp_path / "cache")))
    compiled.save_one_at_a_time(made)
    cache.save_overload("int64", "code")
    assert saved == [("int64", "code")]


PAIRS = """
from typing import NamedTuple
from unskew.compiled import compiled

class {name}(NamedTuple):
    left: float
    right: float

@compiled()
def total(pair):
    return pair.left {sign} pair.right

def of(*values):
    return total({name}(*values))
"""


def test_what_an_older_version_of_the_file_left_is_taken_away(tmp_path, monkeypatch):
    file = tmp_path / "pairs_of_a_test.py"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def loaded(**parts):
        compiled.drop_stale.cache_clear()
        sys.modules.pop(file.stem, None)
        file.write_text(PAIRS.format(**parts))
        importlib.invalidate_caches()
        return importlib.import_module(file.stem)

    assert loaded(name="Pair", sign="+").of(1.0, 2.0) == 3.0
    left = sorted(tmp_path.rglob("*.nb*"))
    assert len(left) == 2
    later = loaded(name="Couple", sign="-")
    assert not any(path.exists() for path in left)
    assert later.of(1.0, 2.0) == -1.0
    sys.modules.pop(file.stem)


def test_what_was_compiled_with_a_constant_of_another_file_is_taken_away_when_that_changes(
    tmp_path, monkeypatch
):
    package = tmp_path / "package_of_a_test"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "between.py").write_text("from package_of_a_test.limits import LARGEST\n")
    (package / "loops.py").write_text(
        "from package_of_a_test import between\nfrom unskew.compiled import compiled\n"
        "LARGEST = between.LARGEST\n@compiled()\ndef least(x):\n    return min(x, LARGEST)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def loaded(largest=None):
        compiled.drop_stale.cache_clear()
        for name in [name for name in sys.modules if name.startswith(package.name)]:
            del sys.modules[name]
        if largest is not None:
            (package / "limits.py").write_text(f"LARGEST = {largest}\n")
        importlib.invalidate_caches()
        return importlib.import_module(f"{package.name}.loops")

    assert loaded(largest=3.0).least(5.0) == 3.0
    kept = loaded().least
    assert kept(5.0) == 3.0
    assert kept.stats.cache_hits, "nothing has changed"
    assert loaded(largest=4.0).least(5.0) == 4.0


def test_the_files_that_a_compiled_one_takes_constants_and_functions_from():
    from unskew.kernels import neumf_loops

    found = {
        os.path.basename(path) for path in compiled.imported_files(neumf_loops.__file__, "unskew.kernels")
    }
    assert found == {"neumf_loops.py", "compiled.py"}


@pytest.fixture
def kernels(monkeypatch):
    """Where Triton would keep kernels, with a home that the test sets."""
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    monkeypatch.delenv("TRITON_HOME", raising=False)
    removed = []
    monkeypatch.setattr(compiled.atexit, "register", lambda *what, **how: removed.append(what))
    yield removed
    for remove, folder in removed:
        remove(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="modes of folders are those of POSIX")
def test_triton_gets_a_folder_of_the_process_where_the_home_cannot_be_written(monkeypatch, tmp_path, kernels):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(compiled.os, "access", lambda folder, mode: folder != tmp_path)
    compiled.triton_cache()
    folder = os.environ["TRITON_CACHE_DIR"]
    assert os.path.isdir(folder)
    assert not folder.startswith(str(tmp_path))
    assert [where for _, where in kernels] == [folder], "and it is removed at the end"


def test_triton_is_left_alone_where_it_can_write_or_was_told(monkeypatch, tmp_path, kernels):
    monkeypatch.setenv("HOME", str(tmp_path))
    compiled.triton_cache()
    assert "TRITON_CACHE_DIR" not in os.environ
    monkeypatch.setenv("TRITON_CACHE_DIR", "elsewhere")
    compiled.triton_cache()
    assert os.environ["TRITON_CACHE_DIR"] == "elsewhere"
    assert not kernels


def test_a_module_of_an_archive_has_no_time_of_its_own(tmp_path):
    """As in a zip of modules, where numba finds another place for what it keeps."""
    kept = tmp_path / "pairs.total-1.py311.nbi"
    kept.touch()
    compiled.drop_stale(str(tmp_path), str(tmp_path / "modules.zip" / "pairs.py"), "pairs")
    assert kept.exists()
