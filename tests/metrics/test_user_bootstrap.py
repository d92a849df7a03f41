"""Intervals over test users: resamples are what the metrics say of resampled users, and cover new ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

import unskew as us
from unskew.debias.evaluation import evaluate
from unskew.metrics import auc
from unskew.metrics import user_bootstrap as bootstrap
from unskew.metrics.significance import summarise
from unskew.metrics.user_bootstrap import RESAMPLES, UserBootstrap, auc_by_user, user_interval


class Lines:
    """A model that keeps a score for each user and item."""

    def __init__(self, scores):
        self.scores = np.asarray(scores)

    def predict_each(self, log):
        return self.scores[:, log.user, log.item]


def shown(label):
    """A test log in which every user was shown every item."""
    user, item = (part.ravel() for part in np.indices(label.shape))
    return us.Log(
        user=user.astype(np.int32),
        item=item.astype(np.int32),
        click=np.ones(label.size, dtype=np.uint8),
        conversion=label.ravel().astype(np.float32),
        users=us.Vocabulary.range(len(label), name="user"),
        items=us.Vocabulary.range(label.shape[1], name="item"),
    )


@pytest.fixture(scope="module")
def world():
    """Users differ in rate and in how well they are understood, so that rows of one user are alike."""
    random = np.random.default_rng(0)
    users, items = 150, 12
    level = random.normal(-0.5, 1.0, (users, 1))
    taste = random.normal(0.0, 1.0, (users, items))
    label = random.random((users, items)) < expit(level + taste)
    scores = expit(level + taste + random.normal(0.0, 0.7, (2, users, items)))
    return shown(label), scores, label


def drawn_counts():
    """How often each of 150 users is in each resample: what the ratio of its own indicator to all is."""
    shares = UserBootstrap.of(np.arange(150)).ratios(np.eye(150), np.ones((150, 150)))
    return np.rint(150 * shares).T


def test_a_resample_is_what_evaluate_says_of_the_resampled_users(world):
    log, scores, label = world
    found = evaluate(Lines(scores), log)
    counts = drawn_counts()
    assert {name: line.shape for name, line in found.resampled.items()} == dict.fromkeys(
        found, (2, RESAMPLES)
    )
    for number in (0, 17):
        people = np.repeat(np.arange(150), counts[number].astype(int))
        expected = us.evaluate(Lines(scores[:, people]), shown(label[people]))
        for name, values in expected.items():
            tolerance = 0.002 if name == "auc" else 1e-9
            np.testing.assert_allclose(found.resampled[name][:, number], values, atol=tolerance, err_msg=name)
            assert not np.allclose(values, found[name], atol=tolerance), name


def test_the_auc_s_parts_by_user_add_up_to_nothing_and_give_the_spread_of_a_true_bootstrap(world):
    log, scores, label = world
    score, outcome = scores[0].ravel(), label.ravel()
    value = auc(score=score, outcome=outcome)
    users = UserBootstrap.of(log.user)
    top, bottom = auc_by_user(code=users.code, users=150, outcome=outcome, score=score, value=value)
    assert top.sum() == pytest.approx(value)
    linear = users.ratios(top[None], bottom[None])[0]
    exact = []
    for count in drawn_counts():
        weight = count[log.user]
        kept = weight > 0
        exact.append(auc(score=score[kept], outcome=outcome[kept], weight=weight[kept]))
    assert linear.std() == pytest.approx(np.std(exact), rel=0.03)
    assert np.corrcoef(linear, exact)[0, 1] > 0.995


def test_the_interval_of_a_difference_covers_the_truth_as_often_as_it_says():
    """Sets of 60 users drawn from many: the interval of the paired difference holds that of all users."""
    random = np.random.default_rng(1)
    users, items, each = 60 * 80, 10, 60
    level = random.normal(-0.5, 1.0, (users, 1))
    taste = random.normal(0.0, 1.0, (users, items))
    label = random.random((users, items)) < expit(level + taste)
    models = expit(
        level + taste + np.array([0.5, 0.8])[:, None, None] * random.normal(size=(2, users, items))
    )
    log = shown(label)
    truth = us.evaluate(Lines(models), log)
    covered = {name: [] for name in ("auc", "nll", "dcg@4", "user_auc")}
    for start in range(0, users, each):
        people = slice(start * items, (start + each) * items)
        found = evaluate(Lines(models), log.take(np.arange(people.start, people.stop)))
        for name, line in covered.items():
            difference = found[name][0] - found[name][1]
            draws = found.resampled[name][0] - found.resampled[name][1]
            told = user_interval(difference, draws)
            line.append(told["low"] <= truth[name][0] - truth[name][1] <= told["high"])
    for name, line in covered.items():
        # Fewer than 87 % of 80 intervals, at 95 % each, happen once in 300 times.
        assert np.mean(line) >= 0.87, name


def test_many_users_are_resampled_in_groups_with_the_same_spread(world, monkeypatch):
    log, scores, _ = world
    whole = evaluate(Lines(scores), log)
    assert whole.resampled
    monkeypatch.setattr(bootstrap, "MOST_GROUPS", 50)
    grouped = evaluate(Lines(scores), log)
    assert grouped.keys() == whole.keys()
    for name, line in whole.resampled.items():
        assert grouped.resampled[name].std() == pytest.approx(line.std(), rel=0.35), name
        assert not np.array_equal(grouped.resampled[name], line)


def test_one_row_for_each_user_leaves_the_user_auc_undefined():
    random = np.random.default_rng(3)
    found = evaluate(Lines(random.random((1, 40, 1))), shown(random.random((40, 1)) < 0.4))
    told = {name: summarise(found[name], found.resampled[name]) for name in ("user_auc", "auc")}
    assert told["user_auc"]["mean"] is None
    assert (told["user_auc"]["low"], told["user_auc"]["high"]) == (None, None)
    assert told["auc"]["low"] < told["auc"]["mean"] < told["auc"]["high"]
