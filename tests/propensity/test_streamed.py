"""Propensities fitted on a stream: the folds of its rows, honest calibration, and what cannot be streamed."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import unskew as us
from contracts import feature_world
from unskew.base.errors import NotFittedError, ParameterError
from unskew.data import StreamedLog
from unskew.propensity.crossfit import OUT, TRAIN
from unskew.propensity.given import PropensitiesOfRows, PropensitySource
from unskew.training import loop

ROUNDING = 1e-5
SEEDS = (2, 5)


@pytest.fixture(scope="module")
def log() -> us.Log:
    return us.Log.from_frame(
        feature_world.table(), click="click", conversion="bought", space="impressions", features="auto"
    )


def stream(log: us.Log) -> StreamedLog:
    return StreamedLog.of(log, block_rows=900)


def network(**options) -> us.Propensity:
    backbone = us.DCN(dim=4, layers=(8,), crosses=1)
    return us.Propensity(
        **{"backbone": backbone, "epochs": 6, "crossfit": 3, "learning_rate": 0.01, **options}
    )


@pytest.fixture(scope="module")
def fitted(log) -> us.Propensity:
    return network().fit(stream(log), seeds=SEEDS)


def test_a_stream_is_learned_as_well_as_the_log_in_memory(log, fitted):
    in_memory = network().fit(log, seeds=SEEDS).diagnose()["calibrated"]
    streamed = fitted.diagnose()["calibrated"]
    assert streamed["auc"] > in_memory["auc"] - 0.03
    assert streamed["nll"] < in_memory["nll"] + 0.01
    assert streamed["mean_over_base_rate"] == pytest.approx(1.0, abs=0.02)


def test_figures_are_those_of_all_rows_out_of_fold(log, fitted):
    sketches = fitted.held_out_sketches(calibrated=True)
    assert [sketch.rows for sketch in sketches] == [len(log)] * len(SEEDS)
    for sketch, line in zip(sketches, fitted.predict_each(log), strict=True):
        # Scores of one cell of a sketch are mapped together, and differ by less than 1 %.
        assert sketch.mean_score == pytest.approx(line.mean(), rel=1e-3)
        assert sketch.positives == log.n_clicks


def test_folds_and_propensities_follow_from_ids_wherever_a_row_comes_from(log, fitted):
    whole = fitted.predict_each(log)
    blocks = [fitted.predict_each(block) for block in stream(log).in_order()]
    np.testing.assert_allclose(np.concatenate(blocks, axis=1), whole, atol=ROUNDING)


def test_a_seed_alone_is_the_seed_in_a_stack_and_two_fits_are_the_same(log, fitted):
    alone = network().fit(stream(log), seeds=SEEDS[1:])
    np.testing.assert_allclose(alone.predict_each(log)[0], fitted.predict_each(log)[1], atol=ROUNDING)
    again = network().fit(stream(log), seeds=SEEDS)
    np.testing.assert_array_equal(again.predict_each(log), fitted.predict_each(log))


def test_rows_of_a_fold_do_not_train_its_network(log, monkeypatch):
    """The loss of a replica has no gradient in what the network says of rows that it must not see."""
    seen = []

    def record(networks, passes, schedule, **further):
        (step,) = passes[0].steps
        sample = next(next(iter(passes[0].sampler.epoch(0))).steps())
        network = networks["propensity"]
        outputs = []

        def keep(_module, _rows, logit):
            logit.retain_grad()
            outputs.append(logit)

        handle = network.register_forward_hook(keep)
        step.loss(sample).sum().backward()
        handle.remove()
        seen.append((sample, outputs[0].grad))
        return loop.train(networks, passes, schedule, **further)

    monkeypatch.setattr("unskew.propensity.network.train", record)
    propensity = network(epochs=1).fit(stream(log), seeds=SEEDS)
    ((sample, gradient),) = seen
    roles = propensity.cells_.roles
    slots = propensity.cells_.slots(range(len(roles))).of_rows(sample.cells.rows)
    role = roles.gather(1, slots)
    torch.testing.assert_close(gradient != 0, role == TRAIN)
    assert (role == OUT).any(dim=1).all()


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_sampled_negatives_are_new_in_each_epoch_and_their_offset_is_undone(log, ratio):
    propensity = network(negatives=ratio).fit(stream(log))
    sampler = propensity.streamed_cells(stream(log))
    first, second = (
        np.concatenate([sample.cells.click.flatten().numpy() for sample in sampler.epoch(number)])
        for number in range(2)
    )
    # A few come twice to fill the last batch.
    assert first.sum() == pytest.approx(log.n_clicks, rel=0.05)
    assert len(first) == pytest.approx(log.n_clicks * (1 + ratio), rel=0.05)
    assert not np.array_equal(first, second)
    figures = propensity.diagnose()["raw"]
    assert figures["mean_over_base_rate"] == pytest.approx(1.0, abs=0.15)


def test_without_cross_fitting_a_tenth_calibrates_and_another_judges(log):
    propensity = network(crossfit=None).fit(stream(log))
    (sketch,) = propensity.held_out_sketches(calibrated=False)
    assert 0.05 < sketch.rows / len(log) < 0.15


def test_a_reread_propensity_is_calibrated_on_the_stream_again(log, fitted):
    raw = fitted.reread(calibrator=None)
    np.testing.assert_array_equal(raw.predict_each(log), fitted.predict_each(log, calibrated=False))


def test_one_that_let_go_of_its_data_predicts_and_is_judged_as_before(log, fitted):
    other = fitted.reread(calibrator=fitted.calibrator)
    before = other.diagnose(log), other.predict_each(log)
    other.forget_log()
    assert other.diagnose(log) == before[0]
    np.testing.assert_array_equal(other.predict_each(log), before[1])
    with pytest.raises(NotFittedError, match="keeps no data"):
        other.reread(calibrator=None)


def test_raw_and_calibrated_scores_of_rows_are_predicted_once(log, fitted, monkeypatch):
    seeds = fitted.seeds_
    each = [PropensitySource(fitted, seeds, calibrated) for calibrated in (False, True)]
    apart = [fitted.predict_each(log, calibrated=calibrated) for calibrated in (False, True)]
    both, asked = fitted.predict_both_each, []

    def counted(rows):
        asked.append(len(rows))
        return both(rows)

    monkeypatch.setattr(type(fitted), "predict_both_each", lambda self, rows: counted(rows))
    floors, lines = (0.0,) * 2 * len(seeds), tuple(range(2 * len(seeds)))
    together = PropensitiesOfRows(tuple(each), floors, lines)(log)
    assert asked == [len(log)]
    np.testing.assert_allclose(together, np.concatenate(apart), rtol=1e-6)


def test_a_saved_propensity_of_a_stream_predicts_the_same(log, fitted, tmp_path):
    fitted.save(tmp_path / "p")
    loaded = us.load_propensity(tmp_path / "p")
    np.testing.assert_array_equal(loaded.predict_each(log), fitted.predict_each(log))


def test_a_method_takes_it_for_the_rows_of_a_stream_that_it_never_saw(log, fitted):
    made = [
        us.IPS(backbone=us.MF(dim=2), epochs=2, p_min=0.05).fit(rows, propensity=fitted, seeds=SEEDS)
        for rows in (stream(log), log)
    ]
    for streamed, in_memory in zip(*(each.clipping_ for each in made), strict=True):
        assert streamed.weight_check == pytest.approx(in_memory.weight_check, rel=1e-5)


def test_kinds_that_need_all_rows_at_once_say_so(log):
    with pytest.raises(ParameterError, match=r"PopularityPropensity is fitted on a log in memory.*sample"):
        us.PopularityPropensity().fit(stream(log))


def test_an_array_of_propensities_does_not_fit_a_stream(log):
    with pytest.raises(ParameterError, match=r"does not fit a stream.*column"):
        us.IPS().fit(stream(log), propensity=np.full(len(log), 0.5))


def test_a_saved_propensity_serves_rows_of_a_stream_in_memory(tmp_path):
    """They have codes and no values; that its own encoders would give the same is known by value."""
    pq.write_table(feature_world.table(), tmp_path / "log.parquet", row_group_size=700)
    named = {"click": "click", "conversion": "bought", "features": feature_world.FEATURES}
    source = us.stream_log(tmp_path / "log.parquet", block_rows=900, **named)
    fitted = network(epochs=1).fit(source)
    fitted.save(tmp_path / "propensity")
    made = [
        us.IPS(backbone=us.MF(dim=2), epochs=1)
        .fit(rows, propensity=p, device="cpu")
        .predict(source.sample(99))
        for rows, p in (
            (source, fitted),
            (source.remembered(1e9), us.load_propensity(tmp_path / "propensity")),
        )
    ]
    np.testing.assert_allclose(*made, atol=ROUNDING)


@pytest.mark.gpu
def test_a_gpu_looks_rows_up_as_a_cpu_does(tmp_path):
    pq.write_table(feature_world.table(), tmp_path / "log.parquet", row_group_size=700)
    named = {"click": "click", "conversion": "bought", "features": feature_world.FEATURES}
    kept = us.stream_log(tmp_path / "log.parquet", block_rows=900, **named).remembered(1e9)
    backbone = us.DCN(dim=4, layers=(8,), crosses=1, dropout=0.0)
    made = []
    for device in ("cpu", "cuda"):
        p = network(backbone=backbone, epochs=3).fit(kept, seeds=SEEDS, device=device)
        model = us.DRJL(backbone=backbone, epochs=3, members=2)
        model.fit(kept, propensity=p, seeds=SEEDS, device=device)
        made.append((p.predict_each(kept.sample(500)), model.predict_members_each(kept.sample(500))))
    for of_cpu, of_gpu in zip(*made, strict=True):
        np.testing.assert_allclose(of_gpu, of_cpu, atol=0.02)


@pytest.mark.parametrize("scored", [1 << 24, 400], ids=["all rows", "thinned"])
def test_rows_in_memory_are_trained_on_and_judged_as_those_of_files(tmp_path, monkeypatch, scored):
    monkeypatch.setattr("unskew.propensity.propensity.MOST_SCORED", scored)
    pq.write_table(feature_world.table(), tmp_path / "log.parquet", row_group_size=700)
    named = {"click": "click", "conversion": "bought", "features": feature_world.FEATURES}
    source = us.stream_log(tmp_path / "log.parquet", block_rows=900, **named)
    read, kept = (network(fields=("-position",)).fit(each) for each in (source, source.remembered(1e9)))
    sample = source.sample(1_000)
    np.testing.assert_allclose(kept.predict_each(sample), read.predict_each(sample), atol=ROUNDING)
    for calibrated in (False, True):
        (first,), (second,) = (each.held_out_sketches(calibrated=calibrated) for each in (read, kept))
        assert second.rows == first.rows
        assert second.positives == first.positives
        assert second.mean_score == pytest.approx(first.mean_score, rel=1e-4)
