"""Every method of the table trains on a stream of impressions."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

import unskew as us
from contracts import feature_world
from contracts.streamed_contract import ROUNDING, StreamedContract
from unskew.debias import METHODS
from unskew.log import StreamedLog


class TestEveryStreamedDebiaser(StreamedContract):
    @pytest.fixture(scope="class", params=METHODS)
    @classmethod
    def method(cls, request):
        return METHODS[request.param]


def test_features_of_files_are_trained_on_as_those_in_memory(tmp_path):
    table, block_rows = feature_world.table(), 1_000
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=block_rows)
    named = {"click": "click", "conversion": "bought", "features": feature_world.FEATURES}
    log = us.Log.from_frame(table, space="impressions", **named)
    sources = (
        us.stream_log(tmp_path / "log.parquet", block_rows=block_rows, **named),
        StreamedLog.of(log, block_rows=block_rows),
    )
    propensity = us.Propensity(backbone=us.DCN(dim=4, layers=(8,)), crossfit=2, epochs=2)
    method = us.IPS(backbone=us.DCN(dim=4, layers=(8,)), fields=("-position",), epochs=2)
    made = []
    for source in sources:
        weights = us.Propensity(**propensity.get_params(deep=False)).fit(source)
        model = us.IPS(**method.get_params(deep=False)).fit(source, propensity=weights)
        made.append((weights.predict_each(log), model.predict_each(log)))
    for of_files, in_memory in zip(*made, strict=True):
        np.testing.assert_allclose(of_files, in_memory, atol=ROUNDING)
