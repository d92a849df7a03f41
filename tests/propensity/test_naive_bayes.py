"""Naive Bayes against Bayes' rule, a known world, and what it may look at."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.base.errors import DataError, NotFittedError, ParameterError


def folds_of_cells(propensity, cells):
    """Of the first seed."""
    return propensity.fold_of_pairs_each(*np.divmod(cells, len(propensity.items_)))[0]


def test_is_bayes_rule_on_the_counts_of_the_other_folds(data, log):
    propensity = us.NaiveBayesPropensity(crossfit=2, calibrator=None).fit(log, random_sample=data.test)
    r, found = log.known_conversion(), propensity.predict_each(log)[0]
    fold, of_test = folds_of_cells(propensity, log.cell), folds_of_cells(propensity, data.test.cell)
    for k in range(2):
        positive = [
            (rates[chosen != k].sum() + 1) / ((chosen != k).sum() + 2)
            for rates, chosen in ((data.test.known_conversion(), of_test), (r, fold))
        ]
        for conversion in (0, 1):
            given = [rate if conversion else 1 - rate for rate in positive]
            joint = log.density * given[1]
            expected = joint / (joint + (1 - log.density) * given[0])
            np.testing.assert_allclose(found[(fold == k) & (r == conversion)], expected, rtol=1e-6)


def test_comes_close_to_the_truth_of_a_world():
    world = us.load("synthetic", n_users=300, n_items=200, test_per_user=40)
    propensity = us.NaiveBayesPropensity(calibrator=None, crossfit=None).fit(
        world.train, random_sample=world.test
    )
    found, r = propensity.predict(world.train), world.train.known_conversion()
    for conversion in (0, 1):
        truth = world.truth.propensity[world.truth.labels == conversion].mean()
        assert found[r == conversion][0] == pytest.approx(truth, rel=0.06)
    assert propensity.diagnose()["raw"]["weight_check"] == pytest.approx(1, abs=0.05)


def test_says_what_it_saw_and_keeps_the_rest_for_the_test(data, log):
    propensity = us.NaiveBayesPropensity(sample_share=0.25, crossfit=2).fit(log, random_sample=data.test)
    seen = round(0.25 * len(data.test))
    assert f"saw the conversions of {seen} pairs" in propensity.message_
    assert len(propensity.unseen_) == len(data.test) - seen
    judged = propensity.held_out_sketches(calibrated=False)[0]
    assert judged.rows == log.n_clicks + seen
    assert us.NaiveBayesPropensity(crossfit=2).fit(log, random_sample=data.test).unseen_ is None


def test_ips_takes_it_and_methods_over_all_pairs_are_told(data, log):
    propensity = us.NaiveBayesPropensity(crossfit=2).fit(log, random_sample=data.test)
    us.IPS(learner=us.MF(dim=2), epochs=1).fit(log, propensity=propensity)
    everywhere = next(m for m in us.METHODS.values() if m.needs_propensity_everywhere)
    with pytest.raises(ParameterError, match="not of all of D"):
        everywhere(learner=us.MF(dim=2), epochs=1).fit(log, propensity=propensity)
    np.testing.assert_allclose(propensity.predict_pairs_each([3], [4]), log.density, rtol=0.2)


def test_bad_input_is_told(data, log, impressions):
    with pytest.raises(ParameterError, match=r"needs pairs shown at random.*random_sample"):
        us.NaiveBayesPropensity().fit(log)
    with pytest.raises(ParameterError, match="space 'matrix'"):
        us.NaiveBayesPropensity().fit(impressions, random_sample=data.test)
    other = us.Log.from_arrays(user=[0, 1], item=[0, 1], conversion=[0, 1])
    with pytest.raises(DataError, match="other users or items"):
        us.NaiveBayesPropensity().fit(log, random_sample=other)
    with pytest.raises(ParameterError, match="sample_share must be in"):
        us.NaiveBayesPropensity(sample_share=0).fit(log, random_sample=data.test)


def test_a_folder_says_what_was_seen_and_keeps_no_sample(data, log, tmp_path):
    propensity = us.NaiveBayesPropensity(sample_share=0.25, crossfit=2).fit(log, random_sample=data.test)
    propensity.save(tmp_path / "p")
    loaded = us.load_propensity(tmp_path / "p")
    assert loaded.message_ == propensity.message_
    with pytest.raises(NotFittedError, match="no random sample to be calibrated on"):
        loaded.use_log(log)
