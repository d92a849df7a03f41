"""Saved models: plain files, whole or not there, and errors that say what is wrong with a folder."""

from __future__ import annotations

import os

import numpy as np
import pytest

import unskew as us
from unskew.base.errors import RunFolderError


@pytest.fixture(scope="module")
def log():
    return us.Log.from_arrays(
        user=["ann", "ann", "bob", "bob", "eve", "eve"],
        item=[10, 20, 10, 30, 20, 30],
        conversion=[1, 0, 0, 1, 0, 0],
        names={"user": "who", "item": "what"},
    )


@pytest.fixture(scope="module")
def model(log):
    return us.IPS(learner=us.MF(dim=2), epochs=2, validation_share=0.2).fit(log, propensity=0.5, seeds=2)


@pytest.fixture
def folder(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


def test_the_folder_holds_plain_files_alone(folder):
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.toml",
        "items.parquet",
        "manifest.json",
        "model.safetensors",
        "schema.json",
        "users.parquet",
    ]
    assert not list(folder.parent.glob(".*")), "nothing is left beside it"


def test_text_ids_names_and_seeds_come_back(folder, model):
    loaded = us.load_model(folder)
    assert loaded.users_.name == "who"
    assert loaded.users_.ids.tolist() == ["ann", "bob", "eve"]
    assert loaded.seeds_ == (0, 1)
    np.testing.assert_array_equal(
        loaded.predict_pairs_each(["eve", "ann"], [10, 30]),
        model.predict_pairs_each(["eve", "ann"], [10, 30]),
    )


@pytest.mark.skipif(os.name != "posix", reason="permissions are of POSIX")
def test_whoever_may_read_one_file_may_read_all(model, tmp_path):
    before = os.umask(0o027)
    try:
        model.save(tmp_path / "model")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()} == {0o640}


def test_numpy_numbers_and_none_come_back_as_parameters(log, tmp_path):
    given = {
        "p_min": np.float64(0.25),
        "epochs": np.int64(1),
        "patience": None,
        "validation_share": np.float32(0),
    }
    us.IPS(learner=us.MF(dim=np.int64(2)), **given).fit(log, propensity=0.5).save(tmp_path / "model")
    params = us.load_model(tmp_path / "model").get_params(deep=False)
    assert {name: params[name] for name in given} == given
    assert params["learner"] == us.MF(dim=2)


def test_a_saved_model_is_replaced_only_on_request(folder, log):
    other = us.Naive(learner=us.MF(dim=3), epochs=1, validation_share=0.2).fit(log)
    with pytest.raises(RunFolderError, match=r"holds a run already.*--overwrite"):
        other.save(folder)
    assert us.load_model(folder).name == "ips"
    other.save(folder, overwrite=True)
    assert us.load_model(folder).name == "naive"
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_method_that_is_not_there_is_told_with_those_that_are(folder):
    with pytest.raises(RunFolderError, match=r"no method 'mrdr'.*use one of ips"):
        us.load_model(folder, "mrdr")
