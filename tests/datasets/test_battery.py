"""The battery's worlds: each has a biased log, a random sample and a random test, and a known truth."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.dataset_contract import DatasetContract
from unskew.datasets import load as load_by_name
from unskew.datasets.battery import WORLDS
from unskew.datasets.dataset import random_part, with_unbiased_share
from unskew.errors import DataError, ParameterError


class TestBattery(DatasetContract):
    name = "battery"

    @pytest.fixture
    def load(self):
        return lambda **options: load_by_name("battery", scale="small", seed=5, **options)


@pytest.fixture(scope="module", params=list(WORLDS))
def data(request):
    return load_by_name("battery", world=request.param, scale="small")


def test_every_world_has_a_sample_that_no_model_was_trained_or_is_tested_on(data):
    assert data.test_is == "random"
    assert 0.02 < len(data.unbiased) / (len(data.unbiased) + len(data.test)) < 0.09
    assert not np.isin(data.unbiased.cell, data.test.cell).any()
    assert not np.isin(data.unbiased.cell, data.train.cell[data.train.clicked]).any()
    assert set(np.unique(data.unbiased.known_conversion())) == {0.0, 1.0}
    assert data.facts["unbiased_rows"] == len(data.unbiased)


def test_every_world_knows_its_truth(data):
    if data.facts["world"] == "impressions":
        assert len(data.row_truth["test"]["true_conversion"]) == len(data.test)
        assert data.train.features is not None
    else:
        assert data.truth.conversion.shape == (data.train.n_users, data.train.n_items)


def test_clicks_of_the_random_world_alone_convert_as_often_as_all_pairs():
    ratio = {}
    for world in ("coat", "random", "hidden"):
        drawn = [load_by_name("battery", world=world, scale="small", seed=seed) for seed in range(4)]
        ratio[world] = np.mean(
            [each.train.known_conversion().mean() / each.truth.conversion.mean() for each in drawn]
        )
    assert ratio["random"] == pytest.approx(1.0, abs=0.12)
    assert ratio["hidden"] > ratio["coat"] > 1.3


def test_a_hidden_taste_is_in_clicks_and_conversions_and_in_no_feature():
    plain, hidden = (load_by_name("synthetic", seed=2, confounding=each) for each in (0.0, 2.0))

    def logit(p):
        return np.log(p / (1 - p))

    of_click = logit(hidden.truth.propensity) - logit(plain.truth.propensity)
    of_conversion = logit(hidden.truth.conversion) - logit(plain.truth.conversion)
    assert np.corrcoef(of_click.ravel(), of_conversion.ravel())[0, 1] > 0.99
    assert of_click.std() == pytest.approx(2.0, rel=0.02)
    np.testing.assert_array_equal(plain.train.user_features.values, hidden.train.user_features.values)
    assert hidden.truth.propensity.mean() == pytest.approx(0.09)
    with pytest.raises(ParameterError, match="confounding must be in"):
        load_by_name("synthetic", confounding=-1)


def test_a_share_is_a_function_of_ids_not_of_rows():
    data = load_by_name("synthetic", n_users=60, n_items=50)
    order = np.random.default_rng(0).permutation(len(data.test))
    part = random_part(data.test, 0.3, 1)
    np.testing.assert_array_equal(random_part(data.test.take(order), 0.3, 1), part[order])
    assert part.mean() == pytest.approx(0.3, abs=0.06)
    assert (random_part(data.test, 0.3, 2) != part).any()
    # Neither users nor items are taken as a whole.
    per_user = np.bincount(data.test.user[part], minlength=60) / np.bincount(data.test.user, minlength=60)
    assert per_user.min() < 0.3 < per_user.max() < 0.9


def test_a_share_that_cannot_be_taken_is_one_line():
    data = load_by_name("synthetic", n_users=30, n_items=20)
    with pytest.raises(ParameterError, match="must be between 0 and 1, not 1"):
        with_unbiased_share(data, 1)
    with pytest.raises(DataError, match="leaves the sample without converted and unconverted pairs"):
        with_unbiased_share(data, 1e-6)
    with pytest.raises(ParameterError, match="has an unbiased sample already"):
        with_unbiased_share(with_unbiased_share(data, 0.2), 0.2)
    with pytest.raises(ParameterError, match="world must be 'coat', "):
        load_by_name("battery", world="mars")
