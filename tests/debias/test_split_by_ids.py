"""Which clicks a model held out follows from their ids: the same in any order, part or file of the log."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.data.splitting import SplitBy
from unskew.training.held_out import BY_PAIR, Split, split_parts

SEEDS = (3, 8)


@pytest.fixture(scope="module", params=["matrix", "impressions"])
def log(request):
    random = np.random.default_rng(1)
    user, item = random.integers(40, size=900), random.integers(25, size=900)
    click = random.random(900) < 0.5
    conversion = np.where(click, random.integers(2, size=900), np.nan)
    rows = {"user": user, "item": item, "click": click, "conversion": conversion}
    if request.param == "matrix":
        _, first = np.unique(user * 25 + item, return_index=True)
        rows = {name: values[first] for name, values in rows.items()}
    return us.Log.from_arrays(**rows, space=request.param)


@pytest.fixture(scope="module")
def model(log):
    return us.Naive(learner=us.MF(dim=2), epochs=1, validation_share=0.2).fit(log, seeds=SEEDS)


def rebuilt(log, rows):
    """Some rows in some order, with vocabularies of their own."""
    return us.Log.from_arrays(
        user=log.users.ids[log.user][rows],
        item=log.items.ids[log.item][rows],
        click=log.click[rows],
        conversion=log.conversion[rows],
        space=log.space,
    )


def pairs_of(log, rows):
    return set(zip(log.users.ids[log.user[rows]], log.items.ids[log.item[rows]], strict=True))


def test_a_share_of_the_clicks_is_held_out_and_no_pair_is_on_both_sides(log, model):
    share = round(0.2 * log.n_clicks)
    for seed, rows in zip(SEEDS, model.validation_rows(log), strict=True):
        training, held = split_parts(log, seed, share, BY_PAIR, (0,))[0]
        assert len(held) == share
        assert len(training) == log.n_clicks - share
        assert log.click[rows].all()
        assert len(rows) == share if log.space == "matrix" else len(rows) >= share
        assert set(log.clicked[held]) >= set(rows[:share])
        assert not pairs_of(log, log.clicked[training]) & pairs_of(log, rows)


def test_another_order_and_other_codes_hold_out_the_same_rows(log, model):
    order = np.random.default_rng(2).permutation(len(log))
    turned = rebuilt(log, order)
    for rows, expected in zip(model.validation_rows(turned), model.validation_rows(log), strict=True):
        if log.space == "matrix":
            assert set(order[rows]) == set(expected)
        assert pairs_of(turned, rows) == pairs_of(log, expected)


@pytest.mark.parametrize("kind", ["pair", "user"])
def test_members_hold_out_parts_of_their_own(log, kind):
    by, share = SplitBy(kind), 60
    split = Split.of(log, SEEDS, share, by, members=4)
    assert [len(each) for each in split.ends] == [4, 4]
    lines = split.rows(log, SEEDS).reshape(2, 4, -1)
    assert lines.shape[2] == share if kind == "pair" and log.space == "matrix" else lines.shape[2] > share / 2
    for seed, rows in zip(SEEDS, lines, strict=True):
        assert len(np.unique(rows)) == rows.size
        for part, own in enumerate(rows):
            training, held = split_parts(log, seed, share, by, (part,))[part]
            assert len(training) == log.n_clicks - share
            assert np.isin(log.clicked[held], own).mean() > 0.5
            trained = log.clicked[training]
            assert not pairs_of(log, trained) & pairs_of(log, own)
            assert kind == "pair" or not np.isin(log.user[own], log.user[trained]).any()


def test_a_part_has_whole_users_and_never_fewer_clicks_than_are_held_out():
    """Few active users: a part that began within one would have a click or two of its own."""
    random = np.random.default_rng(17)
    user = np.minimum(random.zipf(1.4, 2000), 300)
    log = us.Log.from_arrays(
        user=user, item=np.arange(2000), click=np.ones(2000), conversion=random.integers(2, size=2000)
    )
    by, share = SplitBy("user"), 150
    for seed in range(20):
        split = Split.of(log, (seed,), share, by, members=5)
        lines = split.rows(log, (seed,))
        assert lines.shape[1] >= share
        for part, rows in enumerate(lines):
            training, held = split_parts(log, seed, share, by, (part,))[part]
            assert set(log.clicked[held]) <= set(rows) | set(
                np.flatnonzero(np.isin(log.user, log.user[rows]))
            )
            assert not np.isin(log.user[log.clicked[training]], log.user[rows]).any()


def test_the_order_of_a_logs_rows_does_not_change_what_is_learned():
    log = us.load("synthetic", n_users=40, n_items=30, density=0.2).train
    turned = log.take(np.random.default_rng(5).permutation(len(log)))
    first, second = (
        us.Naive(learner=us.MF(dim=2), epochs=2).fit(each, seeds=SEEDS).predict_each(log)
        for each in (log, turned)
    )
    np.testing.assert_allclose(first, second, atol=1e-6)
