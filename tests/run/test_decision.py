"""What ``auto`` ships: the mean of all candidates, less those without which a sample is surely better."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.run.decision import RandomSample, decide

NAIVE = ("naive, mf",)


def drawn(seed, *, users=400, rows=10, **noise):
    """A sample whose candidates predict the true logit with so much noise; None is noise alone."""
    random = np.random.default_rng(seed)
    truth = random.normal(-1, 1, users * rows)
    outcome = (random.random(len(truth)) < 1 / (1 + np.exp(-truth))).astype(float)
    lines = {
        name: 1 / (1 + np.exp(-(truth if sd is not None else 0) - random.normal(0, sd or 1, (1, len(truth)))))
        for name, sd in noise.items()
    }
    return RandomSample(np.repeat(np.arange(users), rows), outcome, lines)


def test_without_a_sample_all_are_shipped_and_the_sentence_says_that_no_data_decided():
    names = ("naive, mf", "esmm, mf", "naive, neumf", "esmm, neumf")
    decision = decide(None, names, NAIVE)
    assert decision.shipped == names
    assert decision.advantage is None
    assert decision.sentence.startswith("No data of yours decided this: the mean of 4 models is shipped")
    assert "naive, esmm; by mf, neumf" in decision.sentence
    assert "plan-random" in decision.sentence


def test_a_large_sample_leaves_out_what_knows_nothing():
    sample = drawn(0, **{"naive, mf": None, "ips, mf": 0.3, "esmm, mf": None})
    decision = decide(sample, tuple(sample.predictions), NAIVE)
    assert decision.shipped == ("ips, mf",)
    assert decision.advantage > 3 * decision.advantage_error
    assert (decision.rows, decision.users) == (4000, 400)


def test_a_sample_with_few_of_one_outcome_decides_nothing():
    sample = drawn(1, users=30, **{"naive, mf": None, "ips, mf": 0.1})
    outcome = np.zeros(300)
    outcome[:4] = 1
    sample = RandomSample(sample.user, outcome, sample.predictions)
    decision = decide(sample, tuple(sample.predictions), NAIVE)
    assert decision.shipped == tuple(sample.predictions)
    assert "300 pairs with 4 of one outcome, is too small" in decision.sentence


@pytest.mark.parametrize("seed", range(3))
def test_candidates_that_are_alike_all_stay(seed):
    sample = drawn(seed, users=60, **{"naive, mf": 0.5, "ips, mf": 0.5, "esmm, mf": 0.5})
    assert decide(sample, tuple(sample.predictions), NAIVE).shipped == tuple(sample.predictions)


def test_too_few_users_leave_the_gain_unknown():
    sample = drawn(3, users=6, rows=200, **{"naive, mf": None, "ips, mf": 0.1})
    decision = decide(sample, tuple(sample.predictions), NAIVE)
    assert decision.advantage is None
    assert "too few users to cross-validate" in decision.sentence
