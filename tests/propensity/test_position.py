"""Position-based propensities: examination times relevance."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import unskew as us
from unskew.base.errors import DataError, ParameterError
from unskew.propensity.per_replica import TrainingCells
from unskew.propensity.position import Inputs, PositionLikelihood

EXAMINED = np.array([1.0, 0.6, 0.3, 0.1])
POSITIONS = np.array([1, 2, 3, 10])


class Slates:
    """Impressions at positions drawn at random, or by the relevance of the items."""

    def __init__(self, rows: int = 40_000, *, sorted_by_relevance: bool = False) -> None:
        random = np.random.default_rng(2)
        self.user, self.item = random.integers(40, size=rows), random.integers(30, size=rows)
        taste = random.normal(size=40), random.normal(size=30)
        logit = -1.0 + 0.7 * taste[0][self.user] + 0.9 * taste[1][self.item]
        place = random.integers(4, size=rows)
        if sorted_by_relevance:
            noisy = -logit + random.normal(size=rows)
            place = np.searchsorted(np.quantile(noisy, [0.25, 0.5, 0.75]), noisy)
        self.position = POSITIONS[place]
        self.p = EXAMINED[place] * expit(logit)
        self.click = (random.random(rows) < self.p).astype(int)

    @property
    def log(self) -> us.Log:
        return us.Log.from_arrays(
            user=self.user,
            item=self.item,
            click=self.click,
            space="impressions",
            columns={"position": self.position},
        )


@pytest.fixture(scope="module")
def slates():
    return Slates()


@pytest.fixture(scope="module")
def fitted(slates):
    return us.PositionPropensity(crossfit=2).fit(slates.log)


def test_positions_at_random_identify_the_curve_and_the_clicks(slates, fitted):
    np.testing.assert_array_equal(fitted.positions_, POSITIONS)
    np.testing.assert_allclose(fitted.examination_, EXAMINED, atol=0.04)
    assert fitted.examination_[0] == 1.0
    p = fitted.predict(slates.log)
    assert np.corrcoef(p, slates.p)[0, 1] > 0.97
    assert p.mean() == pytest.approx(slates.p.mean(), rel=0.03)
    blind = us.Propensity(learner=us.Linear(), crossfit=2).fit(slates.log).diagnose()["calibrated"]
    assert fitted.diagnose()["calibrated"]["nll"] < blind["nll"] - 0.02


def test_where_ids_explain_the_order_the_curve_is_found_though_click_rates_fall_too_steeply():
    slates = Slates(sorted_by_relevance=True)
    found = us.PositionPropensity(crossfit=2).fit(slates.log).examination_
    rates = np.array([slates.click[slates.position == each].mean() for each in POSITIONS])
    off = [np.abs(curve[1:] / EXAMINED[1:] - 1).max() for curve in (rates / rates[0], found)]
    assert off[0] > 0.5
    assert off[1] < 0.2


def test_examination_of_rows_is_that_of_their_position(slates, fitted):
    theta = fitted.predict_examination(slates.log)
    place = np.searchsorted(POSITIONS, slates.position)
    np.testing.assert_array_equal(theta, fitted.examination_[place])


def test_at_one_position_it_is_logistic_regression(slates):
    log = replace(slates.log.take(np.arange(5000)), columns={"position": np.ones(5000)})
    ours = us.PositionPropensity(crossfit=2, calibrator=None).fit(log)
    fold = ours.fold_of_pairs_each(log.users.ids[log.user], log.items.ids[log.item])[0]
    one_hot = np.hstack([np.eye(log.n_users)[log.user], np.eye(log.n_items)[log.item]])
    for k in (0, 1):
        own, others = fold == k, fold != k
        oracle = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(one_hot[others], log.click[others])
        expected = oracle.predict_proba(one_hot[own])[:, 1]
        np.testing.assert_allclose(ours.predict(log)[own], expected, rtol=2e-3)
    np.testing.assert_array_equal(ours.examination_, [1.0])


def test_derivatives_are_those_of_the_loss():
    random, rows = np.random.default_rng(0), 300
    user, item, place = (random.integers(n, size=rows) for n in (4, 3, 3))
    click = (random.random(rows) < 0.3).astype(float)
    left, right = np.column_stack([np.ones(4), random.normal(size=4)]), np.ones((3, 1))
    inputs = Inputs(left, right, np.array([[False], [True]]))
    likelihood = PositionLikelihood(
        TrainingCells(user, item, click, user, user), inputs, place, 3, ids=True, penalty=0.5
    )
    theta = random.normal(size=1 + 4 + 3 + 1 + 2)
    scaled = theta / likelihood.unit
    numeric = approx_fprime(scaled, lambda x: likelihood.loss(x)[0], 1e-6)
    np.testing.assert_allclose(likelihood.loss(scaled)[1], numeric, rtol=1e-4, atol=1e-4)
    a, b, w = theta[1:5], theta[5:8], theta[8]
    examined = np.array([1.0, *expit(theta[9:])])
    p = examined[place] * expit(theta[0] + a[user] + b[item] + w * left[user, 1])
    loss = -(click * np.log(p) + (1 - click) * np.log1p(-p)).sum() + 0.25 * (theta[1:9] ** 2).sum()
    loss -= 0.5 * (np.log(examined[1:]) + np.log1p(-examined[1:])).sum()
    assert likelihood.loss(scaled)[0] == pytest.approx(loss)


def test_a_position_without_clicks_is_seldom_examined_and_keeps_a_weight(slates):
    log = slates.log
    click = np.where(log.columns["position"] == 10, 0, log.click).astype(np.uint8)
    fitted = us.PositionPropensity(crossfit=2, calibrator=None).fit(replace(log, click=click))
    assert 0 < fitted.examination_[-1] < 0.005
    assert fitted.predict(log).min() > 0


def test_a_position_that_shares_no_item_is_warned_of(slates):
    position = np.where(slates.item < 8, 10, 1)
    log = replace(slates.log, columns={"position": position})
    with pytest.warns(UserWarning, match="positions 10 share no item with position 1: the model alone"):
        us.PositionPropensity(crossfit=2).fit(log)
    chained = replace(slates.log, columns={"position": np.where(slates.item < 8, 10, slates.item % 3)})
    shared = replace(chained, columns={"position": np.where(slates.user < 4, 0, chained.columns["position"])})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        us.PositionPropensity(crossfit=2).fit(shared)


def test_mistakes_are_named(slates, fitted):
    log, make = slates.log, us.PositionPropensity
    with pytest.raises(DataError, match=r"no column 'position' of positions.*it has: none"):
        make().fit(replace(log, columns={}))
    with pytest.raises(DataError, match=r"no column 'place' of positions.*it has: position"):
        make(position="place").fit(log)
    gap = np.where(np.arange(len(log)) == 7, np.nan, slates.position)
    with pytest.raises(DataError, match="column 'position', row 7: a position is missing"):
        make().fit(replace(log, columns={"position": gap}))
    with pytest.raises(ParameterError, match=r"positions are of impressions.*space='impressions'"):
        make().fit(us.load("synthetic", n_users=30, n_items=20, density=0.3).train)
    new = replace(log, columns={"position": np.where(np.arange(len(log)) == 3, 99, slates.position)})
    with pytest.raises(DataError, match="column 'position', row 3: position 99 was not there in training"):
        fitted.predict(new)
    with pytest.raises(ParameterError, match=r"pairs have none.*predict\(log\)"):
        fitted.predict_pairs_each([1], [2])
