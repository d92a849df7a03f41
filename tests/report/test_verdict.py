"""The verdict follows from the numbers: each branch, with the words that a reader would act on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unskew.metrics import CalibrationSketch
from unskew.report.verdict import findings, honesty, improvement, skew, worst_misstatement

HONEST = {"ece": 0.010, "ece_floor": 0.009, "weight_check": 1.02, "nll": 0.25, "auc": 0.74}
CROOKED = {"ece": 0.080, "ece_floor": 0.009, "weight_check": 2.40, "nll": 0.31, "auc": 0.74}
PLATT = {"calibrator": "platt"}


def test_the_three_questions_are_answered(inputs: dict[str, Any]) -> None:
    found = findings(inputs["metrics"], inputs["config"], inputs["sketches"])
    assert [finding.question for finding in found] == [
        "What is skewed?",
        "Are the propensities honest?",
        "Did debiasing help?",
    ]
    assert [finding.tone for finding in found] == ["bad", "good", "good"]


@pytest.mark.parametrize(("bias", "word"), [(-0.1, "too high"), (0.1, "too low")])
def test_the_direction_of_the_skew_is_that_of_estimate_minus_truth(bias: float, word: str) -> None:
    estimate = {"estimate": 0.5 - bias, "bias": bias, "standard_error": 0.01}
    found = skew({"data": {"density": 0.09}, "truth": {"ideal_loss": 0.5, "estimates": {"naive": estimate}}})
    assert found.tone == "bad"
    assert f"20 % {word}" in found.text
    assert "9.0 % of the pairs" in found.text


def test_a_deviation_within_noise_is_no_skew() -> None:
    estimate = {"estimate": 0.5, "bias": 0.01, "standard_error": 0.01}
    assert skew({"truth": {"ideal_loss": 0.5, "estimates": {"naive": estimate}}}).tone == "good"


def test_without_the_truth_the_skew_is_left_open() -> None:
    found = skew({"data": {"density": 0.08}, "propensity": {"calibrated": {"auc": 0.74}}})
    assert found.tone == "open"
    assert "no random sample" in found.text
    assert "cannot be measured without the truth" in found.text


@pytest.mark.parametrize(
    ("raw", "calibrated", "tone", "short"),
    [
        (CROOKED, HONEST, "good", "propensities repaired by Platt"),
        (HONEST, HONEST, "good", "propensities honest"),
        (CROOKED, {**CROOKED, "nll": 0.30}, "open", "Platt helped, not fully"),
        (HONEST, {**CROOKED, "nll": 0.32}, "bad", "Platt did not help"),
    ],
)
def test_calibration_is_judged_by_noise_and_weights(
    raw: dict[str, float], calibrated: dict[str, float], tone: str, short: str
) -> None:
    found = honesty({"propensity": {"raw": raw, "calibrated": calibrated}}, PLATT, {})
    assert (found.tone, found.short) == (tone, short)


def test_weights_that_do_not_add_up_are_not_honest_whatever_the_ece() -> None:
    found = honesty({"propensity": {"raw": HONEST, "calibrated": {**HONEST, "weight_check": 1.3}}}, PLATT, {})
    assert found.tone != "good"
    assert "add up to 1.30 times the population" in found.text


def test_a_run_without_calibrator_is_judged_on_the_raw_propensities() -> None:
    figures = {"propensity": {"raw": CROOKED, "calibrated": CROOKED}}
    found = honesty(figures, {"calibrator": "none"}, {})
    assert (found.tone, found.short) == ("bad", "raw propensities miscalibrated")
    assert found.text.endswith("No calibrator was used.")


def test_an_unchanged_likelihood_does_not_rise_or_fall() -> None:
    after = {**HONEST, "nll": HONEST["nll"] + 1e-7}
    text = honesty({"propensity": {"raw": HONEST, "calibrated": after}}, PLATT, {}).text
    assert "the NLL stays at 0.2500" in text


def test_the_worst_misstatement_is_where_the_weights_err_most() -> None:
    score = np.repeat([0.01, 0.1, 0.5], 1000)
    outcome = np.concatenate([np.arange(1000) < 50, np.arange(1000) < 100, np.arange(1000) < 600])
    found = worst_misstatement(CalibrationSketch.of(score=score, outcome=outcome))
    assert found is not None
    assert found == pytest.approx((0.01, 0.05), rel=1e-6)


def test_honest_scores_are_not_accused() -> None:
    score = np.repeat([0.01, 0.1], 1000)
    outcome = np.concatenate([np.arange(1000) < 10, np.arange(1000) < 100])
    assert worst_misstatement(CalibrationSketch.of(score=score, outcome=outcome)) is None
    assert worst_misstatement(None) is None


def compared(difference: float, p_holm: float) -> dict[str, Any]:
    test = {"difference": difference, "low": difference - 0.01, "high": difference + 0.01, "p_holm": p_holm}
    return {
        "methods": {"naive": {"auc": {"mean": 0.70}}, "ips": {"auc": {"mean": 0.70 + difference}}},
        "comparison": {"ips": {"auc": test}},
    }


@pytest.mark.parametrize(
    ("difference", "p_holm", "tone", "words"),
    [
        (0.02, 0.001, "good", "is better on 1 of 1 metric beyond noise"),
        (-0.02, 0.001, "bad", "is worse on 1 of 1 metric beyond noise"),
        (0.02, 0.2, "open", "differs from the naive model on none of 1 metric beyond noise"),
    ],
)
def test_a_method_helps_only_beyond_noise(difference: float, p_holm: float, tone: str, words: str) -> None:
    found = improvement(compared(difference, p_holm))
    assert found.tone == tone
    assert words in found.text
    assert "after Holm's correction" in found.text


def test_the_verdict_is_that_of_the_calibrated_method() -> None:
    metrics = compared(0.02, 0.001)
    worse = {"difference": -0.02, "low": -0.03, "high": -0.01, "p_holm": 0.001}
    metrics["comparison"] = {"ips_raw": {"auc": worse}, **metrics["comparison"]}
    assert improvement(metrics).short == "IPS, calibrated: better on 1 of 1 metrics"


def test_what_no_calibrator_can_remove_is_said() -> None:
    estimate = {"bias": -0.06, "calibration_part": 0.01, "refinement_part": -0.07}
    found = improvement({**compared(0.02, 0.001), "truth": {"estimates": {"ips": estimate}}})
    assert "IPS with calibrated propensities by +0.060" in found.text
    assert "−0.010 of it is still calibration, and +0.070 is refinement" in found.text
