"""The choice by a random sample: right where it can be, the baseline where it cannot, honest of its luck."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.base.errors import ParameterError
from unskew.offpolicy.decision import CANNOT_DECIDE, MEAN, ClickEvidence, RandomSample, decide


def drawn(seed, users=300, rows=4, noise=(1.0, 0.3), same=0):
    """Users with outcomes; the baseline and candidates, each the truth with so much noise on its logit."""
    random = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), rows)
    logit = -1 + random.normal(size=users)[user] + random.normal(size=len(user))
    outcome = (random.random(len(user)) < 1 / (1 + np.exp(-logit))).astype(float)
    names = ["naive", *(f"candidate {place}" for place in range(1, len(noise) + same))]
    levels = [*noise, *([noise[0]] * same)]
    predictions = {
        name: 1 / (1 + np.exp(-(logit + level * random.normal(size=(1, len(user))))))
        for name, level in zip(names, levels, strict=True)
    }
    return RandomSample(user, outcome, predictions)


def evidence(**advantages):
    return {
        name.replace("_", " "): ClickEvidence(value, 0.01, value - 0.05, value + 0.05)
        for name, value in advantages.items()
    }


def test_a_clearly_better_candidate_is_shipped_and_its_worth_cross_validated():
    decision = decide(drawn(0))
    assert decision.chosen == "candidate 1"
    assert decision.shipped == ("candidate 1",)
    assert decision.mean_advantage > 1.96 * decision.mean_error
    assert decision.cross_validated == pytest.approx(decision.judged[0].advantage, rel=0.4)
    assert decision.sentence.startswith(
        "candidate 1 is shipped: on a random sample of 1,200 pairs it is ahead of the naive model"
    )
    worth = f"{decision.cross_validated:+.4f} ± {decision.cross_validated_error:.4f} in auc"
    assert worth in decision.sentence
    assert 0.5 < decision.cross_validated_error / decision.mean_error < 2
    assert "plan-random" not in decision.sentence
    assert (decision.rows, decision.users) == (1200, 300)


def test_few_pairs_leave_many_models_and_many_pairs_the_best():
    noise = (2.5, 2.5, 2.5, 0.5, 0.5, 0.5)
    few, many = (
        [set(decide(drawn(seed, users=users, noise=noise)).shipped) for seed in range(5)]
        for users in (8, 400)
    )
    best = {"candidate 3", "candidate 4", "candidate 5"}
    assert all(each <= best and len(each) >= 2 for each in many)
    assert np.mean([len(each) for each in few]) > 3.5


def test_many_candidates_as_good_as_the_baseline_are_shipped_together_and_never_one_by_luck():
    found = [decide(drawn(seed, users=120, noise=(0.5,), same=8)) for seed in range(4)]
    # The mean of nine that err each in its own way is better than one of them.
    assert all(each.chosen == MEAN and len(each.shipped) >= 4 for each in found)


def test_candidates_that_are_worse_are_not_shipped():
    """None of them adds to the baseline, which has nearly the truth."""
    found = [decide(drawn(seed, users=100, noise=(0.1, 1.0, 1.2, 1.5))) for seed in range(10)]
    assert all("naive" in each.shipped for each in found)
    assert np.mean([each.chosen == "naive" for each in found]) >= 0.8


def test_the_mean_is_shipped_where_it_is_ahead_and_otherwise_the_baseline():
    noise = (0.5, 0.45, 0.6, 3.0)
    found = [decide(drawn(seed, users=40, noise=noise)) for seed in range(6)]
    means = [each for each in found if each.chosen == MEAN]
    assert means
    for each in means:
        assert each.mean_advantage > 0
        assert each.sentence.startswith(f"The mean of {len(each.shipped)} of 4 models is shipped")
    assert any("candidate 3" not in each.shipped for each in means)
    # One that puts two converted pairs too low is not clearly worse, and no help.
    sample = drawn(0, users=40, noise=(0.5,))
    low = sample.predictions["naive"].copy()
    low[:, np.flatnonzero(sample.outcome)[[3, 30]]] *= 0.1
    lines = {**sample.predictions, "low": low}
    decision = decide(RandomSample(sample.user, sample.outcome, lines))
    assert (decision.chosen, decision.shipped) == ("naive", ("naive",))
    assert "plan-random" in decision.sentence


def test_a_candidate_that_is_clearly_worse_is_rejected():
    decision = decide(drawn(1, noise=(0.3, 2.0)))
    assert (decision.chosen, decision.judged[0].rejected) == ("naive", True)
    assert (decision.shipped, decision.mean_advantage) == (("naive",), None)
    assert "no candidate adds to it" in decision.sentence


def test_clicks_count_where_they_agree_and_hardly_where_they_mislead():
    sample = drawn(2, users=150, noise=(1.0, 0.9, 0.8, 0.7, 0.6))
    plain = decide(sample)
    ahead = {each.name.replace(" ", "_"): each.advantage for each in plain.judged}
    right = decide(sample, evidence(**ahead))
    wrong = decide(sample, evidence(**{name: -5 * value - 0.2 for name, value in ahead.items()}))
    assert all(each.weight < 0.6 for each in right.judged)
    assert all(
        each.combined_error < 0.8 * alone.standard_error
        for each, alone in zip(right.judged, plain.judged, strict=True)
    )
    assert all(each.weight > 0.9 for each in wrong.judged)
    assert right.bias < wrong.bias
    # With too few candidates nobody knows how far clicks are off.
    few = RandomSample(
        sample.user, sample.outcome, {n: sample.predictions[n] for n in ("naive", "candidate 1")}
    )
    assert decide(few, evidence(candidate_1=0.1)).judged[0].weight == 1.0


def test_without_a_sample_clicks_reject_and_never_choose():
    names = ("naive", "better", "worse", "unknown")
    clicks = {"better": ClickEvidence(0.2, 0.01, 0.1, 0.3), "worse": ClickEvidence(-0.2, 0.01, -0.3, -0.1)}
    decision = decide(None, clicks, candidates=names)
    assert decision.chosen == "naive"
    assert [each.rejected for each in decision.judged] == [False, True, False]
    assert CANNOT_DECIDE in decision.sentence
    assert "1 of 3 candidates are worse" in decision.sentence


def test_a_sample_with_few_conversions_decides_nothing():
    sample = drawn(6, users=20, noise=(3.0, 0.1))
    few = np.concatenate([np.flatnonzero(sample.outcome)[:4], np.flatnonzero(sample.outcome == 0)])
    rows = np.isin(np.arange(len(sample.outcome)), few)
    decision = decide(sample.take(rows))
    assert decision.shipped == ("naive",)
    assert "is too small to choose on (at least 5 converted" in decision.sentence
    assert decide(sample).chosen == "candidate 1"


def test_the_baseline_must_be_there():
    with pytest.raises(ParameterError, match="the baseline 'ips' is no candidate"):
        decide(None, candidates=("naive",), baseline="ips")
