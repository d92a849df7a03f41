"""Loading by name, and leaked cells."""

from __future__ import annotations

import pytest

from unskew.base.errors import DataError, ParameterError
from unskew.data.datasets import DATASETS, load


def test_an_unknown_name_lists_the_names():
    with pytest.raises(
        ParameterError, match=r"unknown dataset 'coats'\. To fix: use coat, or one of synthetic, coat"
    ) as e:
        load("coats")
    assert all(name in str(e.value) for name in DATASETS)


def test_an_unknown_option_lists_the_options():
    with pytest.raises(
        ParameterError, match=r"'synthetic' has no option users\. To fix: its options are n_users, n_"
    ):
        load("synthetic", users=3)


def test_an_unknown_protocol_is_refused():
    with pytest.raises(ParameterError, match="protocol must be 'honest' or 'paper', not 'fair'"):
        load("synthetic", protocol="fair")


@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"synthetic", "impressions", "files"}))
def test_a_dataset_that_is_not_shipped_needs_its_folder(name, tmp_path):
    with pytest.raises(ParameterError, match=rf"'{name}' needs the folder of its files\. To fix: give root="):
        load(name)
    with pytest.raises(DataError, match="nowhere: the folder is missing"):
        load(name, tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"expected .*; found no files\. To fix: "):
        load(name, tmp_path)
    (tmp_path / "note.txt").write_text("hello")
    with pytest.raises(DataError, match=r"; found note\.txt\. To fix: "):
        load(name, tmp_path)
    with pytest.raises(DataError, match=r"note\.txt: the folder is a file, not a folder"):
        load(name, tmp_path / "note.txt")
