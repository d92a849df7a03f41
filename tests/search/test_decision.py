"""The choice by a random sample: right where it can be, the baseline where it cannot, honest of its luck."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.errors import ParameterError
from unskew.search.decision import CANNOT_DECIDE, MEAN, ClickEvidence, RandomSample, decide


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
        (decision.chosen != "naive", decision.chosen not in ("naive", MEAN))
        for decision in (
            decide(drawn(seed, users=120, noise=(0.5,), same=8), level=0.9) for seed in range(25)
        )
    ]
    any_of_them, one = np.mean(wrong, axis=0)
    # The mean of nine that err each in its own way is better than one of them, and is shipped.
    assert one <= 0.25 < any_of_them


def test_without_a_winner_the_mean_is_shipped_where_it_is_ahead_and_otherwise_the_baseline():
    noise = (0.5, 0.45, 0.6, 3.0)
    found = [decide(drawn(seed, users=40, noise=noise)) for seed in range(6)]
    means = [each for each in found if each.chosen == MEAN]
    assert means
    for each in means:
        kept = [candidate.name for candidate in each.judged if not candidate.rejected]
        assert each.shipped == ("naive", *kept)
        assert each.mean_advantage > 0
        assert each.sentence.startswith(f"The mean of {len(each.shipped)} models, naive and the candidates")
        assert "plan-random" in each.sentence
    assert any("candidate 3" not in each.shipped for each in means)
    # One that puts two converted pairs too low is not clearly worse, and no help.
    sample = drawn(0, users=40, noise=(0.5,))
    low = sample.predictions["naive"].copy()
    low[:, np.flatnonzero(sample.outcome)[[3, 30]]] *= 0.1
    lines = {**sample.predictions, "low": low}
    decision = decide(RandomSample(sample.user, sample.outcome, lines))
    assert decision.mean_advantage <= 0
    assert "their mean is not ahead" in decision.sentence
    assert (decision.chosen, decision.shipped) == ("naive", ("naive",))


def test_a_candidate_that_is_clearly_worse_is_rejected():
    decision = decide(drawn(1, noise=(0.3, 2.0)))
    assert (decision.chosen, decision.judged[0].rejected) == ("naive", True)
    assert (decision.shipped, decision.mean_advantage) == (("naive",), None)
    assert "all are clearly worse" in decision.sentence


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
    # Up to 30 of each outcome there is no winner, whatever the p-value, but the mean.
    decision = decide(drawn(6, users=20, noise=(3.0, 0.1)))
    assert (decision.chosen, decision.shipped) == (MEAN, ("naive", "candidate 1"))
    assert decision.judged[0].p_value < 0.01
    assert "of one outcome are too few to be sure" in decision.sentence
    assert decision.mean_advantage > 0 < decision.mean_error


def test_the_baseline_must_be_there():
    with pytest.raises(ParameterError, match="the baseline 'ips' is no candidate"):
        decide(None, candidates=("naive",), baseline="ips")
