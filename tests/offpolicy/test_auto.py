"""``us.Auto``: candidates are trained, halved, and decided upon; what is shipped is an ordinary model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import unskew as us
from unskew.base.errors import DataError, ParameterError
from unskew.data.datasets.dataset import with_unbiased_share
from unskew.offpolicy.auto import CANDIDATES, Searched, candidates_of
from unskew.offpolicy.decision import MEAN, decide

QUICK = {"epochs": 3, "batch_size": 256}


@pytest.fixture(scope="module")
def data():
    drawn = us.load("synthetic", n_users=60, n_items=50, density=0.15, bias=1.2, test_per_user=25)
    return with_unbiased_share(drawn, 0.3)


@pytest.fixture(scope="module")
def fitted(data):
    auto = us.Auto(learner=us.MF(dim=4), candidates=("ips", "snips", "esmm"), members=2, parameters=QUICK)
    return auto.fit(data.train, propensity=data.truth.propensity, unbiased=data.unbiased, device="cpu")


def test_the_better_half_is_trained_as_an_ensemble(fitted):
    rungs = {rung: [each for each in fitted.searched_.tried if each.rung == rung] for rung in (0, 1)}
    assert len(rungs[0]) == 8
    assert {each.members for each in rungs[0]} == {1}
    assert {each.members for each in rungs[1]} == {2}
    assert rungs[1][0].name == "naive"
    assert len(rungs[1]) == 1 + 4
    lower = [each.advantage for each in rungs[0] if each.left_out]
    upper = [each.advantage for each in rungs[0] if not each.left_out and each.name != "naive"]
    assert max(lower) <= min(upper)


def test_what_is_shipped_is_a_model_that_saves_and_loads(fitted, data, tmp_path):
    model = fitted.model_
    assert model.members == 2
    np.testing.assert_array_equal(fitted.predict_each(data.test), model.predict_each(data.test))
    fitted.save(tmp_path / "model")
    loaded = us.load_model(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(loaded.predict_each(data.test), fitted.predict_each(data.test), rtol=1e-6)
    assert us.evaluate(fitted, data.test)["auc"].shape == (1,)
    # Both kinds of evidence stand beside every candidate of the last rung.
    assert all(each.biased is not None and each.advantage is not None for each in fitted.decision_.judged)
    assert fitted.decision_.bias is not None
    assert model.recalibration_ is not None


def test_without_a_sample_the_naive_ensemble_is_shipped(data):
    auto = us.Auto(learner=us.MF(dim=4), candidates=("ips",), members=2, parameters=QUICK)
    auto.fit(data.train, propensity=data.truth.propensity, device="cpu")
    assert auto.decision_.chosen == "naive"
    assert auto.model_.name == "naive"
    assert auto.model_.members == 2
    assert [each.name for each in auto.searched_.tried] == ["naive", "ips"]
    assert "Biased clicks cannot decide" in auto.decision_.sentence


def test_candidates_follow_the_density_and_the_kind_of_log(data):
    assert [each.params for each in candidates_of(data.train, ["ips"])][-1] == {"regularisation": 15.0}
    sparse = us.load("synthetic", density=0.02, n_users=60, n_items=50).train
    names = [each.name for each in candidates_of(sparse)]
    assert names[:2] == ["naive", "naive λ=1"]
    assert len(names) == 2 * (1 + len(CANDIDATES))


def test_what_cannot_be_searched_is_one_line(data):
    with pytest.raises(us.UnskewError, match="unknown method 'nothing'"):
        us.Auto(candidates=("nothing",)).fit(data.train, propensity=0.1)
    with pytest.raises(ParameterError, match="members and learner are parameters of Auto itself"):
        us.Auto(parameters={"members": 3}).fit(data.train, propensity=0.1)


def test_what_cannot_be_judged_is_said_before_anything_is_trained(data, monkeypatch):
    monkeypatch.setattr(us.Naive, "fit", lambda *given, **named: pytest.fail("it was trained"))
    auto = us.Auto(learner=us.MF(dim=4), candidates=())
    outcome = data.unbiased.known_conversion()
    few = np.concatenate([np.flatnonzero(outcome == label)[:2] for label in (0, 1)])
    for sample in (data.unbiased.take(outcome == 1), data.unbiased.take(few)):
        with pytest.raises(DataError, match="not 5 or more with both converted and unconverted"):
            auto.fit(data.train, propensity=0.1, unbiased=sample, device="cpu")
    with pytest.raises(DataError, match=r"\d pairs of the random sample were clicked in the log"):
        auto.fit(data.train, propensity=0.1, unbiased=data.train, device="cpu")
    stranger = us.Log.from_arrays(user=[10**6 + n for n in range(6)], item=range(6), conversion=[0, 1] * 3)
    with pytest.raises(DataError, match="1000000"):
        auto.fit(data.train, propensity=0.1, unbiased=stranger, device="cpu")
    with pytest.raises(ParameterError, match="no candidate has a parameter 'epoch'"):
        us.Auto(parameters={"epoch": 3}).fit(data.train, propensity=0.1, device="cpu")
    with pytest.raises(ParameterError, match="users cannot be paired by 'recall'"):
        us.Auto(criterion="recall").fit(data.train, propensity=0.1, device="cpu")


@pytest.mark.parametrize("share", [0.0, 0.002])
def test_held_out_clicks_that_are_none_or_of_one_outcome_are_not_asked(data, share):
    """The sample decides without them."""
    quick = {**QUICK, "epochs": 1, "validation_share": share}
    auto = us.Auto(learner=us.MF(dim=2), candidates=("ips",), grid=False, members=1, parameters=quick)
    auto.fit(data.train, propensity=0.2, unbiased=data.unbiased, device="cpu")
    (judged,) = auto.decision_.judged
    assert judged.advantage is not None
    assert judged.biased is None
    assert auto.model_.split_.held_out == (1 if share else 0)


def test_a_mean_with_scores_among_its_models_predicts_rates(data):
    methods = {"ddpo": us.DDPO, "ips": us.IPS}
    models = {
        name: method(learner=us.MF(dim=2), epochs=1).fit(data.train, propensity=0.2, device="cpu")
        for name, method in methods.items()
    }
    decision = replace(decide(None, candidates=("naive",)), chosen=MEAN, shipped=("ddpo", "ips"))
    shipped = Searched(models, decision, ()).chosen
    assert shipped.predicts_rates
    assert [each.name for each in (shipped, *shipped.beside_)] == ["ips", "ddpo"]
