"""Logistic regression and classifiers on the features that networks read."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

import unskew as us
from contracts.feature_world import FEATURES, log_of, part, table
from unskew.propensity.design import MOST_CODES, Design
from unskew.propensity.per_replica import ReplicaCells


@pytest.fixture(scope="module")
def known():
    return log_of(part(table(), known=True))


@pytest.fixture(scope="module")
def strangers():
    return log_of(part(table(), known=False))


@pytest.fixture(scope="module")
def logistic(known):
    return us.LogisticPropensity(crossfit=2, calibrator=None).fit(known)


def columns_of(log, encoders):
    design = Design(encoders)
    row = np.arange(len(log))
    return design.of_cells(log, log.user, log.item, row), design


def test_columns_are_the_codes_and_the_numbers(known):
    columns, design = columns_of(known, known.encoders)
    assert design.widths == [4, 2 + 6, 6 + 1]
    assert set(np.unique(columns[:, :4])) == {0.0, 1.0}
    np.testing.assert_allclose(columns[:, :4].sum(axis=1), 1)
    reader = us.LogisticPropensity(crossfit=2).fit(known).reader()
    np.testing.assert_allclose(design.of_rows(reader.of_log(known).rows), columns)


def test_vocabularies_of_many_values_are_left_out(known):
    many = log_of(part(table(), known=True), features=[us.Category("noise", role="row", min_count=1)])
    assert many.schema["noise"].size > MOST_CODES
    assert Design(many.encoders).widths == [0, 0, 0]


def test_the_fit_is_that_of_scikit_learn(known, logistic):
    """c, a, b and the effects of columns and products, at the least penalised likelihood."""
    replica = ReplicaCells(logistic.cells_, 0, "logistic")
    cells = replica.training(None)
    design = Design(known.encoders)
    columns = design.of_cells(known, cells.user, cells.item, cells.cell)
    # In training all are divided by their greatest absolute value, so that one penalty suits all.
    x, y, v = design.split(columns / np.abs(columns_of(known, known.encoders)[0]).max(axis=0).clip(1e-9))
    products = np.einsum("nk,nl->nkl", x, y).reshape(len(x), -1)
    one_hot = np.hstack([np.eye(known.n_users)[cells.user], np.eye(known.n_items)[cells.item]])
    inputs = np.hstack([one_hot, x, y, products, v])
    oracle = LogisticRegression(C=1.0, tol=1e-8, max_iter=5000).fit(inputs, cells.click)
    ours = logistic.scorer_.models[0](cells.user, cells.item, columns)
    np.testing.assert_allclose(ours, oracle.predict_proba(inputs)[:, 1], atol=2e-3)


def test_features_help_and_somebody_new_is_served(known, strangers, logistic):
    ids = us.LogisticPropensity(crossfit=2, calibrator=None, features=False).fit(known)
    rows = known.click
    assert log_loss(rows, logistic.predict(known)) < log_loss(rows, ids.predict(known)) - 0.01
    p = logistic.predict(strangers)
    assert roc_auc_score(strangers.click, p) > 0.6
    assert p.mean() == pytest.approx(strangers.click.mean(), rel=0.15)


def test_in_the_matrix_it_reads_the_tables_of_users_and_items():
    data = us.load("synthetic", n_users=60, n_items=40, density=0.2, features="auto")
    p = us.LogisticPropensity(crossfit=2).fit(data.train)
    assert p.encoders_ is not None
    assert p.predict_matrix_each().shape == (1, 60, 40)
    by_tables = us.LogisticPropensity(crossfit=2).fit(data.train.with_features(None))
    ours, theirs = (each.diagnose()["raw"]["auc"] for each in (p, by_tables))
    assert ours == pytest.approx(theirs, abs=0.01)


@pytest.mark.usefixtures("undrawn", "briefly")
def test_a_run_of_ids_keeps_what_its_propensity_reads(tmp_path):
    data = us.load("synthetic", n_users=50, n_items=40, density=0.2, features="auto")
    small = {"n_users": 50, "n_items": 40, "density": 0.2, "features": "auto"}
    config = us.Config(options=small, backbone="mf", propensity="logistic", seeds=1, crossfit=2)
    result = us.run(config)
    result.save(tmp_path / "run")
    loaded = us.load_propensity(tmp_path / "run")
    assert us.load_model(tmp_path / "run").encoders_ is None
    np.testing.assert_allclose(
        loaded.predict_each(data.test), result.propensity.predict_each(data.test), rtol=1e-12
    )


def test_users_and_items_without_a_row_have_no_effect_of_their_own(known):
    some = known.take(np.flatnonzero(known.user % 3 == 0))
    fitted = us.LogisticPropensity(crossfit=2, calibrator=None).fit(some)
    here = np.unique(some.user)
    for model in fitted.scorer_.models:
        assert len(model.user) == known.n_users + 1
        assert not np.delete(model.user, here).any()
        assert (model.user[here] != 0).mean() > 0.9
    assert roc_auc_score(some.click, fitted.predict(some)) > 0.6


def test_pairs_of_a_matrix_that_are_not_listed_count_for_users_without_any():
    whole = log_of(part(table(), known=True), FEATURES[:3], space="matrix", conversion=None, duplicates="max")
    log = whole.take(np.flatnonzero(whole.user != 1))
    fitted = us.LogisticPropensity(crossfit=None, calibrator=None).fit(log)
    (model,) = fitted.scorer_.models
    assert model.user[1] < np.quantile(model.user, 0.1)
    assert fitted.predict_matrix_each()[0, 1].mean() < 0.7 * fitted.predict_matrix_each().mean()
