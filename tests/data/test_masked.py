"""What a mask hides is missing, wherever an array is taken: never the value under the mask."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.base.errors import DataError
from unskew.data.vocabulary import Vocabulary
from unskew.metrics import CalibrationSketch, ece
from unskew.metrics.ranking import ranking_metrics
from unskew.theory import ips_bias

SHOWN = [False, True, False, False]


def masked(values, mask=SHOWN):
    return np.ma.array(values, mask=mask)


@pytest.mark.parametrize("ids", [[1, 2, 3, 4], ["a", "b", "c", "d"], [1.0, 2.0, 3.0, 4.0]])
def test_a_masked_id_is_a_missing_id(ids):
    with pytest.raises(DataError, match="column 'user', row 1: id is missing"):
        us.Log.from_arrays(user=masked(ids), item=[1, 2, 3, 4])
    with pytest.raises(DataError, match="id is missing"):
        Vocabulary.of(ids, name="user").encode(masked(ids))


def test_masked_clicks_and_conversions_are_missing():
    pairs = {"user": [1, 1, 2, 2], "item": [1, 2, 1, 2]}
    with pytest.raises(DataError, match="column 'click', row 1: click is missing"):
        us.Log.from_arrays(**pairs, click=masked([1, 1, 0, 1]))
    with pytest.raises(DataError, match="conversion is missing where click is 1"):
        us.Log.from_arrays(**pairs, click=[1, 1, 0, 1], conversion=masked([1, 0, 0, 0]))
    log = us.Log.from_arrays(**pairs, click=[1, 1, 0, 1], columns={"age": masked([4, 5, 6, 7])})
    np.testing.assert_array_equal(log.columns["age"], [4, np.nan, 6, 7])


def test_masked_scores_and_outcomes_are_missing():
    score, outcome = [0.2, 0.9, 0.4, 0.5], [0, 1, 0, 1]
    for wrong in ({"score": masked(score), "outcome": outcome}, {"score": score, "outcome": masked(outcome)}):
        with pytest.raises(DataError, match="row 1"):
            ece(**wrong)
        with pytest.raises(DataError, match="row 1"):
            CalibrationSketch.of(**wrong)
        with pytest.raises(DataError, match="row 1"):
            us.Platt().fit(*wrong.values())
    with pytest.raises(DataError, match="row 1"):
        us.Platt().fit(score, outcome).predict(masked(score))


@pytest.mark.parametrize("which", ["user", "score", "outcome"])
def test_masked_rows_are_not_ranked(which):
    rows = {"user": [1, 1, 2, 2], "score": [0.2, 0.9, 0.4, 0.5], "outcome": [0, 1, 0, 1]}
    rows[which] = masked(rows[which])
    with pytest.raises(DataError, match="row 1"):
        ranking_metrics(**rows)


def test_masked_propensities_are_not_weights():
    log = us.Log.from_arrays(user=[1, 1, 2, 2], item=[1, 2, 1, 3], conversion=[1, 0, 1, 0])
    with pytest.raises(DataError, match="propensity is nan, not a probability"):
        us.IPS(epochs=1).fit(log, propensity=masked([0.5, 0.5, 0.5, 0.5]))
    with pytest.raises(DataError, match="NaN"):
        ips_bias(error=[1.0, 2.0, 3.0, 4.0], propensity_true=masked([0.5] * 4), propensity_used=[0.5] * 4)


@pytest.mark.parametrize("propensity", [0.0, np.zeros(4), np.zeros((2, 3))])
def test_propensities_of_0_on_every_click_are_refused(propensity):
    log = us.Log.from_arrays(user=[1, 1, 2, 2], item=[1, 2, 1, 3], conversion=[1, 0, 1, 0])
    with pytest.raises(DataError, match="the propensity of every click is 0"):
        us.IPS(epochs=1).fit(log, propensity=propensity)
