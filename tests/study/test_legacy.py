"""Deviations of published code: a method with some is still that method."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.study.legacy import AveragedTogether, NoisyImputer, UnclickedOnce, as_published

BRIEFLY = {
    "learner": us.NeuMF(dim=4, layers=(4,), dropout=0.5),
    "epochs": 4,
    "batch_size": 64,
    "learning_rate": 0.05,
}


@pytest.fixture(scope="module")
def log() -> us.Log:
    return us.load("synthetic", n_users=40, n_items=30, density=0.2).train


def test_without_deviations_it_is_the_method_itself():
    method = us.MRDR()
    assert as_published(method) is method


def test_name_and_parameters_are_those_of_the_method():
    method = us.MRDR(ratio=6.0)
    published = as_published(method, AveragedTogether, NoisyImputer)
    assert isinstance(published, us.MRDR)
    assert published.name == "mrdr"
    assert published.get_params() == method.get_params()


@pytest.mark.parametrize("deviation", [AveragedTogether, UnclickedOnce, NoisyImputer])
def test_each_deviation_trains_another_model_that_is_saved_as_the_method(deviation, log, tmp_path):
    plain, published = us.DRJL(ratio=4.0, **BRIEFLY), as_published(us.DRJL(ratio=4.0, **BRIEFLY), deviation)
    for method in (plain, published):
        method.fit(log, propensity=0.3, device="cpu")
    assert not np.allclose(plain.predict(log), published.predict(log), rtol=1e-4)
    published.save(tmp_path / "model")
    loaded = us.load_model(tmp_path / "model", device="cpu")
    assert type(loaded) is us.DRJL
    np.testing.assert_array_equal(loaded.predict_each(log), published.predict_each(log))


def test_copies_of_a_deviating_method_deviate_too(log):
    published = as_published(us.DRJL(**BRIEFLY), NoisyImputer)
    alone = as_published(us.DRJL(**BRIEFLY), NoisyImputer).fit(log, propensity=0.3, device="cpu")
    copy = published.fit_many(log, propensities={"p": 0.3}, device="cpu")["p"]
    np.testing.assert_allclose(copy.predict(log), alone.predict(log), rtol=1e-5)
