"""Ranking metrics against a slow reading of their definition, the exact rails, and the rails of Coat."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score, roc_auc_score

from unskew.base.errors import DataError, ParameterError
from unskew.metrics.ranking import ranking_metrics, ranking_rails, user_auc, user_ranking


def slow_metrics(user, outcome, score, k):
    """One user at a time, in plain Python; scores must be distinct."""
    rows = {
        u: sorted((i for i in range(len(user)) if user[i] == u), key=lambda i: -score[i]) for u in set(user)
    }
    totals = {"dcg": [], "hits": [], "recall": [], "ndcg": []}
    for ranked in rows.values():
        relevance = [outcome[i] for i in ranked]
        if sum(relevance) == 0:
            continue
        dcg = sum(r / np.log2(place + 2) for place, r in enumerate(relevance[:k]))
        best = sum(1 / np.log2(place + 2) for place in range(min(k, sum(relevance))))
        totals["dcg"].append(dcg)
        totals["ndcg"].append(dcg / best)
        totals["hits"].append(sum(relevance[:k]))
        totals["recall"].append(sum(relevance[:k]) / sum(relevance))
    return {f"{name}@{k}": np.mean(values) for name, values in totals.items()}


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(3)
    user = generator.integers(0, 40, 500)
    return {
        "user": user,
        "outcome": (generator.random(500) < 0.15).astype(int),
        "score": generator.random(500),
    }


@pytest.mark.parametrize("k", [1, 2, 4, 6, 50])
def test_equals_the_definition_read_slowly(rows, k):
    expected = slow_metrics(rows["user"].tolist(), rows["outcome"].tolist(), rows["score"].tolist(), k)
    found = ranking_metrics(**rows, ks=(k,))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-12)


def test_ndcg_equals_scikit_learn(rows):
    expected = []
    for u in np.unique(rows["user"]):
        mine = rows["user"] == u
        if rows["outcome"][mine].any() and mine.sum() > 1:
            expected.append(ndcg_score([rows["outcome"][mine]], [rows["score"][mine]], k=4))
    assert ranking_metrics(**rows)["ndcg@4"] == pytest.approx(np.mean(expected), abs=1e-12)


def test_row_order_and_monotone_rescaling_change_nothing_without_ties(rows):
    order = np.random.default_rng(0).permutation(500)
    shuffled = {name: values[order] for name, values in rows.items()}
    shuffled["score"] = np.exp(5 * shuffled["score"]) - 7
    assert ranking_metrics(**shuffled, seed=9) == pytest.approx(ranking_metrics(**rows), abs=1e-12)
    assert user_auc(**shuffled) == pytest.approx(user_auc(**rows), abs=1e-12)


def test_ties_follow_the_seed_and_not_the_file_order():
    user = np.repeat(np.arange(400), 10)
    outcome = np.tile([1] + [0] * 9, 400)
    tied = {"user": user, "outcome": outcome, "score": np.zeros(4000), "ks": (1,)}
    by_seed = [ranking_metrics(**tied, seed=seed)["hits@1"] for seed in range(20)]
    assert ranking_metrics(**tied, seed=0)["hits@1"] == by_seed[0]
    assert len(set(by_seed)) > 5
    standard_error = np.sqrt(0.1 * 0.9 / (400 * 20))
    assert abs(np.mean(by_seed) - 0.1) < 4 * standard_error


def test_users_without_a_positive_do_not_count():
    with_them = ranking_metrics(user=[0, 0, 1, 1], outcome=[1, 0, 0, 0], score=[2, 1, 2, 1], ks=(1,))
    assert with_them["hits@1"] == 1.0
    assert user_ranking(user=[0, 0, 1, 1], outcome=[1, 0, 0, 0], score=[2, 1, 2, 1]).user.tolist() == [0]


@given(
    outcome=st.lists(st.integers(0, 1), min_size=1, max_size=6).filter(any),
    k=st.integers(1, 8),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_random_rail_is_the_mean_over_all_orders_and_oracle_the_best(outcome, k):
    user = np.zeros(len(outcome), dtype=int)
    every_order = [
        ranking_metrics(user=user, outcome=outcome, score=order, ks=(k,))
        for order in itertools.permutations(range(len(outcome)))
    ]
    rails = ranking_rails(user=user, outcome=outcome, ks=(k,))
    for name, value in rails["random"].items():
        assert value == pytest.approx(np.mean([metrics[name] for metrics in every_order]), abs=1e-12)
    for name, value in rails["oracle"].items():
        assert value == pytest.approx(np.max([metrics[name] for metrics in every_order]), abs=1e-12)


def test_user_auc_equals_scikit_learn_user_by_user_with_ties():
    generator = np.random.default_rng(5)
    user = generator.integers(0, 60, 800)
    outcome = (generator.random(800) < 0.2).astype(int)
    score = generator.integers(0, 5, 800) / 5
    expected = [
        roc_auc_score(outcome[user == u], score[user == u])
        for u in np.unique(user)
        if 0 < outcome[user == u].sum() < (user == u).sum()
    ]
    assert 5 < len(expected) < 60
    assert user_auc(user=user, outcome=outcome, score=score) == pytest.approx(np.mean(expected), abs=1e-12)


def test_user_auc_of_one_class_users_is_nan():
    assert np.isnan(user_auc(user=[0, 1, 2], outcome=[1, 0, 1], score=[0.1, 0.2, 0.3]))


def test_bad_input_names_the_row_and_the_remedy():
    good = {"user": [0, 0], "outcome": [0, 1], "score": [0.1, 0.2]}
    with pytest.raises(
        DataError, match=r"row 1: outcome 2 is not 0 or 1 .*To fix: encode outcomes as 0 and 1"
    ):
        ranking_metrics(**{**good, "outcome": [0, 2]})
    with pytest.raises(DataError, match=r"row 0: score is NaN .*leave out the rows without a prediction"):
        user_auc(**{**good, "score": [np.nan, 1.0]})
    with pytest.raises(DataError, match=r"score has shape \(3, 2\) for 2 rows"):
        ranking_metrics(**{**good, "score": np.zeros((3, 2))})
    with pytest.raises(DataError, match=r"user has shape \(1,\) and outcome has shape \(2,\)"):
        ranking_rails(user=[0], outcome=[0, 1])
    with pytest.raises(DataError, match="no user has a positive outcome"):
        ranking_metrics(**{**good, "outcome": [0, 0]})
    with pytest.raises(DataError, match="there is no row to rank"):
        ranking_metrics(user=[], outcome=[], score=[])
    with pytest.raises(ParameterError, match=r"ks must be whole numbers from 1 on, not \(0, 2\)"):
        ranking_metrics(**good, ks=(0, 2))
