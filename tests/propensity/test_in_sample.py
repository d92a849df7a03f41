"""Propensities that saw the clicks they are to weigh: not by default, and never silently."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import unskew as us
from unskew.propensity import InSampleWarning

KINDS = {
    "network": lambda **options: us.Propensity(learner=us.MF(dim=2), epochs=1, **options),
    "popularity": us.PopularityPropensity,
    "linear": lambda **options: us.Propensity(learner=us.Linear(), **options),
    "trees": lambda **options: us.Propensity(learner=us.Trees(max_trees=5), **options),
    "naive_bayes": us.NaiveBayesPropensity,
}
TOLD = r"in-sample.*crossfit=None.*To fix: fit it with crossfit=5"


@pytest.fixture(scope="module")
def data():
    return us.load("synthetic", n_users=60, n_items=40, density=0.2, seed=1)


@pytest.fixture(scope="module")
def impressions():
    random = np.random.default_rng(0)
    rows = {"user": random.integers(400, size=3000), "item": random.integers(200, size=3000)}
    click = random.random(3000) < 0.3
    conversion = np.where(click, random.integers(2, size=3000), np.nan)
    return us.Log.from_arrays(**rows, click=click, conversion=conversion, space="impressions")


def again(log, rows=slice(None)):
    """An equal log (or a part of it) that shares nothing with the first."""
    return us.Log.from_arrays(
        user=log.users.ids[log.user][rows],
        item=log.items.ids[log.item][rows],
        click=log.click[rows],
        conversion=log.conversion[rows],
        space=log.space,
    )


def model():
    return us.IPS(learner=us.MF(dim=2), epochs=1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_propensity_is_cross_fitted_by_default(kind):
    assert KINDS[kind]().crossfit == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_debiaser_tells_that_propensities_saw_its_clicks_and_is_silent_where_they_did_not(kind, data):
    sample = {"random_sample": data.test} if kind == "naive_bayes" else {}
    inside = KINDS[kind](crossfit=None).fit(data.train, **sample)
    outside = KINDS[kind](crossfit=2).fit(data.train, **sample)
    for log in (data.train, again(data.train), again(data.train, slice(None, None, 3))):
        with pytest.warns(InSampleWarning, match=TOLD) as told:
            model().fit(log, propensity=inside, seeds=2)
        (mine,) = [each for each in told if each.category is InSampleWarning]
        assert mine.filename == __file__, "the line that gave the propensity is shown"
        model().fit(log, propensity=outside, seeds=2)


def test_impressions_are_compared_by_their_pairs(impressions):
    half = np.arange(len(impressions)) < 1500
    earlier, later = impressions.take(half), impressions.take(~half)
    propensity = us.PopularityPropensity(crossfit=None).fit(earlier)
    model().fit(later, propensity=propensity)
    with pytest.warns(InSampleWarning, match=TOLD):
        model().fit(again(earlier), propensity=propensity)


def test_a_loaded_propensity_is_taken_to_have_seen_the_clicks(data, tmp_path):
    for folds, told in ((None, 1), (2, 0)):
        KINDS["network"](crossfit=folds).fit(data.train).save(tmp_path / str(folds))
        loaded = us.load_propensity(tmp_path / str(folds))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            model().fit(data.train, propensity=loaded)
        assert [each.category for each in seen].count(InSampleWarning) == told


def test_arrays_and_own_estimators_are_not_judged(data):
    class Own:
        seeds_ = (0,)

        def predict_each(self, log, calibrated=True):
            return np.full((1, len(log)), 0.2)

    for propensity in (Own(), np.full(len(data.train), 0.2)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            fitted = model().fit(data.train, propensity=propensity)
        assert InSampleWarning not in [each.category for each in seen]
        assert [each.largest for each in fitted.clipping_] == pytest.approx([5.0])


def test_what_is_warned_of_clicks_that_are_noise_look_likely_to_the_model_that_saw_them():
    log = us.load("synthetic", n_users=80, n_items=60, density=0.1, bias=0.0, seed=2).train
    learned = {"learner": us.MF(dim=16), "calibrator": None, "epochs": 30, "patience": None}
    above = {}
    for folds in (None, 2):
        p = us.Propensity(**learned, crossfit=folds, learning_rate=0.02).fit(log).predict_matrix_each()[0]
        above[folds] = p[log.user, log.item].mean() / p.mean()
    assert above[None] > 2
    assert above[2] < 1.3
