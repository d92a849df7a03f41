"""Every method of the table trains on a stream of impressions."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest

import unskew as us
from contracts import feature_world
from contracts.stages import short_stages
from contracts.streamed_contract import (
    BLOCK,
    LEARNED,
    ROUNDING,
    SEEDS,
    StreamedContract,
    files_of,
    fit,
    impressions,
    learned,
)
from unskew.data import StreamedLog
from unskew.debias import METHODS
from unskew.propensity.given import PropensitiesOfRows
from unskew.propensity.storage import propensity_digest
from unskew.training.kept import KEPT, Kept


class TestEveryStreamedDebiaser(StreamedContract):
    @pytest.fixture(scope="class", params=METHODS)
    @classmethod
    def method(cls, request):
        return METHODS[request.param]


# One step, steps that alternate, a propensity of its own, towers, stages, and balance over D.
PLANS = ("ips", "dr-jl", "stable-dr", "escm2-dr", "gpl", "kb-dr")


@pytest.mark.parametrize("name", PLANS)
def test_fits_of_blocks_and_of_files_are_the_same(name, tmp_path):
    log = impressions()
    small = {"backbone": us.MF(dim=2), "learning_rate": 0.05, "p_min": 0.05, "epochs": 3}
    small |= short_stages(METHODS[name])
    first, again, of_files = (
        fit(METHODS[name](**small), rows, SEEDS).predict_each(log)
        for rows in (*(StreamedLog.of(log, block_rows=BLOCK) for _ in range(2)), files_of(log, tmp_path))
    )
    np.testing.assert_array_equal(again, first, "bit by bit")
    np.testing.assert_allclose(of_files, first, atol=ROUNDING)


def test_one_block_is_learned_as_well():
    log = impressions()
    model = us.DRJL(backbone=us.MF(dim=2), learning_rate=0.05, p_min=0.05)
    assert learned(model, StreamedLog.of(log, block_rows=len(log)), log) >= LEARNED


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


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["naive", "ips", "dr-jl", "esmm", "kb-dr"])
@pytest.mark.parametrize("rows", ["as they come", "in a table", "in a table of the CPU"])
def test_a_gpu_trains_on_a_stream_as_a_cpu_does(name, rows, tmp_path, monkeypatch):
    """Steps are captured, or a warning, which is an error here, would say that they cannot be."""
    log = impressions()
    source = StreamedLog.of(log, block_rows=BLOCK)
    if rows != "as they come":
        source = files_of(log, tmp_path).remembered(1e9)
    if rows == "in a table of the CPU":
        monkeypatch.setattr("unskew.training.row_table.DEVICE_SHARE", 0.0)
    made = []
    for device in ("cpu", "cuda"):
        method = METHODS[name](backbone=us.MF(dim=2), epochs=4, batch_size=32, p_min=0.05, patience=None)
        propensity = "p" if method.needs_propensity else None
        made.append(method.fit(source, propensity=propensity, seeds=2, device=device).predict_each(log))
    np.testing.assert_allclose(made[0], made[1], atol=1e-3)


def test_means_over_the_clicks_that_are_kept_are_those_of_all_within_their_error(monkeypatch):
    """With 1,000 of some 5,000 clicks in memory a doubly robust method learns the same."""
    log = impressions(rows=16_000)
    source, made, keep = StreamedLog.of(log, block_rows=2_000), {}, Kept.of
    for most in (KEPT, 1_000):
        monkeypatch.setattr(Kept, "of", partial(keep, most=most))
        method = us.DRJL(backbone=us.MF(dim=2), epochs=4, learning_rate=0.05)
        made[most] = fit(method, source, [0])
    few, all_of_them = made[1_000], made[KEPT]
    assert few.clipping_[0].rows < 1_200 < all_of_them.clipping_[0].rows
    assert few.clipping_[0].weight_check == pytest.approx(all_of_them.clipping_[0].weight_check, abs=0.06)
    np.testing.assert_allclose(few.predict(log), all_of_them.predict(log), atol=0.1)


@pytest.mark.parametrize("name", ["dr-jl", "kb-dr", "stable-dr"])
def test_rows_and_propensities_that_are_remembered_train_the_same_models(name, tmp_path, monkeypatch):
    """The last needs propensities on all of D."""
    log = impressions()
    small = {"backbone": us.MF(dim=2), "learning_rate": 0.05, "p_min": 0.05, "epochs": 2}
    source = files_of(log, tmp_path)
    read, remembered = (
        fit(METHODS[name](**small), rows, SEEDS).predict_each(log)
        for rows in (source, source.remembered(1e9))
    )
    np.testing.assert_allclose(remembered, read, atol=ROUNDING)
    monkeypatch.setattr("unskew.propensity.streamed.PROPENSITY_BYTES", 0)
    again = fit(METHODS[name](**small), source.remembered(1e9), SEEDS).predict_each(log)
    np.testing.assert_array_equal(again, read)


def test_propensities_of_rows_in_memory_are_predicted_once_for_all_trainings(tmp_path, monkeypatch):
    """They are known by value: others, and other seeds, clips and rows, are predicted."""
    log = impressions()
    source = files_of(log, tmp_path).remembered(1e9)
    asked, every = [], PropensitiesOfRows.every

    def counted(self, rows):
        asked.append(len(rows))
        return every(self, rows)

    monkeypatch.setattr(PropensitiesOfRows, "every", counted)

    def predicted(propensity, name="ips", seeds=SEEDS, **options):
        asked.clear()
        method = METHODS[name](**{"backbone": us.MF(dim=2), "epochs": 2, "p_min": 0.05, **options})
        made.append(method.fit(source, propensity=propensity, seeds=seeds).predict_each(log))
        return sum(asked)

    made = []
    weights = us.PopularityPropensity(crossfit=2).fit(log, seeds=SEEDS)
    weights.save(tmp_path / "saved")
    assert predicted(weights) == log.n_clicks
    assert predicted(us.load_propensity(tmp_path / "saved")) == 0
    np.testing.assert_array_equal(*made)
    assert predicted(weights, members=2) == predicted(weights, "dr-jl") == 0
    assert predicted(weights, "stable-dr") == len(log), "it reads them on all rows"
    assert predicted(weights) == 0
    other = us.PopularityPropensity(crossfit=2).fit(log, seeds=(5, 6))
    for changed in (
        {"seeds": (1, 4)},
        {"p_min": 0.3},
        {"propensity": weights.reread(calibrator=None)},
        {"propensity": other},
        {"propensity": "p"},
    ):
        assert predicted(**{"propensity": weights, **changed}) == log.n_clicks
        assert predicted(**{"propensity": weights, **changed}) == 0
        assert predicted(weights) == log.n_clicks, "one set is kept"
        np.testing.assert_array_equal(made[-1], made[0])
        np.testing.assert_array_equal(made[-2], made[-3])


def test_a_digest_is_of_kinds_of_this_package_that_files_hold():
    class Own(us.PopularityPropensity):
        pass

    log = impressions()
    assert propensity_digest(us.PopularityPropensity(crossfit=2).fit(log)) is not None
    assert propensity_digest(Own(crossfit=2).fit(log)) is None
    assert propensity_digest(us.BoostedPropensity(crossfit=2).fit(log)) is None
