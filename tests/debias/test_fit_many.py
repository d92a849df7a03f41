"""Several sets of propensities in one stacked run: each model is what its own ``fit`` would have given."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unskew as us
from contracts.stages import short_stages
from unskew.base.errors import ParameterError
from unskew.debias import METHODS, make_method

EVERY_PART = ("ips", "att", "dr", "tdr", "kb-dr", "stable-dr", "gpl", "ddpo", "dr-v2")
"""Methods that between them have every kind of stage, state and click tower to be shared out."""
QUICK = {"epochs": 3, "patience": 2, "batch_size": 256}


@pytest.fixture(scope="module")
def data():
    return us.load("synthetic", n_users=40, n_items=30, density=0.2, seed=2)


@pytest.fixture(scope="module")
def propensities(data):
    rng = np.random.default_rng(0)
    shape = (2, data.train.n_users, data.train.n_items)
    return {"a": rng.uniform(0.1, 0.6, shape), "b": rng.uniform(0.3, 0.9, shape)}


@pytest.mark.parametrize("name", EVERY_PART)
def test_every_set_gets_the_models_that_fit_alone_gives(name, data, propensities):
    quick = QUICK | short_stages(METHODS[name])
    method = make_method(name, learner=us.MF(dim=4), **quick)
    many = method.fit_many(data.train, propensities=propensities, seeds=[3, 5], device="cpu")
    assert list(many) == ["a", "b"]
    assert not hasattr(method, "networks_")
    for key, model in many.items():
        alone = make_method(name, learner=us.MF(dim=4), **quick)
        alone.fit(data.train, propensity=propensities[key], seeds=[3, 5], device="cpu")
        assert model.seeds_ == alone.seeds_ == (3, 5)
        np.testing.assert_allclose(model.predict_each(data.test), alone.predict_each(data.test), rtol=1e-4)
        np.testing.assert_allclose(model.validation_loss_, alone.validation_loss_, rtol=1e-4)
        assert model.history_.best_epoch == alone.history_.best_epoch
        figures = getattr(alone, "click_propensity_", None)
        if figures:
            assert model.click_propensity_["raw"]["ece"] == pytest.approx(figures["raw"]["ece"], rel=1e-3)


def test_the_validation_loss_is_that_of_the_weights_that_were_kept(data):
    model = us.Naive(learner=us.MF(dim=4), epochs=30, patience=3, learning_rate=0.05)
    model.fit(data.train, seeds=3, device="cpu")
    losses = torch.tensor(model.history_.validation)
    np.testing.assert_allclose(model.validation_loss_, losses.min(0).values, rtol=1e-5)


def test_nothing_to_fit_with_and_a_mixture_are_refused(data, propensities):
    with pytest.raises(ParameterError, match="no propensities to fit with"):
        us.IPS().fit_many(data.train, propensities={})
    with pytest.raises(ParameterError, match="some of the propensities are None"):
        us.ESCM2IPS().fit_many(data.train, propensities={"a": propensities["a"], "none": None}, seeds=2)
