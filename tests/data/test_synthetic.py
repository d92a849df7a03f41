"""The synthetic world: its truth is what it says, and the naive estimate is wrong in it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

from contracts.dataset_contract import DatasetContract
from unskew.base.errors import ParameterError
from unskew.data.datasets import load as load_by_name

SEEDS = range(10)
BASE_RATE = 0.3


class TestSynthetic(DatasetContract):
    name = "synthetic"

    @pytest.fixture
    def load(self):
        return lambda **options: load_by_name("synthetic", n_users=60, n_items=50, seed=5, **options)


@pytest.fixture(scope="module")
def worlds():
    return [load_by_name("synthetic", seed=seed) for seed in SEEDS]


def constant(truth, random):
    return np.full(truth.conversion.shape, BASE_RATE)


def noisy(truth, random):
    return expit(0.7 * logit(truth.conversion) + 0.5 * random.standard_normal(truth.conversion.shape))


def cross_entropy(label, prediction):
    return -(label * np.log(prediction) + (1 - label) * np.log(1 - prediction))


def standard_errors_from_zero(differences):
    return abs(np.mean(differences)) / (np.std(differences, ddof=1) / np.sqrt(len(differences)))


@pytest.mark.parametrize("predict", [constant, noisy])
def test_naive_is_off_by_five_standard_errors_and_ips_with_true_propensities_within_three(worlds, predict):
    naive, ips = [], []
    for seed, data in zip(SEEDS, worlds, strict=True):
        error = cross_entropy(data.truth.labels, predict(data.truth, np.random.default_rng(1000 + seed)))
        ideal = error.mean()
        observed = error[data.train.user, data.train.item]
        propensity = data.truth.propensity[data.train.user, data.train.item]
        naive.append(observed.mean() - ideal)
        ips.append((observed / propensity).sum() / error.size - ideal)
    assert standard_errors_from_zero(naive) >= 5
    assert standard_errors_from_zero(ips) <= 3
    assert abs(np.mean(naive)) > 5 * abs(np.mean(ips))


def test_the_weight_check_holds_for_the_true_propensities(worlds):
    checks = [
        (1 / data.truth.propensity[data.train.user, data.train.item]).sum() / data.train.population_size - 1
        for data in worlds
    ]
    assert standard_errors_from_zero(checks) <= 3


@pytest.mark.parametrize(
    "options", [{"density": 0.02, "bias": 3.0}, {"density": 0.6}, {"conversion_rate": 0.05}]
)
def test_means_are_exact(options):
    data = load_by_name("synthetic", **options)
    assert data.truth.propensity.mean() == pytest.approx(options.get("density", 0.09), abs=1e-14)
    assert data.truth.conversion.mean() == pytest.approx(options.get("conversion_rate", 0.3), abs=1e-14)


def test_clicks_and_labels_are_drawn_from_their_probabilities(worlds):
    def z_score(drawn, probability):
        return (drawn.sum() - probability.sum()) / np.sqrt((probability * (1 - probability)).sum())

    for data in worlds:
        clicks = np.zeros(data.truth.propensity.shape)
        clicks[data.train.user, data.train.item] = 1
        likely = data.truth.propensity > np.median(data.truth.propensity)
        for part in (likely, ~likely):
            assert abs(z_score(clicks[part], data.truth.propensity[part])) < 4
            assert abs(z_score(data.truth.labels[part], data.truth.conversion[part])) < 4


def test_logged_conversions_are_the_labels_of_the_truth(worlds):
    for log in (worlds[0].train, worlds[0].test):
        np.testing.assert_array_equal(log.conversion, worlds[0].truth.labels[log.user, log.item])


def test_without_bias_clicks_are_missing_completely_at_random():
    truth = load_by_name("synthetic", bias=0).truth
    np.testing.assert_allclose(truth.propensity, 0.09, rtol=1e-14)


def test_the_naive_bias_grows_with_the_strength_of_selection():
    rates = [load_by_name("synthetic", bias=bias).train.known_conversion().mean() for bias in (0, 0.5, 1, 2)]
    assert (np.diff(rates) > 0.03).all()
    assert rates[0] == pytest.approx(BASE_RATE, abs=0.02)


def test_the_test_set_is_a_uniform_draw():
    data = load_by_name("synthetic", n_users=2000, n_items=20, test_per_user=5, protocol="paper")
    np.testing.assert_array_equal(np.bincount(data.test.user), 5)
    shown = np.bincount(data.test.item, minlength=20)
    chi_square = ((shown - 500) ** 2 / (500 * (1 - 5 / 20))).sum()
    assert chi_square < 43.8  # the 0.001 tail of χ²(19)


def test_features_tell_of_the_latent_world():
    data = load_by_name("synthetic", n_users=500, n_items=400)
    for features, mean_propensity, shown in (
        (data.train.user_features, data.truth.propensity.mean(axis=1), "activity"),
        (data.train.item_features, data.truth.propensity.mean(axis=0), "popularity"),
    ):
        column = features.values[:, features.names.index(shown)]
        assert np.corrcoef(column, np.log(mean_propensity))[0, 1] > 0.3


def test_the_test_draw_leaves_the_training_log_alone():
    few, many = (load_by_name("synthetic", test_per_user=k) for k in (2, 50))
    np.testing.assert_array_equal(few.train.cell, many.train.cell)


def test_the_truth_cannot_be_written_to(worlds):
    with pytest.raises(ValueError, match="read-only"):
        worlds[0].truth.propensity[0, 0] = 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"density": 0}, "density must be in"),
        ({"conversion_rate": 1.5}, "conversion_rate must be in"),
        ({"bias": -1}, "bias must be at least 0"),
        ({"n_users": 1}, "n_users must be a whole number of at least 2, not 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0, not -1"),
        ({"test_per_user": 201}, "test_per_user is 201, but there are only 200 items"),
        ({"n_users": "a"}, "n_users must be a whole number of at least 2, not 'a'. To fix: give"),
        ({"n_items": 2.5}, "n_items must be a whole number of at least 2, not 2.5"),
        ({"seed": True}, "seed must be a whole number of at least 0, not True"),
        ({"root": "somewhere"}, "drawn, not read. To fix: leave out root"),
    ],
)
def test_impossible_worlds_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        load_by_name("synthetic", **options)
