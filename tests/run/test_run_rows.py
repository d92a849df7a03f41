"""Rows that are wrong in a known way, and test rows that have clicks of their own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.base.errors import DataError


def write(path, rows: int, seed: int) -> dict[str, np.ndarray]:
    """Write impressions with popular items and eager users; nobody converts without a click."""
    draw = np.random.default_rng(seed)
    user, item = draw.integers(0, 40, rows), draw.integers(0, 30, rows)
    click = draw.random(rows) < 1 / (1 + np.exp(1 - (user % 5) / 2 - (item % 3)))
    conversion = click & (draw.random(rows) < 0.4)
    log = {"user": user, "item": item, "click": click.astype(int), "conversion": conversion.astype(int)}
    pq.write_table(pa.table(log), path)
    return log


@pytest.mark.parametrize("space", ["matrix", "impressions"])
def test_conversions_without_a_click_are_dropped_or_counted_as_clicks_and_told(tmp_path, space):
    log = write(tmp_path / "log.parquet", 300, 0)
    _, first = np.unique(log["user"] * 30 + log["item"], return_index=True)
    log = {name: values[first] for name, values in log.items()}
    wrong = np.flatnonzero(log["click"] == 0)[:7]
    log["conversion"][wrong] = 1
    pq.write_table(pa.table(log), tmp_path / "log.parquet")
    options = {"train": str(tmp_path / "log.parquet"), "space": space}
    if space == "matrix":
        with pytest.raises(DataError, match=r"conversion is 1 where click is 0.*--unclicked drop"):
            us.load("files", **options)
    dropped = us.load("files", **options, unclicked="drop")
    assert (len(dropped.train), dropped.train.n_clicks) == (len(first) - 7, log["click"].sum())
    clicked = us.load("files", **options, unclicked="click")
    assert (len(clicked.train), clicked.train.n_clicks) == (len(first), log["click"].sum() + 7)
    assert clicked.train.known_conversion().sum() == log["conversion"].sum()
    assert dropped.facts["unclicked_conversions"] == clicked.facts["unclicked_conversions"] == 7
    config = us.Config(
        data=options["train"], space=space, unclicked="drop", method="none", propensity="linear"
    )
    labels = us.run(config).metrics["labels"]
    assert "7 rows that converted without a click: dropped" in labels


def test_the_propensity_is_judged_on_test_rows_where_they_have_clicks(tmp_path):
    write(tmp_path / "log.parquet", 3000, 0)
    test = write(tmp_path / "test.parquet", 2000, 1)
    config = us.Config(
        data=str(tmp_path / "log.parquet"),
        space="impressions",
        test=str(tmp_path / "test.parquet"),
        method="naive",
        propensity="linear",
        learner="mf",
        parameters={"training.epochs": 1},
    )
    result = us.run(config)
    p = result.propensity.predict_each(result.dataset.test, average=True)[0]
    figures = result.metrics["propensity"]["on test rows"]
    assert figures["nll"] == pytest.approx(us.metrics.nll(p, test["click"]), rel=1e-3)
    assert figures["auc"] == pytest.approx(us.metrics.auc(p, test["click"]), abs=2e-3)
    assert "on test rows" in result.report()
