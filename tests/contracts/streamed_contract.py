"""What every debiasing method must do on a stream of impressions, beside what it does on a log in memory.

What the stream does for all methods is tested with one of each kind of plan, in
``tests/debias/test_every_streamed_debiaser.py``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

import unskew as us
from contracts.stages import short_stages
from unskew.data import StreamedLog
from unskew.debias import Debiaser

ROUNDING = 1e-5
SEEDS = (1, 3)
USERS, ITEMS, ROWS, BLOCK = 20, 15, 600, 128
LEARNED = 0.94
"""An AUC of items that one in 400 orders at random has (``DebiaserContract``)."""


class StreamedContract:
    """Override the fixture ``method``."""

    @pytest.fixture(scope="class")
    @classmethod
    def method(cls) -> type[Debiaser]:
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def make(cls, method):
        def made(**further) -> Debiaser:
            given = {"backbone": us.MF(dim=2), "learning_rate": 0.05, "p_min": 0.05, **short_stages(method)}
            return method(**given | further)

        return made

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls, make) -> Debiaser:
        return fit(make(epochs=3), StreamedLog.of(impressions(), block_rows=BLOCK), SEEDS)

    def test_a_stream_is_learned_as_well_as_the_log_in_memory(self, make):
        """``DebiaserContract`` asks the same of the log."""
        log = impressions()
        assert learned(make(), StreamedLog.of(log, block_rows=BLOCK), log) >= LEARNED

    def test_a_seed_alone_is_the_seed_in_a_stack(self, make, fitted):
        log = impressions()
        alone = fit(make(epochs=3), StreamedLog.of(log, block_rows=BLOCK), [3])
        np.testing.assert_allclose(alone.predict_each(log)[0], fitted.predict_each(log)[1], atol=ROUNDING)


def fit(model: Debiaser, rows: us.Log | StreamedLog, seeds) -> Debiaser:
    return model.fit(rows, propensity="p" if model.needs_propensity else None, seeds=seeds)


def learned(model: Debiaser, rows: us.Log | StreamedLog, log: us.Log) -> float:
    """How well items are ordered after 15 epochs."""
    prediction = fit(model.set_params(epochs=15, patience=None), rows, [0]).predict(log)
    by_item = [prediction[log.item == item].mean() for item in range(ITEMS)]
    return float(roc_auc_score(np.arange(ITEMS) % 3 == 0, by_item))


def files_of(log: us.Log, folder: Path) -> StreamedLog:
    """The rows of a log in two files, with groups of as many rows as its blocks in memory have."""
    table = pa.table(
        {
            "user": log.users.decode(log.user),
            "item": log.items.decode(log.item),
            "click": log.click,
            "buy": np.nan_to_num(log.conversion),
            "p": log.columns["p"],
        }
    )
    for number, start in enumerate((0, 2 * BLOCK)):
        part = table.slice(start, 2 * BLOCK if number == 0 else None)
        pq.write_table(part, folder / f"part{number}.parquet", row_group_size=BLOCK)
    return us.stream_log(folder / "*.parquet", click="click", conversion="buy", keep=["p"], block_rows=BLOCK)


def impressions(rows: int = ROWS) -> us.Log:
    random = np.random.default_rng(2)
    user, item = random.integers(USERS, size=rows), random.integers(ITEMS, size=rows)
    p = np.where(user < 8, 0.5, 0.2)
    click = (random.random(rows) < p).astype(int)
    return us.Log.from_arrays(
        user=user,
        item=item,
        click=click,
        conversion=np.where(click == 1, item % 3 == 0, np.nan),
        space="impressions",
        columns={"p": p},
    )
