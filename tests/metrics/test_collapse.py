"""The rule by which a network counts as collapsed: from 100 rows to many, for common and rare outcomes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit

from unskew.metrics import CalibrationSketch
from unskew.metrics.collapse import Collapsed, counts, learned, learned_by_sketch

RATES = (0.1, 0.002)


def world(random, n, rate, spread):
    """Logits that are true, with their outcomes."""
    z = np.log(rate / (1 - rate)) + spread * random.standard_normal(n) - spread**2 / 2
    return z, random.random(n) < expit(z)


def accused(rate, n, spread, seen, worlds=60):
    """In how many of the worlds the rule speaks; ``seen`` makes a network's logits of the true ones."""
    random = np.random.default_rng(n)
    found = []
    for _ in range(worlds):
        z, outcome = world(random, n, rate, spread)
        found.append(learned(logits=seen(z, random), outcome=outcome).reason)
    return found


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("n", [100, 1000, 100_000])
def test_a_network_that_learned_is_not_accused(rate, n):
    found = accused(rate, n, 0.7, lambda z, random: z, worlds=10 if n > 1000 else 60)
    assert all(reason is None for reason in found)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("n", [100, 1000])
def test_few_rows_do_not_accuse_a_noisy_network(rate, n):
    """What it knows and what it makes up cancel: it gains nothing, but so few rows cannot be sure of that."""
    found = accused(rate, n, 0.3, lambda z, random: z + 0.3 * random.standard_normal(n))
    assert sum(reason is not None for reason in found) <= 6


@pytest.mark.parametrize("rate", RATES)
def test_many_rows_accuse_a_network_of_noise(rate):
    found = accused(rate, 500_000, 0.7, lambda z, random: 0.3 * random.standard_normal(len(z)), worlds=3)
    assert found == ["no gain"] * 3


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("n", [100, 10_000])
def test_a_constant_is_flat_however_well_ordered(rate, n):
    """As DR-JL was on sparse data: the order of a good model, with deviations of a hundredth."""
    found = accused(rate, n, 0.7, lambda z, random: 0.015 * z, worlds=5)
    assert found == ["flat"] * 5


def test_the_gain_is_that_of_both_best_levels_with_weights():
    random = np.random.default_rng(1)
    z, outcome = world(random, 400, 0.2, 1.0)
    weight = random.exponential(size=400)

    def loss(logits):
        return weight @ (np.logaddexp(0, logits) - outcome * logits)

    best = minimize_scalar(lambda c: loss(z + c), bracket=(-1, 1)).fun
    constant = minimize_scalar(lambda c: loss(np.full(400, c)), bracket=(-3, 0)).fun
    assert learned(logits=z, outcome=outcome, weight=weight).gain == pytest.approx(1 - best / constant)


def test_the_error_of_the_gain_is_that_of_many_worlds():
    random = np.random.default_rng(2)
    found = [learned(logits=z, outcome=o) for z, o in (world(random, 2000, 0.1, 0.7) for _ in range(300))]
    assert np.mean([each.error for each in found]) == pytest.approx(
        np.std([each.gain for each in found]), rel=0.2
    )


def test_a_sketch_is_judged_as_its_rows_are():
    random = np.random.default_rng(3)
    z, outcome = world(random, 20_000, 0.05, 0.8)
    weight = np.where(outcome, 1.0, 7.0)
    rows = learned(logits=z, outcome=outcome, weight=weight)
    sketch = learned_by_sketch(CalibrationSketch.of(score=expit(z), outcome=outcome, weight=weight))
    assert sketch[:3] == pytest.approx(rows[:3], rel=0.01)
    assert sketch.reason is None


@pytest.mark.parametrize("outcome", [np.zeros(50), np.ones(50)])
def test_one_class_is_judged_by_its_spread_alone(outcome):
    found = learned(logits=np.linspace(-2, 2, 50), outcome=outcome)
    assert np.isnan(found.gain)
    assert found.reason is None


def test_seeds_are_counted_by_network_and_reason():
    found = [
        Collapsed("prediction", 0, "flat"),
        Collapsed("prediction", 4, "flat"),
        Collapsed("click", 4, "no gain"),
    ]
    assert counts(found) == [("prediction", "flat", 2), ("click", "no gain", 1)]


def test_an_ensemble_learned_nothing_where_most_of_its_members_did():
    names = ["prediction", "prediction, member 1", "prediction, member 2"]
    found = [Collapsed(name, 0, "flat") for name in names[:2]] + [Collapsed(names[2], 0, "no gain")]
    found += [Collapsed(names[1], 1, "flat")]
    assert counts(found, members=5) == [("prediction", "flat", 1)]
    assert counts(found[1:], members=5) == []
    assert counts(found[-1:], members=1) == [("prediction", "flat", 1)]
