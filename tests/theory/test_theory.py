"""The formulas of unskew.theory against full enumeration of clicks, simulation, and worlds solved by hand."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew import theory
from unskew.base.errors import DataError, ParameterError


def expectation(p, statistic):
    """Mean and variance of a statistic over every pattern of independent clicks."""
    patterns = np.array(list(itertools.product([0, 1], repeat=len(p))))
    chance = np.prod(np.where(patterns == 1, p, 1 - p), axis=1)
    values = np.array([statistic(pattern) for pattern in patterns])
    mean = (chance * values).sum()
    return mean, (chance * (values - mean) ** 2).sum()


@pytest.fixture(scope="module")
def small():
    generator = np.random.default_rng(0)
    return {
        "propensity_true": generator.uniform(0.1, 0.9, 8),
        "propensity_used": generator.uniform(0.1, 0.9, 8),
        "error": generator.exponential(1.0, 8),
    }


@pytest.fixture(scope="module")
def world():
    """Users who click what the model errs on, with propensities off in scale and in detail."""
    generator = np.random.default_rng(7)
    taste = generator.normal(0, 1, (200, 250))
    p = 1 / (1 + np.exp(2.5 - taste))
    e = 0.3 + 0.2 * np.tanh(taste) + 0.1 * generator.random(taste.shape)
    blurred = 1 / (1 + np.exp(2.2 - 0.6 * taste - 0.5 * generator.normal(0, 1, taste.shape)))
    click = generator.random(taste.shape) < p
    return {"p": p, "e": e, "q": np.clip(blurred, 0.01, None), "click": click}


def test_lemma_1_and_the_variance_hold_over_every_pattern_of_clicks(small):
    p, q, e = small.values()
    mean, variance = expectation(p, lambda o: theory.ips_estimate(click=o, propensity=q, error=e))
    bias = theory.ips_bias(**small)
    assert bias.signed == pytest.approx(theory.ideal_loss(e) - mean, abs=1e-12)
    assert bias.absolute == abs(bias.signed) <= bias.bound
    assert theory.ips_variance(**small) == pytest.approx(variance, rel=1e-10)


def test_doubly_robust_bias_and_variance_hold_over_every_pattern_of_clicks(small):
    p, q, e = small.values()
    guess = np.random.default_rng(1).exponential(1.0, 8)
    mean, variance = expectation(
        p, lambda o: theory.dr_estimate(click=o, propensity=q, error=e, imputed=guess)
    )
    assert theory.dr_bias(**small, imputed=guess).signed == pytest.approx(e.mean() - mean, abs=1e-12)
    assert theory.dr_variance(**small, imputed=guess) == pytest.approx(variance, rel=1e-10)


def test_doubly_robust_is_unbiased_if_either_half_is_right(small):
    p, e = small["propensity_true"], small["error"]
    right_error = theory.dr_bias(**small, imputed=e)
    right_propensity = theory.dr_bias(propensity_true=p, propensity_used=p, error=e, imputed=0 * e)
    assert right_error.signed == right_error.bound == 0
    assert right_propensity.signed == right_propensity.bound == 0
    assert theory.dr_bias(**small, imputed=0 * e) == theory.ips_bias(**small)
    assert theory.ips_bias(**small).absolute > 0.01


def test_in_sample_propensities_are_outside_the_lemma():
    """§8.1: p̂ that has seen the clicks (½ p + ½ o, right on average) biases IPS; fixed, Lemma 1 gives 0."""
    p, e = np.full(6, 0.3), np.ones(6)
    mean, _ = expectation(p, lambda o: theory.ips_estimate(click=o, propensity=0.5 * p + 0.5 * o, error=e))
    assert theory.ips_bias(propensity_true=p, propensity_used=p, error=e).signed == 0
    assert mean == pytest.approx(0.3 / 0.65)


def test_estimates_agree_where_they_must(world):
    p, e, click = world["p"], world["e"], world["click"]
    constant = np.full(p.shape, click.mean())
    naive = theory.naive_estimate(click=click, error=e)
    assert theory.ips_estimate(click=click, propensity=constant, error=e) == pytest.approx(naive, rel=1e-12)
    assert theory.snips_estimate(click=click, propensity=constant / 3, error=e) == pytest.approx(
        naive, rel=1e-12
    )
    hidden = np.where(click, e, np.nan)
    full = theory.ips_estimate(click=click, propensity=p, error=hidden)
    clicked_only = theory.ips_estimate(
        click=np.ones(click.sum()), propensity=p[click], error=e[click], population_size=p.size
    )
    assert clicked_only == pytest.approx(full, rel=1e-12)


def test_first_order_moments_of_snips_match_simulation():
    generator = np.random.default_rng(3)
    p, q = generator.uniform(0.05, 0.5, 2000), generator.uniform(0.05, 0.5, 2000)
    e = p + generator.random(2000)
    draws = generator.random((2000, 2000)) < p
    weighted = draws / q
    simulated = (weighted * e).sum(axis=1) / weighted.sum(axis=1)
    known = {"propensity_true": p, "propensity_used": q, "error": e}
    standard_error = np.sqrt(theory.snips_variance(**known))
    assert simulated.std() == pytest.approx(standard_error, rel=0.08)
    bias = theory.snips_bias(**known).signed
    assert e.mean() - simulated.mean() == pytest.approx(bias, abs=0.15 * standard_error)
    assert abs(bias) > 2 * standard_error


def test_split_equals_the_formula_on_level_sets():
    generator = np.random.default_rng(4)
    level = generator.integers(0, 5, 400)
    q = np.array([0.1, 0.2, 0.3, 0.5, 0.8])[level]
    p, e = generator.random(400), generator.exponential(1, 400)
    calibration = refinement = 0.0
    for value in np.unique(q):
        here = q == value
        calibration += here.mean() * (value - p[here].mean()) * e[here].mean() / value
        refinement -= here.mean() * np.cov(p[here], e[here], ddof=0)[0, 1] / value
    split = theory.split_bias(propensity_true=p, propensity_used=q, error=e)
    assert (split.groups, split.exact, split.discretisation) == (5, True, 0.0)
    assert split.calibration == pytest.approx(calibration, abs=1e-12)
    assert split.refinement == pytest.approx(refinement, abs=1e-12)


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 300),
    bins=st.one_of(st.none(), st.integers(1, 40)),
    decimals=st.integers(1, 8),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_two_parts_always_add_up_to_the_bias(seed, size, bins, decimals):
    generator = np.random.default_rng(seed)
    p, e = generator.random(size), generator.normal(0, 1, size)
    q = np.clip(np.round(generator.random(size), decimals), 0.01, 1)
    split = theory.split_bias(propensity_true=p, propensity_used=q, error=e, bins=bins)
    scale = 1 + np.abs(e / q).max()
    assert split.calibration + split.refinement == pytest.approx(split.total, abs=1e-12 * scale)
    assert split.groups <= (bins or len(np.unique(q)))
    signed = theory.ips_bias(propensity_true=p, propensity_used=q, error=e).signed
    assert split.total == pytest.approx(signed, abs=1e-12 * scale)


def test_binned_parts_approach_those_of_the_level_sets_and_discretisation_tells_how_fast():
    """Each q occurs twice, as p = c(q) ± .05 q and e = ē(q) ± .1, so the level sets are known exactly."""
    q = np.repeat(np.linspace(0.05, 0.9, 20_000), 2)
    sign = np.tile([1.0, -1.0], 20_000)
    p, e = q**1.5 + 0.05 * q * sign, 0.5 + 0.4 * q + 0.1 * sign
    known = {"propensity_true": p, "propensity_used": q, "error": e}
    exact = theory.split_bias(**known, bins=None)
    assert exact.calibration == pytest.approx(np.mean((q - q**1.5) * (0.5 + 0.4 * q) / q), rel=1e-10)
    assert exact.refinement == pytest.approx(-0.05 * 0.1, rel=1e-9)
    misses = []
    for bins in (4, 8, 16, 100):
        binned = theory.split_bias(**known, bins=bins)
        miss = exact.calibration - binned.calibration
        assert binned.discretisation == pytest.approx(miss, rel=0.2)
        misses.append(abs(miss))
    assert np.all(np.diff(misses) < 0)
    assert misses[-1] < 1e-4 < abs(exact.refinement)


def test_true_propensities_have_neither_part(world):
    split = theory.split_bias(propensity_true=world["p"], propensity_used=world["p"], error=world["e"])
    assert (split.total, split.calibration, split.refinement) == (0, 0, 0)
    assert split.groups == 100
    assert not split.exact


def test_equal_propensities_share_a_bin():
    q = np.concatenate([np.full(900, 0.5), np.linspace(0.1, 0.9, 100)])
    p = np.concatenate([np.tile([0.2, 0.8], 450), np.linspace(0.1, 0.9, 100)])
    split = theory.split_bias(propensity_true=p, propensity_used=q, error=p, bins=10)
    assert split.calibration == pytest.approx(0, abs=1e-12)
    assert split.refinement == pytest.approx(-0.9 * 0.09 / 0.5, rel=1e-6)


def test_truth_report_tells_each_estimate_from_the_truth(world):
    p, e, click, q = world["p"], world["e"], world["click"], world["q"]
    truth = theory.truth_report(
        propensity_true=p,
        error=e,
        click=click,
        propensities={
            "raw": q,
            "clicked share": np.full(p.shape, click.mean()),
            "constant": np.full(p.shape, p.mean()),
            "true": p,
        },
    )
    assert truth.ideal == pytest.approx(e.mean())
    assert truth.naive.standard_errors_off > 5
    assert abs(truth.ips["true"].standard_errors_off) < 3
    assert truth.ips["true"].bias == 0
    assert truth.ips["clicked share"].estimate == pytest.approx(truth.naive.estimate, rel=1e-12)
    assert truth.ips["constant"].split.calibration == pytest.approx(0, abs=1e-12)
    assert truth.ips["constant"].split.refinement == pytest.approx(truth.naive.bias, rel=1e-10)
    covariance = np.mean((p - p.mean()) * (e - e.mean()))
    assert truth.naive.bias == pytest.approx(-covariance / p.mean(), rel=1e-10)
    for estimate in truth.ips.values():
        assert abs(estimate.estimate - estimate.expected) < 4 * estimate.standard_error
        assert estimate.expected == pytest.approx(truth.ideal - estimate.bias)
        assert estimate.split.total == estimate.bias
    written = json.loads(json.dumps(truth.to_dict(), allow_nan=False))
    assert written["ips"]["raw"]["calibration"] + written["ips"]["raw"]["refinement"] == pytest.approx(
        written["ips"]["raw"]["bias"]
    )
    assert "calibration" not in written["naive"]


def test_truth_report_has_no_ratio_where_nothing_varies():
    truth = theory.truth_report(
        propensity_true=[0.5, 0.5], error=[1.0, 1.0], click=[1, 0], propensities={"true": [0.5, 0.5]}
    )
    assert truth.naive.standard_errors_off is None
    assert truth.ips["true"].standard_errors_off == 0


def test_weight_check_estimates_the_mean_of_nabla_without_bias():
    generator = np.random.default_rng(5)
    p, q = generator.uniform(0.1, 0.9, 8), generator.uniform(0.1, 0.9, 8)

    def check(click):
        return theory.estimable_parts(click=click, propensity=q, error_max=1.0).weight_check

    mean, _ = expectation(p, check)
    assert 1 - mean == pytest.approx(np.mean(1 - p / q), abs=1e-12)


def test_estimable_bound_covers_the_calibration_part_and_noise_is_what_honest_propensities_show(world):
    p, e, q = world["p"], world["e"], world["q"]
    part = theory.split_bias(propensity_true=p, propensity_used=q, error=e, bins=10).calibration
    found = theory.estimable_parts(click=world["click"], propensity=q, error_max=e.max(), bins=10)
    assert abs(part) < found.calibration_bound
    assert found.calibration_bound > 2 * found.calibration_noise
    assert abs(found.weight_check - 1) > 5 * found.weight_check_standard_error
    honest = theory.estimable_parts(click=world["click"], propensity=p, error_max=e.max())
    assert honest.calibration_bound == pytest.approx(honest.calibration_noise, rel=0.35)
    assert abs(honest.weight_check - 1) < 3 * honest.weight_check_standard_error


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: theory.ips_bias(propensity_true=[0.5, 1.5], propensity_used=[0.5, 0.5], error=[1, 1]),
            r"propensity_true, pair 1: value 1\.5 does not lie in \[0, 1\].*probabilities of a click",
        ),
        (
            lambda: theory.split_bias(propensity_true=[0.5], propensity_used=[0.0], error=[1.0]),
            r"propensity_used, pair 0: value 0\.0 does not lie in \(0, 1\].*clip propensities",
        ),
        (
            lambda: theory.ips_bias(propensity_true=[0.5], propensity_used=[0.5, 0.5], error=[1.0]),
            "different numbers of pairs: propensity_true 1, propensity_used 2, error 1",
        ),
        (
            lambda: theory.naive_estimate(click=[1, 0], error=[np.nan, 1]),
            "error, pair 0: error is NaN or infinite where click is 1",
        ),
        (lambda: theory.naive_estimate(click=[0, 0], error=[1, 1]), "no pair is clicked"),
        (lambda: theory.naive_estimate(click=[2, 0], error=[1, 1]), "click, pair 0: value 2 is not 0 or 1"),
        (lambda: theory.ideal_loss([]), "error is empty"),
        (lambda: theory.ideal_loss([1.0, np.inf]), "error, pair 1: value inf is NaN or infinite"),
        (
            lambda: theory.truth_report(propensity_true=[0.5], error=[1.0], click=[1], propensities={}),
            "there are no propensities to judge",
        ),
    ],
)
def test_bad_arrays_are_named(call, message):
    with pytest.raises(DataError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: theory.ips_estimate(click=[1, 1], propensity=[1, 1], error=[1, 1], population_size=1),
            "population_size must be at least 2, not 1",
        ),
        (
            lambda: theory.split_bias(propensity_true=[0.5], propensity_used=[0.5], error=[1], bins=0),
            "bins must be at least 1, not 0",
        ),
        (
            lambda: theory.estimable_parts(click=[1], propensity=[0.5], error_max=np.inf),
            "error_max must be above 0, not inf",
        ),
        (
            lambda: theory.generalisation_bound(
                propensity_true=[0.5], propensity_used=[0.5], empirical_risk=0, error_max=1, hypotheses=0
            ),
            "hypotheses must be at least 1, not 0",
        ),
        (
            lambda: theory.ece_bound(propensity_true=[0.5], propensity_used=[0.5], error=[1], ece_bins=0),
            "ece_bins must be at least 1, not 0",
        ),
    ],
)
def test_bad_parameters_are_named(call, message):
    with pytest.raises(ParameterError, match=message):
        call()
