"""Whether scores are beyond chance: an oracle, and how often scores that know nothing pass."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from unskew.base.errors import DataError, ParameterError
from unskew.metrics import auc, auc_beyond_chance


@pytest.fixture(scope="module")
def noise():
    generator = np.random.default_rng(3)
    return generator.beta(2, 20, 400).round(2), generator.random(400) < 0.15


def test_without_weights_it_is_mann_and_whitneys_test(noise):
    score, clicked = noise
    oracle = mannwhitneyu(
        score[clicked], score[~clicked], alternative="greater", use_continuity=False, method="asymptotic"
    )
    found = auc_beyond_chance(score=score, outcome=clicked)
    assert found.p_value == pytest.approx(oracle.pvalue, rel=1e-9)
    assert found.auc == pytest.approx(auc(score=score, outcome=clicked))


@pytest.mark.parametrize("k", [1, 100])
def test_scores_that_know_nothing_pass_as_often_as_the_level_says(k):
    """Clicks have weight 1, and one in k of the other rows is kept with weight k."""
    generator = np.random.default_rng(k)
    population = 400 * k
    clicks = generator.binomial(population, 0.05, 1_000)
    kept = generator.binomial(population - clicks, 1 / k)
    passed = 0
    for positives, negatives in zip(clicks, kept, strict=True):
        clicked = np.arange(positives + negatives) < positives
        score = generator.beta(2, 20, len(clicked)).round(3)
        weight = np.where(clicked, 1.0, k)
        passed += auc_beyond_chance(score=score, outcome=clicked, weight=weight, significance=0.05).beyond
    assert 0.03 < passed / 1_000 < 0.07


def test_scores_below_chance_and_constants_are_not_beyond():
    clicked = np.arange(1_000) % 10 == 0
    assert not auc_beyond_chance(score=np.where(clicked, 0.1, 0.2), outcome=clicked).beyond
    constant = auc_beyond_chance(score=np.full(1_000, 0.1), outcome=clicked)
    assert constant == (0.5, 0.0, 1.0, False)


def test_one_outcome_alone_and_a_level_that_is_none_are_told():
    with pytest.raises(DataError, match="both outcomes"):
        auc_beyond_chance(score=[0.1, 0.2], outcome=[0, 0])
    with pytest.raises(ParameterError, match="significance"):
        auc_beyond_chance(score=[0.1, 0.2], outcome=[0, 1], significance=1.5)
