"""Popularity against its formula."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.base.errors import ParameterError


@pytest.fixture(scope="module")
def data():
    return us.load("synthetic", n_users=80, n_items=60, density=0.12, seed=1)


@pytest.fixture(scope="module")
def log(data):
    return data.train


def folds_of_cells(propensity, cells):
    """Of the first seed."""
    return propensity.fold_of_pairs_each(*np.divmod(cells, len(propensity.items_)))[0]


def clicks_of(log):
    clicks = np.zeros(log.population_size)
    clicks[log.cell[log.clicked]] = 1
    return clicks


def test_is_the_product_of_relative_click_rates_of_the_other_folds(log):
    propensity = us.PopularityPropensity(
        user_power=0.5, item_power=2.0, smoothing=3.0, crossfit=2, calibrator=None
    ).fit(log)
    fold = folds_of_cells(propensity, np.arange(log.population_size)).reshape(log.n_users, log.n_items)
    click = clicks_of(log).reshape(log.n_users, log.n_items)
    found = propensity.predict_matrix_each()[0]
    for k in range(2):
        train = fold != k
        density = click[train].mean()
        f_user = ((click * train).sum(1) + 3) / (density * train.sum(1) + 3)
        f_item = ((click * train).sum(0) + 3) / (density * train.sum(0) + 3)
        product = f_user[:, None] ** 0.5 * f_item**2
        expected = np.minimum(density * product / product.mean(), 1 - 1e-6)
        np.testing.assert_allclose(found[~train], expected[~train], rtol=1e-9)


def test_no_user_without_clicks_has_an_infinite_weight(log):
    assert us.PopularityPropensity(crossfit=2).fit(log).predict_matrix_each().min() > 1e-4
    with pytest.raises(ParameterError, match="smoothing must be above 0"):
        us.PopularityPropensity(smoothing=0).fit(log)


@pytest.mark.parametrize("kind", ["popularity", "naive_bayes"])
def test_kinds_that_count_all_their_cells_need_no_offset_for_sampled_negatives(kind, data, log):
    make, sample = {
        "popularity": (us.PopularityPropensity, {}),
        "naive_bayes": (us.NaiveBayesPropensity, {"random_sample": data.test}),
    }[kind]
    whole, asked = (make(crossfit=2, negatives=each).fit(log, **sample) for each in (None, 3))
    np.testing.assert_array_equal(asked.predict_both_each(log).raw, whole.predict_both_each(log).raw)


@pytest.mark.parametrize("fold_by", ["cell", "user", "item"])
def test_rates_of_a_large_matrix_are_computed_from_its_margins(data, fold_by, monkeypatch):
    """They are those counted over all cells: exactly where folds hold users or items, else nearly."""
    log = us.load("synthetic", n_users=300, n_items=400, density=0.1, seed=2).train
    counted = us.PopularityPropensity(crossfit=3, fold_by=fold_by).fit(log).predict_each(log)
    monkeypatch.setattr("unskew.propensity.popularity.MOST_CELLS", 1)
    monkeypatch.setattr("unskew.propensity.per_replica.ReplicaCells.blocks", None)
    computed = us.PopularityPropensity(crossfit=3, fold_by=fold_by).fit(log).predict_each(log)
    if fold_by == "cell":
        assert np.abs(np.log(computed / counted)).mean() < 0.05
        np.testing.assert_allclose(computed.mean(), counted.mean(), rtol=0.01)
    else:
        np.testing.assert_allclose(computed, counted, rtol=1e-9)
