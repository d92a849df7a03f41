"""Wrong propensities: weights that are put in balance, ranges under Γ, and verdicts that survive them."""

from __future__ import annotations

import itertools
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

import unskew as us
from unskew.offpolicy.covariates import ACTIVITY, POPULARITY, PREDICTION
from unskew.offpolicy.sensitivity import Line, least_value, tipping_point
from unskew.offpolicy.weighing import Contribution, normalised, plain

SIMULATION = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "offpolicy_coverage.py"))
SCENARIOS = {each.name: each for each in SIMULATION["SCENARIOS"]}


def worlds(name, number, users=150, items=60):
    scenario = SCENARIOS[name]
    for seed in range(number):
        world = SIMULATION["draw"](scenario, users, items, seed)
        yield world, scenario.propensity(world.log, world.propensity)


def compared(world, propensity, **options):
    given = {"held_out": "all", "p_min": 1e-3, "resamples": 50, "metrics": ["nll"]}
    return us.compare(world.models, world.log, propensity=propensity, **{**given, **options})


class TestBalance:
    def test_true_propensities_are_in_balance_and_popularity_misses_taste(self):
        found = {}
        for name in ("right: known propensities", "wrong: strong taste, popularity"):
            told = [compared(world, p).balance for world, p in worlds(name, 6)]
            assert [each.covariate for each in told[0]] == [ACTIVITY, POPULARITY, PREDICTION]
            found[name] = np.array(
                [[(b.clicks, b.weighted, b.balanced, b.squared_error) for b in of] for of in told]
            )
        right, wrong = (of.mean(axis=0) for of in found.values())
        assert (right[:, 0] > 0.3).all(), "clicks come from the active, the popular and the promising"
        assert (np.abs(right[:, 1]) < 0.05).all(), "true weights put that right"
        assert (np.abs(right[:, 3]) < 0.01).all(), "and noise does not pass as an error of the weights"
        prediction = wrong[2]
        assert prediction[1] > 0.2
        assert prediction[3] > 0.05
        assert (np.abs(wrong[:, 2]) < 0.1).all(), "balanced weights are in balance"


@pytest.fixture(scope="module")
def line():
    random = np.random.default_rng(1)
    size = random.uniform(20.0, 40.0, 8)
    weight = random.uniform(1.0, 9.0, 40)
    weighted = normalised(weight, np.arange(40) % 8, size)
    return weighted, Contribution(random.normal(0.4, 1.0, 40), np.zeros(8), size)


class TestSensitivity:
    @pytest.mark.parametrize("gamma", [1.0, 1.3, 3.0])
    def test_the_bound_is_the_least_that_any_odds_within_gamma_give(self, line, gamma):
        weighted, added = line
        odds = weighted.weight - 1.0

        def mean(log_factor):
            w = 1.0 + odds * np.exp(log_factor)
            return float(w @ added.value / w.sum())

        span = np.log(gamma)
        random = np.random.default_rng(2)
        starts = random.uniform(-span, span, (4, 40)) if span else np.zeros((1, 40))
        found = min(minimize(mean, x, bounds=[(-span, span)] * 40).fun for x in starts)
        least, _ = Line.of(weighted, added).least(gamma)
        greatest = -Line.of(weighted, added).negated().least(gamma)[0]
        assert least == pytest.approx(found, abs=1e-6)
        assert least <= mean(np.zeros(40)) <= greatest
        assert (greatest - least > 0.01) == (gamma > 1.0)

    def test_without_gamma_the_range_is_the_interval(self):
        (world, p) = next(worlds("right: known propensities", 1))
        for estimator in ("balanced", "snips", "ips", "dr"):
            told = compared(
                world, p, gamma=1.0, estimator=estimator, metrics=["nll", "auc", "dcg@4"], resamples=4000
            )
            for of in told.estimates.values():
                for each in of.values():
                    assert each.range_low == pytest.approx(each.low, abs=0.12 * each.standard_error)
                    assert each.range_high == pytest.approx(each.high, abs=0.12 * each.standard_error)
            for each in told.differences:
                assert each.range_low == pytest.approx(each.low, abs=0.12 * each.standard_error)

    def test_a_larger_gamma_gives_a_wider_range_and_fewer_verdicts(self):
        (world, p) = next(worlds("right: known propensities", 1))
        told = [compared(world, p, gamma=gamma, metrics=["nll", "auc"]) for gamma in (1.0, 1.1, 1.5)]
        for first, second in itertools.pairwise(told):
            for one, other in zip(first.differences, second.differences, strict=True):
                # Models that differ in level alone have the same AUC, whatever the weights.
                assert one.advantage == 0 or one.range_low > other.range_low
                assert one.advantage == 0 or one.range_high < other.range_high
                assert one.decided or not other.decided

    def test_the_tipping_point_is_where_the_range_reaches_0(self, line):
        weighted, added = line
        lines = [Line.of(weighted, Contribution(added.value + 0.6, added.base, added.units))]
        point = tipping_point(lines, 0.95)
        assert 1.0 < point < 20.0
        assert least_value(lines, 0.999 * point, 0.95) > 0 > least_value(lines, 1.001 * point, 0.95)
        assert tipping_point([line.negated() for line in lines], 0.95) == 1.0

    def test_ips_bounds_are_sums_and_snips_bounds_do_not_mind_the_scale(self, line):
        weighted, added = line
        raw = plain(weighted.weight, weighted.group, 8)
        least, _ = Line.of(raw, added).least(2.0)
        upper, lower = 1 + 2 * (raw.weight - 1), 1 + (raw.weight - 1) / 2
        picked = np.where(added.value < 0, upper, lower)
        assert least == pytest.approx(picked @ added.value / added.units.sum())

    def test_what_does_not_survive_gamma_is_not_called_decided(self):
        world, p = next(worlds("wrong: strong taste, popularity", 1, users=300, items=80))
        told = compared(world, p, metrics=["nll", "auc", "dcg@4"], resamples=400)
        fallen = [each for each in told.differences if each.p_holm < 0.05 and not each.decided]
        assert told.gamma > 1.2
        assert fallen
        for each in fallen:
            assert each.range_low <= 0
            assert each.survives <= told.gamma
            assert each.times_more_data is None
            assert f"holds only up to Γ = {each.survives:.2f}, and the propensities are off by" in str(each)
            assert str(each).startswith(
                f"{each.metric}: the data cannot tell {each.better} from {each.worse}"
            )


class TestInfluence:
    def test_the_influence_of_balanced_weights_is_that_of_balancing_again(self):
        """One user group counted a little more: the estimate moves as ψ says, weights refitted."""
        random = np.random.default_rng(3)
        strata, candidate = random.integers(0, 3, 400), random.integers(0, 3, 3000)
        group, candidate_group = np.arange(400) % 6, np.arange(3000) % 6
        weight = random.uniform(1.0, 12.0, 400)
        value = strata + random.normal(size=400)

        def made(counts):
            from unskew.offpolicy.covariates import Covariate
            from unskew.offpolicy.weighing import balanced

            covariate = Covariate("c", strata * 1.0, candidate * 1.0, strata, candidate, 3)
            stands_for = counts[candidate_group]
            size = np.bincount(candidate_group, weights=stands_for, minlength=6)
            weighted = balanced(weight * counts[group], group, size, [covariate], candidate_group, stands_for)
            return weighted, Contribution(value, np.zeros(6), size)

        weighted, added = made(np.ones(6))
        influence = weighted.influence(added)
        for number in range(6):
            counts = np.ones(6)
            counts[number] += 1e-4
            again, moved = made(counts)
            change = (again.mean(moved) - weighted.mean(added)) / 1e-4
            expected = influence[number]
            assert change == pytest.approx(expected, abs=0.03 * np.abs(influence).max())


class TestSimulation:
    """A small part of ``benchmarks/offpolicy_coverage.py``; its table is in explanation/evaluation.md."""

    def test_where_the_model_is_right_intervals_hold_the_truth(self):
        found = SIMULATION["judge"](
            SCENARIOS["right: estimated, well specified"],
            "balanced",
            redraws=20,
            users=120,
            items=50,
            metrics=("nll", "dcg@4"),
        )
        # 20 redraws of 4 models that share their clicks: 95 % is expected, 85 % a bad draw.
        for name in ("nll", "dcg@4"):
            assert found["covered"][name] >= 0.85, name
            assert found["differences_covered"][name] >= 0.85, name
        assert found["redraws_with_a_wrong_winner"] == 0

    def test_where_it_is_wrong_a_wrong_winner_is_rarely_named(self):
        found = SIMULATION["judge"](
            SCENARIOS["wrong: strong taste that poor models hardly see, popularity"],
            "balanced",
            redraws=12,
            users=300,
            items=80,
            metrics=("nll",),
        )
        assert found["redraws_with_a_wrong_winner_by_p_value"] >= 0.2, "sampling errors alone are not enough"
        assert found["redraws_with_a_wrong_winner"] <= 1 / 12
