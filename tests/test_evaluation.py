"""Metrics of a model on a test log: those of the scores, seed by seed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

import unskew as us
from unskew.base.errors import DataError, ParameterError
from unskew.debias.evaluation import level_of
from unskew.metrics.ranking import ranking_rails
from unskew.metrics.registry import metric


class Given:
    """A model that knows its predictions."""

    def __init__(self, matrix):
        self.matrix = np.asarray(matrix)

    def predict_each(self, log):
        return self.matrix[:, log.user, log.item]


@pytest.fixture(scope="module")
def data():
    return us.load("synthetic", n_users=40, n_items=30, test_per_user=12, seed=2)


def test_the_true_labels_reach_the_oracle_and_their_opposite_the_floor(data):
    labels = data.truth.labels.astype(float)
    told = us.evaluate(Given([labels, 1 - labels]), data.test)
    rails = ranking_rails(user=data.test.user, outcome=data.test.known_conversion(), ks=(2, 4, 6))
    np.testing.assert_array_equal(told["auc"], [1, 0])
    np.testing.assert_array_equal(told["user_auc"], [1, 0])
    for name, oracle in rails["oracle"].items():
        if name in told:
            assert told[name][0] == pytest.approx(oracle)
            assert told[name][1] < rails["random"][name]


def test_every_metric_has_one_value_for_each_seed_and_auc_is_pooled(data):
    scores = np.random.default_rng(0).random((3, 40, 30))
    told = us.evaluate(Given(scores), data.test)
    assert set(told) >= {"auc", "user_auc"} | {
        f"{name}@{k}" for name in ("dcg", "hits", "recall", "ndcg") for k in (2, 4, 6)
    }
    for seed in range(3):
        pooled = roc_auc_score(data.test.known_conversion(), scores[seed][data.test.user, data.test.item])
        assert told["auc"][seed] == pytest.approx(pooled)
        assert all(values.shape == (3,) for values in told.values())


class Ensemble(Given):
    """Members ``[seeds, members, users, items]``, of which each seed's first is what is shipped."""

    members = 2

    def predict_each(self, log):
        return self.predict_members_each(log)[:, 0]

    def predict_members_each(self, log):
        return self.matrix[:, :, log.user, log.item]


def test_members_are_evaluated_beside_their_ensemble(data):
    scores = np.random.default_rng(3).uniform(0.05, 0.95, (3, 2, 40, 30))
    found = us.evaluate(Ensemble(scores), data.test)
    each = [us.evaluate(Given(scores[:, member]), data.test) for member in (0, 1)]
    for name in ("auc", "dcg@2", "nll", "mean_over_rate"):
        np.testing.assert_allclose(found[name], each[0][name])
        np.testing.assert_allclose(found.members[name], np.stack([each[0][name], each[1][name]], axis=1))
    assert each[0].members is None


def test_it_shows_itself_in_words_and_as_a_table(data):
    found = us.evaluate(Given(np.random.default_rng(4).random((2, 40, 30))), data.test)
    auc, rows = f"{found['auc'].mean():.4f}", len(data.test.clicked)
    assert repr(found).startswith(f"Evaluation(auc {auc}, ")
    assert f"mean of 2 seeds on {rows:,} test rows" in repr(found)
    assert "AUC" in found._repr_html_()


def test_the_level_of_predictions_is_told_beside_their_order(data):
    scores = np.random.default_rng(1).uniform(0.05, 0.95, (40, 30))
    outcome = data.test.known_conversion()
    told = us.evaluate(Given([scores, scores / 2]), data.test)
    shown = scores[data.test.user, data.test.item]
    np.testing.assert_allclose(told["nll"], [log_loss(outcome, shown), log_loss(outcome, shown / 2)])
    ratio = shown.mean() / outcome.mean()
    np.testing.assert_allclose(told["mean_over_rate"], [ratio, ratio / 2])
    assert told["auc"][0] == told["auc"][1], "which order alone cannot tell apart"


def test_scores_to_rank_by_have_no_level(data):
    model = Given(np.random.default_rng(0).random((1, 40, 30)))
    model.predicts_rates = False
    assert not {"nll", "mean_over_rate"} & set(us.evaluate(model, data.test))


def test_predicting_too_little_is_as_far_off_as_predicting_too_much():
    level = metric("mean_over_rate")
    far, near = (level.compared_by(np.array(each)) for each in ([0.5, 1.5], [1.25, 0.75]))
    np.testing.assert_array_equal(far, [0.5, 0.5])
    assert level.gain(float((near - far).mean())) == 0.25
    assert metric("nll").gain(-0.1) > 0 > metric("auc").gain(-0.1)


def test_other_cutoffs_can_be_asked(data):
    assert "hits@3" in us.evaluate(Given(np.zeros((1, 40, 30))), data.test, ks=(3,))


def test_ties_are_broken_by_the_seed(data):
    tied = Given(np.zeros((1, 40, 30)))
    values = {float(us.evaluate(tied, data.test, seed=seed)["dcg@2"][0]) for seed in range(8)}
    assert len(values) > 1
    assert us.evaluate(tied, data.test, seed=3) == us.evaluate(tied, data.test, seed=3)


def test_rows_that_were_not_clicked_are_left_out():
    log = us.Log.from_arrays(
        user=[0, 0, 0, 1], item=[0, 1, 2, 0], click=[1, 1, 0, 1], conversion=[1, 0, np.nan, 0]
    )
    told = us.evaluate(Given([[[0.9, 0.1, np.nan], [0.2, 0.0, 0.0]]]), log)
    assert told["auc"] == [1.0]


def test_a_test_log_of_one_class_is_told(data):
    positives = data.test.take(np.flatnonzero(data.test.known_conversion() == 1))
    with pytest.raises(DataError, match="every conversion of the test log is 1: nothing can be ranked"):
        us.evaluate(Given(np.zeros((1, 40, 30))), positives)


@pytest.mark.parametrize("test", [None, "test", 3])
def test_what_is_no_log_is_told(test):
    with pytest.raises(ParameterError, match=r"the test log is a .*, not a Log"):
        us.evaluate(Given([[[0.5]]]), test)


@pytest.mark.parametrize("model", [None, us.IPS, "ips"])
def test_what_is_no_model_is_told(model):
    log = us.Log.from_arrays(user=[0, 0, 1], item=[0, 1, 0], conversion=[1, 0, 0])
    with pytest.raises(ParameterError, match="is not a trained model"):
        us.evaluate(model, log)


def test_a_log_without_clicked_rows_has_nothing_to_judge_by():
    log = us.Log.from_arrays(user=[0, 0, 1], item=[0, 1, 0], click=[1, 0, 1], conversion=[1, 0, 0])
    with pytest.raises(DataError, match="the test log has no clicked row"):
        us.evaluate(Given([[[0.5]]]), log.take(log.click == 0))


@pytest.mark.parametrize(("of_seeds", "of_users"), [(0.3, 0.0), (0.0, 1.5), (0.2, 1.0)])
def test_limits_of_a_level_cover_seeds_and_test_users(of_seeds, of_users):
    """Fresh seeds and fresh test users in each world; the level to cover is 1 in all of them."""
    random = np.random.default_rng(1)
    covered = []
    for _ in range(400):
        user = np.repeat(np.arange(60), 10)
        rate = np.clip(0.3 * np.exp(of_users * random.standard_normal(60) - of_users**2 / 2), 0, 0.95)[user]
        outcome = (random.random(600) < rate).astype(np.float32)
        # The mean of the clipped rates by a large sample, so that the model promises what is kept on average.
        wide = np.clip(0.3 * np.exp(of_users * random.standard_normal(20_000) - of_users**2 / 2), 0, 0.95)
        score = wide.mean() * (1 + of_seeds * random.standard_normal((5, 1))) * np.ones(600)
        level = level_of(score, outcome, user)
        covered.append(level["low"] <= 1 <= level["high"])
    assert 0.9 < np.mean(covered) <= 0.995


@pytest.mark.parametrize("of_seeds", [[1.0], [0.6, 1.4]])
def test_limits_of_a_level_by_one_or_two_seeds_are_over_test_users_alone(of_seeds):
    """Two seeds that differ widely do not widen them: t with one degree of freedom is 12.7."""
    outcome, user = np.tile([0, 0, 1, 0], 50), np.repeat(np.arange(100), 2)
    score = 0.25 * np.array(of_seeds)[:, None] * np.ones(200)
    level = level_of(score, outcome, user)
    gap = np.bincount(user, weights=0.25 - outcome)
    half = 1.96 * np.sqrt(100 / 99 * (gap @ gap)) / outcome.sum()
    np.testing.assert_allclose([level["low"], level["high"]], [1 - half, 1 + half], rtol=0.02)


def test_seeds_are_evaluated_together_too(data):
    truth = np.zeros((40, 30))
    truth[data.test.user, data.test.item] = data.test.conversion
    scores = 0.1 + 0.1 * truth + 0.6 * np.random.default_rng(0).random((3, 40, 30))
    found = us.evaluate(Given(scores), data.test)
    mean = us.evaluate(Given(scores.mean(axis=0)[None]), data.test)
    assert found.together == pytest.approx({name: each[0] for name, each in mean.items()})
    assert found.together["auc"] > found["auc"].mean(), "noise cancels out"
    assert mean.together is None
