"""``unskew weights --features``: a propensity that reads columns, trained and written beside the rows."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

from contracts.feature_world import table
from unskew.cli import main

COLUMNS = ("--user", "user", "--item", "item", "--outcome", "click")
WANTED = ("country", "position", "tags")


@pytest.fixture(scope="module", autouse=True)
def _briefly() -> None:
    """Here trainings are not cut short."""


@pytest.fixture(scope="module")
def frame():
    return table().drop_columns(["match", "bought"])


@pytest.fixture(scope="module")
def written(frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    pq.write_table(frame, folder / "log.parquet")
    given = ["--features", ",".join(WANTED), "--propensity", "dcn", "--folds", "2"]
    out, told = folder / "weights.parquet", folder / "told.json"
    arguments = [str(folder / "log.parquet"), *COLUMNS, *given, "-o", str(out), "--json", str(told)]
    assert main(["weights", *arguments]) == 0
    return folder


def test_propensities_follow_the_features_and_rows_stay_as_they_are(frame, written):
    weights = pq.read_table(written / "weights.parquet")
    assert weights.select(frame.column_names).equals(frame)
    click, p = np.asarray(frame["click"]), np.asarray(weights["propensity_calibrated"])
    assert roc_auc_score(click, p) > 0.6
    by_position = [p[np.asarray(frame["position"]) == each].mean() for each in range(5)]
    assert by_position == sorted(by_position, reverse=True)
    assert p.mean() == pytest.approx(click.mean(), rel=0.1)
    assert json.loads((written / "told.json").read_text())["propensity"] == "propensity by dcn"


def test_rows_of_a_pair_share_a_fold_and_differ_by_their_features(frame, written):
    weights = pq.read_table(written / "weights.parquet").to_pandas()
    pairs = weights.groupby(["user", "item"])
    assert set(weights["fold"]) == {0, 1}
    assert (pairs["fold"].nunique() == 1).all()
    assert (pairs["propensity_calibrated"].nunique() > 1).any()


def test_a_column_that_gives_the_click_away_is_refused_unless_it_is_allowed(frame, tmp_path, capsys):
    leaking = frame.append_column("seconds", pa.array(np.where(np.asarray(frame["click"]) == 1, 9.5, np.nan)))
    pq.write_table(leaking, tmp_path / "log.parquet")
    arguments = [str(tmp_path / "log.parquet"), *COLUMNS, "--features", "seconds,position"]
    arguments += ["--propensity", "linear", "--folds", "2", "-o", str(tmp_path / "out.parquet")]
    assert main(["weights", *arguments]) == 2
    assert "'seconds'" in capsys.readouterr().err
    assert not (tmp_path / "out.parquet").exists()
    assert main(["weights", *arguments, "--allow-leak", "seconds"]) == 0
