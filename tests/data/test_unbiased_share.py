"""Random parts of a test log as a sample, and the hidden taste of the synthetic world."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.base.errors import DataError, ParameterError
from unskew.data.datasets import load as load_by_name
from unskew.data.datasets.dataset import random_part, with_unbiased_share


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
    with pytest.raises(ParameterError, match="confounding must be at least 0"):
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
