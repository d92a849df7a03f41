"""Several models in one: the mean logit of their ensembles, saved, exported and recalibrated as one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

import unskew as us
from unskew.base.errors import ParameterError
from unskew.data.datasets.dataset import with_unbiased_share

pytestmark = pytest.mark.filterwarnings("ignore::unskew.base.errors.CollapseWarning")

QUICK = {"members": 2, "epochs": 2, "batch_size": 256}


@pytest.fixture(scope="module")
def data():
    drawn = us.load("synthetic", n_users=40, n_items=30, density=0.2, conversion_rate=0.3, test_per_user=15)
    return with_unbiased_share(drawn, 0.3)


@pytest.fixture(scope="module")
def models(data):
    """Of one tower, and of two that share embeddings; both have levels and slopes of their own."""
    return tuple(
        kind(learner=us.NeuMF(dim=4, layers=(8, 4)), **QUICK).fit(data.train, seeds=2, device="cpu")
        for kind in (us.ESMM, us.Naive)
    )


@pytest.fixture(scope="module")
def both(models):
    return models[0].with_beside(models[1])


def test_it_is_the_mean_logit_of_both_and_leaves_them_as_they_were(models, both, data):
    before = [each.predict_each(data.test) for each in models]
    assert models[0].beside_ == ()
    expected = expit(np.mean(logit(before), axis=0))
    np.testing.assert_allclose(both.predict_each(data.test), expected, rtol=1e-6)
    members = both.predict_members_each(data.test)
    assert members.shape == (2, 4, len(data.test))
    np.testing.assert_array_equal(members[:, 2:], models[1].predict_members_each(data.test))


def test_the_level_of_both_together_is_set_and_the_order_stays(models, both, data):
    raw = both.predict_each(data.test)
    levelled = both.without_recalibration().recalibrate_on(data.unbiased)
    found = levelled.predict_each(data.test)
    assert (np.argsort(found[0]) == np.argsort(raw[0])).all()
    outcome = data.unbiased.known_conversion()
    assert levelled.predict_each(data.unbiased).mean() == pytest.approx(outcome.mean(), rel=0.02)
    assert models[1].recalibration_ is None


def test_models_of_other_seeds_or_ids_do_not_go_together(models, data):
    other_ids = us.load("synthetic", n_users=20, n_items=20, density=0.3).train
    for log, seeds in ((data.train, [5]), (other_ids, 2)):
        other = us.Naive(learner=us.MF(dim=2), epochs=1).fit(log, seeds=seeds, device="cpu")
        with pytest.raises(
            ParameterError, match="were not trained with the same seeds, ids, features and held-out clicks"
        ):
            models[0].with_beside(other)


def test_three_count_alike_are_saved_and_exported(models, data, tmp_path):
    third = us.IPS(learner=us.NeuMF(dim=4, layers=(8, 4)), **QUICK)
    third = third.fit(data.train, propensity=0.2, seeds=2, device="cpu")
    three = models[1].with_beside(models[0], third)
    expected = expit(np.mean(logit([each.predict_each(data.test) for each in (*models, third)]), axis=0))
    np.testing.assert_allclose(three.predict_each(data.test), expected, rtol=1e-6)
    assert three.predict_members_each(data.test).shape == (2, 6, len(data.test))
    three.save(tmp_path / "model")
    loaded = us.load_model(tmp_path / "model", device="cpu")
    assert [each.name for each in loaded.beside_] == ["esmm", "ips"]
    np.testing.assert_allclose(loaded.predict_each(data.test), expected, rtol=1e-6)
    onnxruntime = pytest.importorskip("onnxruntime")
    us.export_onnx(three, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    asked = {"user": data.test.users.ids[data.test.user], "item": data.test.items.ids[data.test.item]}
    np.testing.assert_allclose(session.run(None, asked)[0], expected.mean(axis=0), rtol=1e-4)


def test_a_model_that_has_others_beside_it_goes_beside_none(models, both):
    with pytest.raises(ParameterError, match="has a model beside it already"):
        both.with_beside(models[1])
    with pytest.raises(ParameterError, match="has a model beside it already"):
        models[0].with_beside(both)
