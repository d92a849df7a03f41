"""Held-out clicks that cannot choose an epoch are not used without a word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import unskew as us
from unskew.base.errors import HeldOutWarning, ParameterError
from unskew.base.seeds import Replica
from unskew.data.splitting import SplitBy
from unskew.training.held_out import Outcomes, outcomes_of, split_that_decides

REPLICAS = tuple(Replica(seed) for seed in range(3))


def impressions(rows=2_000, converts=0.3, late=0.0, seed=0):
    """So many clicked rows at increasing times, after as many others; those of the last fifth convert at
    another rate."""
    random = np.random.default_rng(seed)
    rate = np.where(np.arange(rows) < 0.8 * rows, converts, late)
    return us.Log.from_arrays(
        user=random.integers(60, size=2 * rows),
        item=random.integers(30, size=2 * rows),
        click=np.repeat([0, 1], rows),
        conversion=np.append(np.full(rows, np.nan), random.random(rows) < rate),
        space="impressions",
        columns={"when": np.datetime64("2026-01-01", "s") + np.arange(2 * rows)},
    )


def chosen(asked, log, *, share=0.1, replicas=REPLICAS):
    return split_that_decides(asked, log, share, replicas, selects=True)


@pytest.mark.parametrize("late", [0.0, 1.0])
@pytest.mark.parametrize("asked", ["auto", "auto:when"])
def test_latest_clicks_of_one_outcome_give_way_to_pairs(late, asked):
    log = impressions(late=late)
    with pytest.warns(HeldOutWarning, match=r"200 converted.*split by pair chooses it instead.*--maturity"):
        assert chosen(asked, log).kind == "pair"


def test_a_split_that_was_asked_for_stays_and_is_warned_of():
    with pytest.warns(HeldOutWarning, match=r"0 of 200 converted.*go to 0.*--split pair.*--maturity"):
        assert chosen("time", impressions()).kind == "time"


def test_pairs_without_a_conversion_are_warned_of_with_their_number():
    log = impressions()
    one = np.zeros(len(log), dtype=np.float32)
    one[log.clicked[0]] = 1.0
    log = replace(log, conversion=one)
    lacking = [not each.decide for each in outcomes_of(log, 0.1, SplitBy(), REPLICAS)]
    assert sum(lacking) > 1
    words = f"in {sum(lacking)} of 3 networks: of them 0 of 200 converted, and 1 of the 1,800 others"
    with pytest.warns(HeldOutWarning, match=f"{words}.*--split pair:0.2"):
        chosen("pair", log)


def test_latest_clicks_that_convert_far_more_rarely_lack_conversions():
    with pytest.warns(HeldOutWarning, match=r"latest clicks seem to be missing.*--maturity 7d"):
        assert chosen("auto", impressions(late=0.05)).kind == "time"


@pytest.mark.filterwarnings("error::unskew.base.errors.HeldOutWarning")
def test_clicks_that_convert_as_the_others_are_no_news():
    for seed in range(20):
        assert chosen("auto", impressions(late=0.3, seed=seed)).kind == "time"


@pytest.mark.parametrize(
    ("outcomes", "late"),
    [
        (Outcomes(240, 2, 2_144, 214), True),
        (Outcomes(240, 20, 2_144, 214), False),
        # Beyond chance, and a rate that a week-end may have.
        (Outcomes(1_000_000, 90_000, 9_000_000, 900_900), False),
        (Outcomes(24, 0, 211, 11), False),
    ],
)
def test_what_counts_as_late(outcomes, late):
    assert outcomes.late == late


def test_a_start_that_trained_on_what_is_held_out_now_is_refused():
    """The days that were there yesterday converted, those of today have not yet."""
    whole = impressions()
    yesterday = whole.take(np.append(np.arange(2_000), 2_000 + np.arange(1_600)))
    options = {"learner": us.MF(dim=2), "epochs": 2, "batch_size": 128}
    before = us.Naive(**options).fit(yesterday, device="cpu")
    assert before.split_.by.kind == "time"
    with (
        pytest.warns(HeldOutWarning),
        pytest.raises(ParameterError, match=r"latest clicks, and this.* by pair"),
    ):
        us.Naive(**options).fit(whole, start=before, device="cpu")
