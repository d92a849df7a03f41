"""Scores of files: streamed in their order, as in memory, with the row of an error."""

from __future__ import annotations

import copy
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import unskew as us
from unskew.base.errors import DataError, ParameterError, RunFolderError
from unskew.base.manifest import write_manifest
from unskew.data import row_files, stream
from unskew.run.scoring import score, score_pairs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model of text ids with a logistic propensity, which reads features where there are some."""
    rng = np.random.default_rng(0)
    pairs = rng.permutation(30 * 20)[:300]
    log = us.Log.from_arrays(
        user=[f"u{number}" for number in pairs // 20],
        item=pairs % 20,
        conversion=(rng.random(300) < 0.4).astype(float),
    )
    folder = tmp_path_factory.mktemp("runs") / "run"
    propensity = us.Propensity(learner=us.Linear(), crossfit=2).fit(log)
    model = us.IPS(learner=us.MF(dim=4), epochs=2).fit(log, propensity=propensity, seeds=2)
    model.save(folder)
    return folder, model, propensity


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(1)
    users = [f"u{number}" for number in rng.integers(0, 30, 500)]
    return pa.table({"user": users, "item": rng.integers(0, 20, 500), "note": np.arange(500)})


@pytest.fixture
def small_batches(monkeypatch):
    """Batches of 64 rows."""
    monkeypatch.setattr(stream, "BATCH_ROWS", 64)
    monkeypatch.setattr(stream, "PIECE_ROWS", 64)


@pytest.fixture
def files(pairs, tmp_path):
    """The pairs in two files."""
    for name, rows in (("a", pairs.slice(0, 300)), ("b", pairs.slice(300))):
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    return [tmp_path / "a.parquet", tmp_path / "b.parquet"]


def test_how_far_members_disagree_is_added_where_it_is_asked_for(run, pairs, files, tmp_path, small_batches):
    folder, model, _ = run
    score_pairs(folder, files, tmp_path / "out.parquet", spread=True, device="cpu")
    found, expected = pq.read_table(tmp_path / "out.parquet"), score(folder, pairs, spread=True, device="cpu")
    asked = pairs.to_pandas()[["user", "item"]]
    low, high = model.predict_interval(asked, level=0.9)
    wanted = {
        "conversion_spread": model.spread(asked),
        "conversion_low": low,
        "conversion_high": high,
    }
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name].to_numpy(), values, rtol=1e-6)
        np.testing.assert_allclose(expected[name].to_numpy(), values, rtol=1e-6)
    assert set(wanted).isdisjoint(score(folder, pairs, device="cpu").column_names)


def test_one_network_has_no_members_to_disagree(run, pairs, tmp_path):
    log = us.load("synthetic", n_users=30, n_items=20, density=0.2).train
    us.Naive(learner=us.MF(dim=2), epochs=1).fit(log, device="cpu").save(tmp_path / "one")
    with pytest.raises(ParameterError, match="one network of naive does not tell"):
        score(tmp_path / "one", {"user": [0], "item": [0]}, spread=True, device="cpu")


def test_scores_in_batches_are_those_in_memory(run, pairs, files, tmp_path, small_batches):
    folder, _, _ = run
    assert score_pairs(folder, files, tmp_path / "out.parquet", device="cpu") == 500
    found, expected = pq.read_table(tmp_path / "out.parquet"), score(folder, pairs, device="cpu")
    assert found.column_names == expected.column_names
    assert found["note"].to_pylist() == list(range(500))
    for name in ("conversion", "conversion_std"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-10)


def test_part_files_hold_the_same_rows(run, files, tmp_path, small_batches, monkeypatch):
    folder, _, _ = run
    monkeypatch.setattr(row_files, "PART_ROWS", 128)
    score_pairs(folder, files, tmp_path / "out.parquet", device="cpu")
    score_pairs(folder, files, f"{tmp_path}/parts/", device="cpu")
    assert len(list((tmp_path / "parts").glob("part-00000-*.parquet"))) == 3
    assert len(list((tmp_path / "parts").glob("part-00001-*.parquet"))) == 2
    assert pq.read_table(tmp_path / "parts").equals(pq.read_table(tmp_path / "out.parquet"))


def test_an_unknown_id_is_named_with_its_file_and_row(run, pairs, tmp_path, small_batches):
    users = pairs["user"].to_pylist()
    users[130] = "nobody"
    pq.write_table(pairs.set_column(0, "user", pa.array(users)), tmp_path / "pairs.parquet")
    folder, _, _ = run
    with pytest.raises(DataError, match=r"pairs\.parquet, column 'user', row 130: user nobody was not seen"):
        score_pairs(folder, tmp_path / "pairs.parquet", tmp_path / "out.parquet", device="cpu")
    assert not (tmp_path / "out.parquet").exists()


@pytest.fixture(scope="module")
def run_by_logistic(tmp_path_factory):
    """A run without features, whose propensity would read them."""
    config = us.Config(
        data="synthetic",
        options={"n_users": 30, "n_items": 20, "density": 0.3},
        propensity="linear",
        learner="mf",
        seeds=1,
        crossfit=2,
        device="cpu",
        parameters={"method.epochs": 2},
    )
    folder = tmp_path_factory.mktemp("runs") / "linear"
    us.run(config).save(folder)
    return folder


@pytest.mark.parametrize("unseen", ["nan", "average"])
def test_strangers_are_to_a_logistic_propensity_what_they_are_to_the_model(run_by_logistic, unseen, tmp_path):
    pq.write_table(pa.table({"user": [0, 999], "item": [1, 2]}), tmp_path / "pairs.parquet")
    out = tmp_path / "out.parquet"
    score_pairs(run_by_logistic, tmp_path / "pairs.parquet", out, unseen=unseen, device="cpu")
    found = pq.read_table(out)
    assert found["unseen_user"].to_pylist() == [False, True]
    for name in ("conversion", "propensity"):
        assert np.isnan(found[name].to_numpy()).tolist() == [False, unseen == "nan"]


def test_weights_beyond_all_numbers_are_refused(run, pairs, tmp_path):
    _, model, _ = run
    wild = us.IPS(learner=us.MF(dim=4), epochs=1).set_params(**model.get_params(deep=False))
    vars(wild).update({**vars(model), "networks_": copy.deepcopy(model.networks_)})
    with torch.no_grad():
        for weight in wild.networks_["prediction"].parameters():
            weight.fill_(3e38)
        wild.networks_["prediction"].get_submodule("user").weight[..., ::2] *= -1
    wild.save(tmp_path / "wild")
    with pytest.raises(RunFolderError, match=r"wild: conversion is NaN for users and items that it knows"):
        score(tmp_path / "wild", pairs, device="cpu")
    with pytest.raises(RunFolderError, match="conversion is NaN"):
        score(tmp_path / "wild", pairs, unseen="nan", device="cpu")


@pytest.mark.parametrize(
    ("place", "value"),
    [(("fields", 0, "name"), {}), (("fields", 1, "share"), []), (("fields", 1, "name"), [[]])],
)
def test_a_schema_of_another_shape_is_damaged(run, pairs, tmp_path, place, value):
    shutil.copytree(run[0], tmp_path / "run")
    schema = json.loads((tmp_path / "run" / "schema.json").read_text())
    (top, number, name) = place
    schema[top][number][name] = value
    (tmp_path / "run" / "schema.json").write_text(json.dumps(schema))
    (tmp_path / "run" / "manifest.json").unlink()
    write_manifest(tmp_path / "run")
    with pytest.raises(RunFolderError, match=r"schema\.json is damaged"):
        score(tmp_path / "run", pairs, device="cpu")
