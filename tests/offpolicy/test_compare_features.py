"""Comparing the models of a run that read features of rows: its folder holds what they are scored by."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from contracts.feature_world import table
from unskew.base.errors import RunFolderError
from unskew.cli import main
from unskew.offpolicy.run_folder import RowScorer, training_log, with_row_features
from unskew.training.saved import SavedFolder


@pytest.fixture(scope="module")
def frame():
    rows = table(3000)
    moments = np.datetime64("2024-05-01T05", "s") + np.arange(len(rows)) * np.timedelta64(7, "m")
    seen = [[f"s{each % 5}"] * (each % 3) for each in range(len(rows))]
    return rows.append_column("at", pa.array(moments)).append_column("seen", pa.array(seen))


@pytest.fixture(scope="module")
def run(frame, tmp_path_factory, undrawn):
    folder = tmp_path_factory.mktemp("run")
    pq.write_table(frame, folder / "log.parquet")
    given = ["--space", "impressions", "--click", "click", "--conversion", "bought", "--learner", "mlp"]
    given += [
        "--method",
        "ips",
        "--features",
        "country,price,tags,position,at,seen,noise",
        "--propensity",
        "mlp",
    ]
    given += ["--seeds", "2", "--crossfit", "2", "--set", "training.epochs=2", "--out", str(folder / "run")]
    assert main(["run", "--data", str(folder / "log.parquet"), *given]) == 0
    return folder / "run"


def test_rows_are_scored_as_those_of_the_log_are(frame, run):
    saved = SavedFolder(run)
    log = training_log(saved, "impressions")
    model = us.load_model(run)
    scorer = with_row_features(model, saved, log)
    assert isinstance(scorer, RowScorer)
    assert {"at.hour", "at.weekday", "seen", "position", "noise"} == scorer.values.keys()
    expected = model.predict_frame_each(frame)
    np.testing.assert_allclose(scorer.predict_each(log), expected, rtol=1e-6)
    some = np.array([17, 3, 2999])
    np.testing.assert_allclose(scorer.predict_each(log.take(some)), expected[:, some], rtol=1e-6)
    assert expected.std() > 0


def test_the_models_of_the_run_are_compared(run, capsys):
    found = us.compare_run(run, metrics=["nll", "auc"])
    assert {"naive", "ips_raw", "ips"} == set(found.estimates)
    assert main(["compare", str(run), "--metric", "nll"]) == 0


def test_a_model_without_features_of_rows_needs_no_such_file(tmp_path, frame):
    pq.write_table(frame, tmp_path / "log.parquet")
    given = ["--space", "impressions", "--click", "click", "--conversion", "bought", "--learner", "mlp"]
    given += ["--features", "country,price", "--propensity", "popularity", "--seeds", "1", "--crossfit", "2"]
    given += ["--set", "training.epochs=1", "--out", str(tmp_path / "run")]
    assert main(["run", "--data", str(tmp_path / "log.parquet"), *given]) == 0
    assert not (tmp_path / "run" / "row_features.parquet").exists()
    assert us.compare_run(tmp_path / "run", metrics=["nll"]).estimates


def test_a_folder_that_lost_the_file_is_named(frame, run, tmp_path):
    import shutil

    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    pq.write_table(pq.read_table(run / "row_features.parquet").slice(1), copy / "row_features.parquet")
    with pytest.raises(RunFolderError, match=r"row_features.parquet"):
        us.compare_run(copy)
    (copy / "row_features.parquet").unlink()
    with pytest.raises(RunFolderError, match=r"row_features.parquet"):
        us.compare_run(copy)
