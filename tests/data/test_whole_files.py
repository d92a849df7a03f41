"""Files and folders are whole or not there; TOML and JSON say what they were given."""

from __future__ import annotations

import json
import math
import os
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.base.errors import RunFolderError
from unskew.base.files import (
    AUDIT,
    RUN,
    check_file,
    check_place,
    check_target,
    whole_file,
    whole_folder,
    write_json,
)
from unskew.base.toml_text import to_toml

OURS = 'unskew = "1.0"\nformat = 1\n'


class TestWholeFolder:
    def test_the_earlier_run_comes_back_where_the_last_move_fails(self, tmp_path, monkeypatch):
        target = tmp_path / "run"
        target.mkdir()
        (target / "config.toml").write_text(OURS)
        rename = os.rename

        def fails_for_the_new_one(path, to):
            if "partial" in path.name:
                raise OSError("disk full")
            return rename(path, to)

        monkeypatch.setattr(os, "rename", fails_for_the_new_one)

        def replace():
            with whole_folder(target, overwrite=True) as beside:
                (beside / "config.toml").write_text("later")

        with pytest.raises(OSError, match="disk full"):
            replace()
        assert (target / "config.toml").read_text() == OURS
        assert [path.name for path in tmp_path.iterdir()] == ["run"]

    @pytest.mark.parametrize(
        ("kind", "content", "further", "told"),
        [
            (RUN, "x = 1", [], "with other things in it"),
            (RUN, "not TOML at all", [], "with other things in it"),
            (RUN, OURS, ["notes.txt"], "'notes.txt' which does not belong to it"),
            (AUDIT, "[]", [], "with other things in it"),
            (AUDIT, '{"healthy": true}', [], "with other things in it"),
        ],
    )
    def test_what_is_not_ours_is_never_replaced(self, tmp_path, kind, content, further, told):
        (tmp_path / kind.marker).write_text(content)
        for name in further:
            (tmp_path / name).write_text("precious")
        with pytest.raises(RunFolderError, match=told):
            check_target(tmp_path, overwrite=True, kind=kind)

    def test_a_link_stays_one_and_what_it_leads_to_is_replaced(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "real" / "config.toml").write_text(OURS)
        (tmp_path / "link").symlink_to("real")
        with whole_folder(tmp_path / "link", overwrite=True) as beside:
            (beside / "config.toml").write_text("later")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real" / "config.toml").read_text() == "later"
        assert {path.name for path in tmp_path.iterdir()} == {"link", "real"}

    def test_a_place_that_cannot_be_written_is_told(self, tmp_path):
        (tmp_path / "notes").write_text("mine")
        with pytest.raises(RunFolderError, match=r"cannot write into .*notes"):
            check_target(tmp_path / "notes" / "deep" / "run", overwrite=False)


class TestWholeFile:
    def test_a_link_stays_one_and_what_it_leads_to_is_replaced(self, tmp_path):
        (tmp_path / "real.txt").write_text("earlier")
        (tmp_path / "link.txt").symlink_to("real.txt")
        with whole_file(tmp_path / "link.txt") as beside:
            beside.write_text("later")
        assert (tmp_path / "link.txt").is_symlink()
        assert (tmp_path / "real.txt").read_text() == "later"

    def test_an_error_of_another_file_is_not_made_one_of_the_target(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="input"), whole_file(tmp_path / "out.txt"):
            (tmp_path / "input").read_text()


def test_a_device_takes_it_and_a_full_one_is_told():
    write_json(Path(os.devnull), [1])
    assert Path(os.devnull).is_char_device()
    if not Path("/dev/full").exists():
        pytest.skip("the system has no /dev/full")
    with pytest.raises(RunFolderError, match="/dev/full: cannot be written: No space left"):
        write_json(Path("/dev/full"), [1])


def test_json_has_no_nan(tmp_path):
    write_json(tmp_path / "x.json", {"a": math.nan, "b": [1.0, -math.inf, (np.float64("nan"), 2)], 3: True})
    assert json.loads((tmp_path / "x.json").read_text()) == {
        "a": None,
        "b": [1.0, None, [None, 2]],
        "3": True,
    }


texts = st.text(st.characters(codec="utf-8"), max_size=8)
values = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | texts
    | st.lists(st.integers(), max_size=3),
    lambda inner: st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(texts, values, max_size=4))
def test_toml_reads_back_as_it_was_written(table):
    assert tomllib.loads(to_toml(table)) == table


def test_toml_takes_numpy_numbers_paths_tuples_and_none(tmp_path):
    told = {
        "a": np.float64(0.1),
        "b": np.int64(3),
        "c": np.bool_(True),
        "d": (1, 2),
        "e": None,
        "f": tmp_path,
    }
    expected = {"a": 0.1, "b": 3, "c": True, "d": [1, 2], "e": "none", "f": str(tmp_path)}
    assert tomllib.loads(to_toml(told)) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("~", r"~: '~' was not expanded by the shell\. To fix: write \$HOME in its place"),
        ("~/out", r"~/out: '~' was not expanded by the shell"),
        ("--json=x", "--json=x: looks like an option, not like a file"),
    ],
)
def test_an_output_that_nobody_means_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for check in (check_file, check_place):
        with pytest.raises(RunFolderError, match=message):
            check(Path(name))
    assert list(tmp_path.iterdir()) == []
    check_file(tmp_path / "~")
