"""Methods whose conversion model is a learner of tables: row weights, and pseudo-outcomes."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.base.errors import ParameterError

WEIGHTS = (us.Naive, us.IPS, us.SNIPS, us.UIPS)
PSEUDO_OUTCOMES = (us.EIB, us.DR, us.DRJL, us.MRDR, us.DRBias, us.DRMSE)
QUICK = us.Trees(max_trees=20)


@pytest.fixture(scope="module")
def data():
    return us.load("synthetic", n_users=150, n_items=120, density=0.15, bias=2.0, dimension=2, seed=3)


def fitted(method, data):
    p = data.truth.propensity if method.needs_propensity else None
    return method.fit(data.train, propensity=p, seeds=2)


def level(model, data):
    """Predicted ÷ true conversion rate over all pairs."""
    user, item = np.indices(data.truth.conversion.shape).reshape(2, -1)
    ids = data.train.users.ids[user], data.train.items.ids[item]
    return model.predict_pairs_each(*ids).mean() / data.truth.conversion.mean()


@pytest.mark.parametrize("cls", [*WEIGHTS, *PSEUDO_OUTCOMES])
def test_it_is_saved_and_loaded_to_the_last_bit(cls, data, tmp_path):
    model = fitted(cls(learner=QUICK), data)
    model.save(tmp_path / "model")
    again = us.load_model(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_each(data.train), model.predict_each(data.train))
    assert model.predict_each(data.train).shape == (2, len(data.train))
    assert len(model.validation_loss_) == 2


@pytest.mark.parametrize("learner", [us.Linear(), us.Blend(second=QUICK)], ids=["linear", "blend"])
def test_true_propensities_mend_the_level_that_the_naive_model_misses(learner, data):
    naive = level(fitted(us.Naive(learner=learner), data), data)
    assert naive > 1.15
    for cls in (us.IPS, us.SNIPS, us.DR, us.DRJL, us.MRDR):
        found = level(fitted(cls(learner=learner), data), data)
        assert abs(found - 1.0) < 0.6 * (naive - 1.0), cls.name


def test_equal_weights_are_no_weights(data):
    naive = us.Naive(learner=us.Linear()).fit(data.train)
    ips = us.IPS(learner=us.Linear()).fit(data.train, propensity=0.2)
    np.testing.assert_allclose(ips.predict(data.train), naive.predict(data.train), rtol=1e-6)


def test_an_imputer_that_is_never_corrected_is_eib(data):
    """With p = 1 the doubly robust pseudo-outcome is that of EIB."""
    eib = us.EIB(learner=us.Linear(), normalise_weights=False).fit(data.train)
    dr = us.DRJL(learner=us.Linear()).fit(data.train, propensity=1.0)
    np.testing.assert_allclose(dr.predict(data.train), eib.predict(data.train), rtol=1e-6)


def test_a_fit_of_many_is_one_fit_each(data):
    sets = {"known": data.truth.propensity, "half": 0.5}
    many = us.IPS(learner=us.Linear()).fit_many(data.train, propensities=sets)
    alone = us.IPS(learner=us.Linear()).fit(data.train, propensity=data.truth.propensity)
    np.testing.assert_array_equal(many["known"].predict(data.train), alone.predict(data.train))


@pytest.mark.parametrize("cls", [us.ESMM, us.ESCM2DR, us.DDPO, us.TDR, us.CDR, us.StableDR, us.ATT, us.GPL])
def test_methods_of_several_networks_say_so_in_one_line(cls, data):
    with pytest.raises(ParameterError, match=rf"{cls.name} trains networks .*To fix: use a network"):
        cls(learner=us.Trees()).fit(data.train, propensity=0.5)


def test_only_networks_start_from_a_fitted_model(data):
    model = us.Naive(learner=us.Linear()).fit(data.train)
    with pytest.raises(ParameterError, match="only networks start from a fitted model"):
        us.Naive(learner=us.Linear()).fit(data.train, start=model)
