"""The choice by a random sample: right where it can be, the baseline where it cannot, honest of its luck."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.errors import ParameterError
from unskew.search.decision import CANNOT_DECIDE, ClickEvidence, RandomSample, decide


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
    assert decision.judged[0].p_value < 0.01
    assert decision.cross_validated == pytest.approx(decision.judged[0].advantage, rel=0.4)
    assert decision.sentence.startswith("candidate 1 is shipped: of 1 candidate it is ahead of the naive")
    assert (decision.rows, decision.users) == (1200, 300)


def test_many_candidates_that_are_no_better_win_as_seldom_as_promised():
    """Eight candidates as good as the baseline: uncorrected, every second sample would ship one of them."""
    wrong = [
        (decision.chosen != "naive", decision.chosen != "naive" and decision.share == 1.0)
        for decision in (
            decide(drawn(seed, users=120, noise=(0.5,), same=8), level=0.9) for seed in range(25)
        )
    ]
    half_or_whole, whole = np.mean(wrong, axis=0)
    assert whole <= 0.25
    # Half of one that is no better is shipped about as often as not.
    assert whole < half_or_whole <= 0.75


def test_one_that_is_likelier_ahead_than_not_is_shipped_by_half_and_otherwise_none():
    found = [decide(drawn(seed, users=40, noise=(1.0, 0.8))) for seed in range(8)]
    by_half = [each for each in found if each.share == 0.5]
    assert by_half
    for each in by_half:
        assert each.chosen == "candidate 1"
        assert 0.05 <= each.judged[0].p_value < 0.5
        assert each.sentence.startswith("The mean of candidate 1 and the naive model is shipped: of 1 candid")
        assert "not beyond noise" in each.sentence
        assert "plan-random" in each.sentence
    none = [decide(drawn(seed, noise=(0.5,), same=12)) for seed in range(3)]
    kept = [each for each in none if each.chosen == "naive"]
    assert kept
    for each in kept:
        assert min(candidate.p_value for candidate in each.judged) >= 0.5
        assert "none of 12 candidates beats it beyond noise" in each.sentence


def test_a_candidate_that_is_clearly_worse_is_rejected():
    decision = decide(drawn(1, noise=(0.3, 2.0)))
    assert (decision.chosen, decision.judged[0].rejected) == ("naive", True)


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


def test_seeds_are_averaged():
    one, other = drawn(4), drawn(5)
    both = {
        name: np.concatenate([lines, other.predictions[name][:, ::-1]])
        for name, lines in one.predictions.items()
    }
    decision = decide(RandomSample(one.user, one.outcome, both))
    alone = decide(one)
    assert decision.judged[0].advantage != alone.judged[0].advantage


def test_a_sample_with_few_conversions_decides_nothing():
    decision = decide(drawn(6, users=4))
    assert decision.chosen == "naive"
    assert "is too small to choose on (at least 10 converted" in decision.sentence
    # Up to 30 of each outcome there is no winner, whatever the p-value, but half of one.
    decision = decide(drawn(6, users=20, noise=(3.0, 0.1)))
    assert (decision.chosen, decision.share) == ("candidate 1", 0.5)
    assert decision.judged[0].p_value < 0.01
    assert "of one outcome are too few to be sure" in decision.sentence


def test_the_baseline_must_be_there():
    with pytest.raises(ParameterError, match="the baseline 'ips' is no candidate"):
        decide(None, candidates=("naive",), baseline="ips")
