"""Where the paper's statements fail, in numbers, and what holds instead; theory.md quotes these."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew import theory

HALF_AND_HALF = {"propensity_true": [0.02, 0.14], "error": [0.2, 0.4]}
"""Half of the pairs are clicked at 2 %, half at 14 %; the model errs more on the second half."""


def bias_of(nabla, error):
    """The bias of IPS for given ∇ = 1 − p/p̂, with p̂ = ½."""
    used = np.full(len(nabla), 0.5)
    true = used * (1 - np.asarray(nabla))
    return theory.ips_bias(propensity_true=true, propensity_used=used, error=error).absolute


def test_well_calibrated_is_not_unbiased():
    """§8.2: the constant |O|/|D| is perfectly calibrated; its IPS estimate is the naive one."""
    known = {**HALF_AND_HALF, "propensity_used": [0.08, 0.08]}
    bias = theory.ips_bias(**known)
    split = theory.split_bias(**known)
    assert theory.ece_bound(**known).ece == pytest.approx(0, abs=1e-12)
    assert theory.ideal_loss(known["error"]) == pytest.approx(0.3)
    assert bias.signed == pytest.approx(-0.075)
    assert split.calibration == pytest.approx(0, abs=1e-12)
    assert split.refinement == pytest.approx(-0.075)
    p, e = np.array(known["propensity_true"]), np.array(known["error"])
    assert bias.absolute == pytest.approx(np.cov(p, e, ddof=0)[0, 1] / p.mean())


def test_theorem_1_fails_as_stated():
    """§8.3: ∇̃ ≤ ∇ with its sign, yet the bias goes from 0 to 1."""
    before = theory.ips_bias(propensity_true=[0.5], propensity_used=[0.5], error=[1.0])
    after = theory.ips_bias(propensity_true=[0.5], propensity_used=[0.25], error=[1.0])
    assert before.signed == 0
    assert after.signed == -1 <= before.signed
    assert after.absolute == 1


def test_theorem_1_fails_with_absolute_values_too():
    """§8.3: |∇̃| ≤ |∇| for every pair, and the bias goes from 0 to ¼, because errors no longer cancel."""
    assert bias_of([0.5, -0.5], [1, 1]) == 0
    assert bias_of([0.5, 0.0], [1, 1]) == pytest.approx(0.25)


@given(seed=st.integers(0, 2**32 - 1), sign=st.sampled_from([-1, 1]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_theorem_1_holds_for_one_sign_and_for_the_bounds(seed, sign):
    """Sufficient: e ≥ 0, all ∇ of one sign, |∇̃| ≤ |∇| for every pair."""
    generator = np.random.default_rng(seed)
    error = generator.exponential(1, 20)
    nabla = sign * generator.uniform(0, 0.9, 20)
    smaller = nabla * generator.uniform(-1, 1, 20)
    assert bias_of(smaller, error) <= bias_of(nabla, error) + 1e-12


def test_corollary_1_needs_more_than_one_sign():
    """§8.7: for the doubly robust estimate e − ê has no sign, so even one-signed ∇ are not enough."""
    known = {"propensity_true": [0.25, 0.25], "error": [1.0, 0.0], "imputed": [0.0, 1.0]}
    before = theory.dr_bias(**known, propensity_used=[0.5, 0.5])
    after = theory.dr_bias(**known, propensity_used=[0.5, 0.25])
    assert before.absolute == 0
    assert after.absolute == pytest.approx(0.25)
    assert after.bound < before.bound


def test_recalibration_removes_the_calibration_part_and_only_reweights_the_other():
    """§8.4: q → c(q) keeps level sets and Cov(p, e | q), and turns its weight 1/q into 1/c(q)."""
    p = np.array([0.1, 0.3, 0.4, 0.8])
    e = np.array([0.2, 0.6, 0.5, 0.9])
    raw = np.array([0.5, 0.5, 0.9, 0.9])
    recalibrated = np.array([0.2, 0.2, 0.6, 0.6])
    before = theory.split_bias(propensity_true=p, propensity_used=raw, error=e)
    after = theory.split_bias(propensity_true=p, propensity_used=recalibrated, error=e)
    assert before.calibration == pytest.approx((0.3 * 0.4 / 0.5 + 0.3 * 0.7 / 0.9) / 2)
    assert after.calibration == pytest.approx(0, abs=1e-12)
    covariance = np.array([0.02, 0.04])
    assert before.refinement == pytest.approx(-np.mean(covariance / [0.5, 0.9]))
    assert after.refinement == pytest.approx(-np.mean(covariance / [0.2, 0.6]))
    assert abs(after.refinement) > abs(before.refinement)


def test_recalibration_can_raise_the_bias():
    """§8.4: the two parts may have opposite signs, and then removing one uncovers the other."""
    known = {**HALF_AND_HALF}
    raw = theory.split_bias(**known, propensity_used=[0.1, 0.1])
    calibrated = theory.split_bias(**known, propensity_used=[0.08, 0.08])
    assert (raw.calibration, raw.refinement) == (pytest.approx(0.06), pytest.approx(-0.06))
    assert raw.total == pytest.approx(0, abs=1e-12)
    assert calibrated.total == pytest.approx(-0.075)


def test_corollary_2_fails_as_stated():
    """§8.5: p̃ = .002 for p = .001 has ECE .001, n · ECE = .1, and mean ∇̃ = ½."""
    known = {"propensity_true": [0.001] * 10, "propensity_used": [0.002] * 10, "error": [1.0] * 10}
    result = theory.ece_bound(**known, ece_bins=100)
    mean_nabla = theory.ips_bias(**known).signed
    assert mean_nabla == pytest.approx(0.5)
    assert 100 * result.ece == pytest.approx(0.1)
    assert mean_nabla > 100 * result.ece
    assert abs(result.calibration) <= result.bound


def test_binned_ece_can_be_zero_for_miscalibrated_propensities():
    """§8.5e: two propensities in one bin, off in opposite directions: ECE 0, calibration part not."""
    result = theory.ece_bound(
        propensity_true=[0.019, 0.011], propensity_used=[0.011, 0.019], error=[1.0, 1.0], ece_bins=100
    )
    assert result.ece == pytest.approx(0, abs=1e-15)
    assert result.calibration == pytest.approx((-8 / 11 + 8 / 19) / 2)
    assert result.oscillation == pytest.approx(0.008)
    assert abs(result.calibration) <= result.bound


@given(
    seed=st.integers(0, 2**32 - 1),
    ece_bins=st.integers(1, 30),
    bins=st.one_of(st.none(), st.integers(1, 50)),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_corrected_ece_bound_holds(seed, ece_bins, bins):
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, 200))
    q = generator.uniform(0.02, 1, size) ** 2
    p = np.clip(q ** generator.uniform(0.3, 3) + generator.normal(0, 0.05, size), 0, 1)
    result = theory.ece_bound(
        propensity_true=p,
        propensity_used=q,
        error=generator.exponential(1, size),
        ece_bins=ece_bins,
        bins=bins,
    )
    assert abs(result.calibration) <= result.bound * (1 + 1e-12)


def test_theorem_2_fails_without_absolute_values():
    """§8.6: ∇ = ±½ sum to 0, while the error sits where the estimate is too low. |D| makes chance vanish."""
    size = 200_000
    p, q = np.tile([0.25, 0.75], size // 2), np.full(size, 0.5)
    e = np.tile([1.0, 0.0], size // 2)
    expected_risk = (
        theory.ideal_loss(e) - theory.ips_bias(propensity_true=p, propensity_used=q, error=e).signed
    )
    bound = theory.generalisation_bound(
        propensity_true=p, propensity_used=q, empirical_risk=expected_risk, error_max=1, hypotheses=1
    )
    paper = expected_risk + np.mean(1 - p / q) + bound.deviation
    assert theory.ideal_loss(e) == 0.5
    assert paper == pytest.approx(0.256, abs=0.001)
    assert bound.total == pytest.approx(0.756, abs=0.001)


def test_theorem_2_fails_without_the_bound_of_the_loss():
    """§8.6: a cross entropy of 4 with propensities twice too large."""
    size = 200_000
    p, q, e = np.full(size, 0.25), np.full(size, 0.5), np.full(size, 4.0)
    bound = theory.generalisation_bound(
        propensity_true=p, propensity_used=q, empirical_risk=2.0, error_max=4, hypotheses=1
    )
    paper = 2.0 + np.mean(1 - p / q) + bound.deviation / 4
    assert paper < 2.6 < theory.ideal_loss(e) == 4
    assert bound.total >= 4


def test_corrected_generalisation_bound_holds_for_the_model_that_looks_best():
    """20 models, the one with the lowest IPS estimate chosen, 300 worlds: the bound must fail in ≤ 5 %."""
    generator = np.random.default_rng(11)
    size, models = 400, 20
    p = generator.uniform(0.2, 0.9, size)
    q = np.clip(p * generator.uniform(0.8, 1.2, size), 0.1, 1)
    errors = generator.random((models, size))
    held, slack = 0, []
    for _ in range(300):
        click = generator.random(size) < p
        risks = (errors * click / q).mean(axis=1)
        best = int(risks.argmin())
        bound = theory.generalisation_bound(
            propensity_true=p, propensity_used=q, empirical_risk=risks[best], error_max=1, hypotheses=models
        )
        held += errors[best].mean() <= bound.total
        slack.append(bound.total - errors[best].mean())
    assert held >= 0.95 * 300
    assert bound.total == pytest.approx(bound.empirical_risk + bound.bias + bound.deviation)
    assert 0 < np.mean(slack) < 1


def test_the_examples_of_the_theory_page_run():
    page = Path(__file__).parents[2] / "docs" / "explanation" / "theory.md"
    outcome = doctest.testfile(str(page), module_relative=False)
    assert outcome.attempted >= 12
    assert outcome.failed == 0
