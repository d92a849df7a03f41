"""Ensembles of one training: what it leaves in turn, and the mean of these weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unskew as us
from contracts.streamed_contract import impressions
from unskew.debias import make_method
from unskew.errors import ParameterError
from unskew.evaluation import evaluate_users
from unskew.log import StreamedLog
from unskew.training.checkpoint import Checkpoint
from unskew.training.ensemble import CYCLE_STEPS, combined

QUICK = {"epochs": 3, "patience": 2, "batch_size": 256, "learning_rate": 0.02}
SEEDS = (3, 5)


@pytest.fixture(scope="module")
def data():
    return us.load("synthetic", n_users=40, n_items=30, density=0.2, seed=2)


@pytest.fixture(scope="module")
def propensity(data):
    """Of its own for each seed, everywhere."""
    return np.random.default_rng(0).uniform(0.1, 0.6, (len(SEEDS), data.train.n_users, data.train.n_items))


def ips(**more) -> us.IPS:
    return us.IPS(**{"backbone": us.MF(dim=4, init_std=0.3), **QUICK, "members": 3, **more})


@pytest.fixture(scope="module")
def given(data, propensity):
    return {"log": data.train, "propensity": propensity, "seeds": SEEDS, "device": "cpu"}


@pytest.fixture(scope="module")
def snapshot(given):
    return ips(ensemble="snapshot").fit(**given)


@pytest.fixture(scope="module")
def swa(given):
    return ips(ensemble="swa").fit(**given)


@pytest.mark.parametrize("name", ["ips", "att", "gpl", "stable-dr", "dr-v2"])
def test_the_first_is_the_model_without_others_and_the_next_differ(name, data, given):
    """Methods that between them have every kind of stage, state and click tower."""

    def model(members):
        method = make_method(name, backbone=us.MF(dim=4), members=members, ensemble="snapshot", **QUICK)
        return method.fit(**given)

    one, two = model(1), model(2)
    members = two.predict_members_each(data.test)
    np.testing.assert_allclose(members[:, 0], one.predict_each(data.test), rtol=1e-6)
    assert np.abs(members[:, 1] - members[:, 0]).max() > 1e-3
    assert two.history_.best_epoch[::2] == one.history_.best_epoch
    # Of one step an epoch, two parts.
    assert len(two.history_.validation) == len(one.history_.validation) + 2 * CYCLE_STEPS
    np.testing.assert_allclose(two.validation_loss_[::2], one.validation_loss_, rtol=1e-6)


def test_the_model_is_the_mean_logit_of_what_one_training_left(data, snapshot):
    members = snapshot.predict_members_each(data.test)
    assert members.shape == (2, 3, len(data.test))
    np.testing.assert_array_equal(snapshot.predict_each(data.test), combined(members))
    assert (snapshot.spread(data.test) > 0).all()


@pytest.mark.parametrize("kind", ["snapshot", "swa"])
def test_a_cycle_that_does_no_good_leaves_the_first_weights(kind, data, given, monkeypatch):
    monkeypatch.setattr("unskew.training.ensemble.CYCLE_RATE", 30.0)
    one, wild = (ips(ensemble=kind, members=members, epochs=12).fit(**given) for members in (1, 3))
    np.testing.assert_allclose(wild.predict_each(data.test), one.predict_each(data.test), rtol=1e-5)
    assert set(wild.history_.best_epoch) == set(one.history_.best_epoch)
    assert max(wild.validation_loss_) == pytest.approx(max(one.validation_loss_))


def test_without_held_out_clicks_all_are_members(data, given):
    model = ips(ensemble="snapshot", validation_share=0.0).fit(**given)
    members = model.predict_members_each(data.test)
    assert min(np.abs(members[:, k] - members[:, 0]).max() for k in (1, 2)) > 1e-3


def test_swa_has_the_mean_of_the_same_weights(data, snapshot, swa):
    for mean, each in zip(
        swa.networks_["prediction"].parameters(), snapshot.networks_["prediction"].parameters(), strict=True
    ):
        torch.testing.assert_close(mean, each.unflatten(0, (2, 3)).mean(1))
    assert swa.predict_members_each(data.test).shape == (2, 1, len(data.test))
    alone = ips(ensemble="swa").fit(data.train, propensity=0.3, seeds=1, device="cpu")
    with pytest.raises(ParameterError, match="ensemble='swa' and 'batch' make one network of them"):
        alone.spread(data.test)


@pytest.mark.parametrize("kind", ["snapshot", "swa"])
def test_saved_exported_and_shown(kind, data, given, snapshot, swa, tmp_path):
    model = {"snapshot": snapshot, "swa": swa}[kind]
    model.save(tmp_path / "model")
    loaded = us.load_model(tmp_path / "model", device="cpu")
    assert (loaded.ensemble, loaded.members) == (kind, 3)
    np.testing.assert_array_equal(loaded.predict_each(data.test), model.predict_each(data.test))
    onnxruntime = pytest.importorskip("onnxruntime")
    us.export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    codes = {"user": data.test.user.astype(np.int64), "item": data.test.item.astype(np.int64)}
    (found,) = session.run(["conversion"], codes)
    np.testing.assert_allclose(found, model.predict(data.test), rtol=1e-5)
    measured = evaluate_users(model, data.test)
    assert (measured.members is None) == (kind == "swa")


@pytest.mark.parametrize("kind", ["snapshot", "swa"])
def test_groups_and_sets_of_propensities_give_the_same(kind, data, given, snapshot, swa, monkeypatch):
    model = {"snapshot": snapshot, "swa": swa}[kind]
    monkeypatch.setattr("unskew.debias.fit.replicas_at_once", lambda *_, **__: 1)
    sets = {"a": 0.3, "b": given["propensity"]}
    many = ips(ensemble=kind).fit_many(data.train, propensities=sets, seeds=SEEDS, device="cpu")
    np.testing.assert_allclose(
        many["b"].predict_members_each(data.test), model.predict_members_each(data.test), rtol=1e-4
    )
    assert np.abs(many["a"].predict_each(data.test) - model.predict_each(data.test)).max() > 1e-3
    assert many["b"].history_.best_epoch == model.history_.best_epoch


@pytest.mark.parametrize("kind", ["snapshot", "swa"])
def test_memory_is_planned_for_the_weights_of_all_cycles(kind, given, monkeypatch):
    """Their mean is one network, but they are kept until the last is there."""

    class PlannedError(Exception):
        """Nothing is to be trained here."""

    def planned(replicas, of_one, device, *, kept):
        raise PlannedError(of_one.snapshots)

    monkeypatch.setattr("unskew.debias.fit.replicas_at_once", planned)
    with pytest.raises(PlannedError, match="6"):
        ips(ensemble=kind, members=5).fit(**given)


def test_a_checkpoint_goes_on_in_a_cycle(data, given, snapshot, tmp_path):
    """Killed after the state of the first cycle: what was done is read, the rest trained."""

    class StopError(BaseException):
        """A kill."""

    class Stopping(Checkpoint):
        trained = 0

        def write(self, name, facts, tensors):
            written = super().write(name, facts, tensors)
            self.trained += 1
            if self.trained == 2:
                raise StopError
            return written

    with pytest.raises(StopError), Stopping(tmp_path / "state", every=1e9):
        ips(ensemble="snapshot").fit(**given)
    with Checkpoint(tmp_path / "state", every=1e9):
        again = ips(ensemble="snapshot").fit(**given)
    np.testing.assert_array_equal(
        again.predict_members_each(data.test), snapshot.predict_members_each(data.test)
    )


def test_on_a_stream_and_recalibrated():
    log = impressions()
    rows = StreamedLog.of(log, block_rows=128)
    one, three = (
        ips(members=members, ensemble="snapshot", backbone=us.MF(dim=4), recalibrate="shift").fit(
            rows, propensity="p", seeds=SEEDS, device="cpu"
        )
        for members in (1, 3)
    )
    raw = three.without_recalibration().predict_members_each(log)
    np.testing.assert_allclose(raw[:, 0], one.without_recalibration().predict_each(log), rtol=1e-4)
    assert np.abs(raw[:, 1] - raw[:, 0]).max() > 1e-4
    assert len(three.recalibration_.calibrators) == 2


def test_on_a_stream_a_part_of_a_cycle_has_as_many_steps_as_in_memory():
    rows = StreamedLog.of(impressions(), block_rows=128)
    one, two = (
        ips(members=members, ensemble="swa", batch_size=4, epochs=1).fit(
            rows, propensity="p", seeds=1, device="cpu"
        )
        for members in (1, 2)
    )
    # A round has more than those steps: two parts of one round each.
    assert len(two.history_.validation) == len(one.history_.validation) + 2


def test_another_training_starts_from_the_first_member(data, given, snapshot):
    start = ips(ensemble="snapshot", members=2, epochs=1, learning_rate=1e-9)
    again = start.fit(data.train, propensity=0.3, seeds=[5], start=snapshot, device="cpu")
    before = snapshot.predict_members_each(data.test)[1, 0]
    np.testing.assert_allclose(again.predict_members_each(data.test)[0, 0], before, rtol=1e-4)
    # One that trains each of three has three to start from.
    ips(epochs=1).fit(data.train, propensity=0.3, seeds=[5], start=snapshot, device="cpu")


def test_a_kind_that_there_is_not(data):
    with pytest.raises(ParameterError, match="'snapshot', 'swa' or 'batch', not 'deep'"):
        us.Naive(ensemble="deep").fit(data.train)
