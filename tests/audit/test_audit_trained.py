"""Weights without scores: a propensity is trained first, and every row gets it out of fold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.audit import Trained, write_weights
from unskew.base.errors import DataError
from unskew.cli import main
from unskew.metrics import auc

USERS, ITEMS = 24, 30


def shown_pairs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    user, item = (axis.ravel() for axis in np.mgrid[:USERS, :ITEMS])
    p = 1 / (1 + np.exp(-(1.5 * np.sin(user) + 1.5 * np.cos(item) - 0.5)))
    return user, item, (generator.random(len(p)) < p).astype(np.int64)


def test_clicked_pairs_alone_are_weighted_over_the_matrix(tmp_path: Path) -> None:
    user, item, click = shown_pairs()
    pairs = pa.table({"uid": [f"u{u}" for u in user[click == 1]], "iid": item[click == 1]})
    twice = pa.concat_tables([pairs, pairs.slice(0, 1)])
    pq.write_table(twice, tmp_path / "log.parquet")
    result = write_weights(tmp_path / "log.parquet", tmp_path / "out.parquet", Trained("uid", "iid"), folds=2)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.select(twice.column_names).equals(twice)
    p, weight, fold = (table[name].to_numpy() for name in ("propensity_calibrated", "weight", "fold"))
    np.testing.assert_array_equal(weight, 1 / np.maximum(p, result.p_min))
    assert set(fold.tolist()) == {0, 1}
    assert (p[0], fold[0]) == (p[-1], fold[-1]), "a pair that is listed twice is one cell"
    assert result.raw.rows == USERS * ITEMS, "the population is every pair"
    assert abs(weight[:-1].sum() / (USERS * ITEMS) - 1) < 0.3


def test_impressions_are_their_own_population(tmp_path: Path) -> None:
    user, item, click = shown_pairs()
    pq.write_table(pa.table({"u": user, "i": item, "c": click}), tmp_path / "log.parquet")
    result = write_weights(
        tmp_path / "log.parquet", tmp_path / "out.parquet", Trained("u", "i", "c"), folds=2
    )
    table = pq.read_table(tmp_path / "out.parquet")
    p, weight = table["propensity_calibrated"].to_numpy(), table["weight"].to_numpy()
    np.testing.assert_array_equal(weight, us.sample_weight(click, p, p_min=result.p_min))
    assert result.raw.rows == len(p) == USERS * ITEMS
    assert abs(p.mean() - click.mean()) < 0.1
    assert auc(score=p, outcome=click) > 0.6


def test_folds_follow_from_ids_in_any_order_of_rows_and_all_rows_of_a_pair_share_one(tmp_path: Path) -> None:
    user, item, click = shown_pairs()
    order = np.random.default_rng(2).permutation(len(user))
    found = []
    for name, rows in (("log", np.arange(len(user))), ("turned", np.concatenate([order, order[:200]]))):
        table = pa.table({"u": user[rows], "i": item[rows], "c": click[rows]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
        out = tmp_path / f"{name}_out.parquet"
        write_weights(tmp_path / f"{name}.parquet", out, Trained("u", "i", "c"), folds=3)
        written = pq.read_table(out)
        pairs = zip(written["u"].to_pylist(), written["i"].to_pylist(), strict=True)
        folds: dict[tuple[int, int], int] = {}
        for pair, fold in zip(pairs, written["fold"].to_pylist(), strict=True):
            assert folds.setdefault(pair, fold) == fold
        found.append(folds)
    assert found[0] == found[1]
    assert set(found[0].values()) == {0, 1, 2}


def test_a_missing_column_is_told_before_anything_is_trained(tmp_path: Path) -> None:
    pq.write_table(pa.table({"u": [1], "i": [2]}), tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"log.parquet: column 'user' is missing"):
        write_weights(tmp_path / "log.parquet", tmp_path / "out.parquet", Trained("user", "i"))
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


def placed() -> tuple[pa.Table, np.ndarray]:
    """Impressions of which the position decides most, and their true propensities."""
    generator = np.random.default_rng(1)
    rows = 3000
    user, item, position = (generator.integers(size, size=rows) for size in (60, 40, 4))
    p = 1 / (1 + np.exp(1.2 * position - 1))
    columns = {"u": user, "i": item, "click": (generator.random(rows) < p).astype(int), "position": position}
    columns["after"] = np.where(columns["click"] == 1, generator.integers(9, size=rows), -1)
    return pa.table(columns), p


def test_a_trained_propensity_reads_features(tmp_path: Path) -> None:
    table, truth = placed()
    pq.write_table(table, tmp_path / "log.parquet")
    columns = ["--user", "u", "--item", "i", "--outcome", "click", "--folds", "2", "--propensity", "linear"]
    given = ["weights", str(tmp_path / "log.parquet"), *columns, "--features", "auto", "--ignore", "after"]
    assert main([*given, "-o", str(tmp_path / "out.parquet")]) == 0
    p = pq.read_table(tmp_path / "out.parquet")["propensity_calibrated"].to_numpy()
    assert np.corrcoef(np.log(p), np.log(truth))[0, 1] > 0.85
    columns = Trained("u", "i", "click", "linear", features=["position"])
    write_weights(tmp_path / "log.parquet", tmp_path / "named.parquet", columns, folds=2)
    np.testing.assert_array_equal(pq.read_table(tmp_path / "named.parquet")["propensity_calibrated"], p)
    write_weights(tmp_path / "log.parquet", tmp_path / "ids.parquet", replace(columns, features=()), folds=2)
    ids = pq.read_table(tmp_path / "ids.parquet")["propensity_calibrated"].to_numpy()
    assert np.corrcoef(np.log(ids), np.log(truth))[0, 1] < 0.5
