"""The walks of the architecture page can be walked."""

from __future__ import annotations

import re

import pytest
from crossed import fit_of_ips
from import_graph import SOURCE, imported_files

TEXT = (SOURCE.parents[1] / "docs" / "reference" / "architecture.md").read_text(encoding="utf-8")
WALKS = dict(re.findall(r"^### (.+)\n\n((?:\d+\. .+\n)+)", TEXT, re.MULTILINE))


def test_there_are_three_walks():
    assert [title.strip("`").split("(")[0] for title in WALKS] == ["us.IPS", "unskew run", "unskew audit"]


@pytest.mark.parametrize("walk", WALKS)
def test_each_file_of_a_walk_is_imported_by_one_above_it_and_none_comes_twice(walk):
    files = [SOURCE / name for name in re.findall(r"^\d+\. `([\w/]+\.py)`", WALKS[walk], re.MULTILINE)]
    assert len(files) == WALKS[walk].count("\n"), "one file a line"
    assert len(files) == len(set(files))
    reached = {files[0]}
    for file in files:
        assert file.is_file()
        assert file in reached, f"{file.relative_to(SOURCE)} is not imported by a file above it"
        reached |= imported_files(file)


def test_a_fit_is_followed_in_six_files():
    (fit,) = (steps for walk, steps in WALKS.items() if ".fit(" in walk)
    assert fit.count("\n") <= 6


def test_a_fit_executes_no_more_files_than_the_page_says():
    """What imports execute is left out (tools/crossed.py)."""
    (most,) = re.findall(r"^\| `us\.IPS\(\)\.fit`.*\| (\d+) \|$", TEXT, re.MULTILINE)
    assert len(fit_of_ips()) <= int(most)
