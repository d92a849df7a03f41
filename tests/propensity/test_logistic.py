"""Logistic regression against scikit-learn's, and against a world that it can express."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

import unskew as us
from unskew.base.errors import DataError, ParameterError, TrainingError
from unskew.propensity import logistic


def folds_of_cells(propensity, cells):
    """Of the first seed."""
    return propensity.fold_of_pairs_each(*np.divmod(cells, len(propensity.items_)))[0]


def clicks_of(log):
    clicks = np.zeros(log.population_size)
    clicks[log.cell[log.clicked]] = 1
    return clicks


@pytest.mark.parametrize("fold_by", ["cell", "user"])
@pytest.mark.parametrize("kind", ["logistic", "sklearn"])
def test_sampled_negatives_are_corrected_to_the_population(kind, fold_by):
    log = us.load("synthetic", n_users=200, n_items=150, density=0.05, seed=4).train
    options = {"calibrator": None, "crossfit": 2, "fold_by": fold_by}
    if kind == "logistic":
        make = us.LogisticPropensity
        options["penalty"] = 30.0
    else:
        make = us.SklearnPropensity
        options["estimator"] = LogisticRegression()
    full = make(**options).fit(log, seeds=4).predict_matrix_each().mean(0)
    sampled = make(**options, negatives=2).fit(log, seeds=4).predict_matrix_each().mean(0)
    assert sampled.mean() == pytest.approx(log.density, rel=0.04)
    assert np.corrcoef(logit(full.ravel()), logit(sampled.ravel()))[0, 1] > 0.95
    assert (logit(sampled) - logit(full)).mean() == pytest.approx(0, abs=0.1)


def test_is_scikit_learns_optimum_on_the_written_out_design(log, monkeypatch):
    monkeypatch.setattr(logistic, "GRADIENT_TOLERANCE", 1e-7)
    propensity = us.LogisticPropensity(crossfit=2, calibrator=None, penalty=2.0).fit(log)
    fold = folds_of_cells(propensity, np.arange(log.population_size))
    user, item = np.divmod(np.arange(log.population_size), log.n_items)
    x, y = (f.values / np.abs(f.values).max(0) for f in (log.user_features, log.item_features))
    products = (x[user][:, :, None] * y[item][:, None, :]).reshape(len(user), -1)
    design = np.hstack([np.eye(log.n_users)[user], np.eye(log.n_items)[item], x[user], y[item], products])
    click, found = clicks_of(log), propensity.predict_matrix_each().ravel()
    for k in range(2):
        oracle = LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-10).fit(
            design[fold != k], click[fold != k]
        )
        expected = oracle.predict_proba(design[fold == k])[:, 1]
        np.testing.assert_allclose(found[fold == k], expected, rtol=1e-5)


def test_a_search_that_never_settles_is_an_error_that_says_how_far_it_came(log, monkeypatch):
    monkeypatch.setattr(logistic, "MOST_STEPS", 2)
    with pytest.raises(TrainingError, match=r"a derivative is .* standard errors after 2 steps \(.*LIMIT"):
        us.LogisticPropensity(crossfit=2, calibrator=None).fit(log)


def test_many_parameters_end_earlier_and_as_well(log, monkeypatch):
    exact = us.LogisticPropensity(calibrator=None, crossfit=None).fit(log).predict_matrix_each()
    monkeypatch.setattr(logistic, "MANY_PARAMETERS", 0)
    steps = []
    plain = logistic.Likelihood.loss
    monkeypatch.setattr(logistic.Likelihood, "loss", lambda self, x: steps.append(1) or plain(self, x))
    early = us.LogisticPropensity(calibrator=None, crossfit=None).fit(log).predict_matrix_each()
    few = len(steps)
    monkeypatch.setattr(logistic, "MANY_PARAMETERS", 10**9)
    us.LogisticPropensity(calibrator=None, crossfit=None).fit(log)
    assert few < len(steps) - few
    assert np.abs(early / exact - 1).mean() < 0.02


def test_ids_without_a_cell_cost_nothing_and_have_what_the_features_say(impressions):
    """A vocabulary of a hundred thousand users, of whom a few are there."""
    small = us.LogisticPropensity(crossfit=2).fit(impressions)
    user, item = (impressions.users.ids[impressions.user], impressions.items.ids[impressions.item])
    more = np.concatenate([impressions.users.ids, np.arange(10**5) + 10**7])
    wide = us.Log.from_arrays(
        user=user,
        item=item,
        click=impressions.click,
        space="impressions",
        users=us.Vocabulary.of(more, name="user"),
    )
    large = us.LogisticPropensity(crossfit=2).fit(wide)
    np.testing.assert_allclose(large.predict(wide), small.predict(impressions), rtol=1e-6)
    known = large.predict_pairs_each([10**7] * 2, impressions.items.ids[:2], calibrated=False)
    assert ((known > 0) & (known < 1)).all()


def test_finds_the_propensities_of_a_world_it_can_express():
    random = np.random.default_rng(2)
    z = -2 + random.normal(0, 1, (200, 1)) + random.normal(0, 0.7, (1, 150))
    user, item = np.nonzero(random.random(z.shape) < expit(z))
    world = us.Log.from_arrays(user=user, item=item, users=us.Vocabulary.range(200, name="user"))
    p = us.LogisticPropensity(crossfit=2).fit(world).predict_matrix_each()[0]
    assert np.corrcoef(logit(p).ravel(), z.ravel())[0, 1] > 0.9
    assert np.polyfit(logit(p).ravel(), z.ravel(), 1)[0] == pytest.approx(1, abs=0.1)


def test_products_of_features_tell_what_ids_cannot():
    world = us.load("synthetic").train
    nll = {
        products: us.LogisticPropensity(interactions=products, penalty=5.0, crossfit=2)
        .fit(world)
        .diagnose()["calibrated"]["nll"]
        for products in (False, True)
    }
    assert nll[True] < nll[False] - 1e-3


def test_bad_parameters_and_a_log_without_features(log, impressions):
    with pytest.raises(ParameterError, match="penalty must be above 0"):
        us.LogisticPropensity(penalty=0).fit(log)
    with pytest.raises(ParameterError, match="cannot both be left out"):
        us.LogisticPropensity(ids=False, features=False).fit(log)
    with pytest.raises(DataError, match=r"no features of users or items.*ids=True"):
        us.LogisticPropensity(ids=False).fit(impressions)
