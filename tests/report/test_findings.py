"""The verdict follows from the numbers: each branch, with the words that a reader would act on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from unskew.audit import audit
from unskew.metrics import CalibrationSketch
from unskew.report.finding import Finding
from unskew.report.findings import findings, skew
from unskew.report.honesty import honesty, worst_misstatement
from unskew.report.improvement import improvement

RANDOM = {"test_is": "random"}
PLATT = {"calibrator": "platt"}
SIZE = 40_000


def sketch(factor: float = 1.0, *, rows: int = SIZE, knows: bool = True) -> CalibrationSketch:
    """Held-out propensities that say ``factor`` times the truth; without knowledge, noise around one rate."""
    random = np.random.default_rng(0)
    truth = np.tile([0.05, 0.1, 0.3], rows // 3 + 1)[:rows]
    score = truth if knows else 0.15 * np.exp(random.normal(0, 0.02, rows))
    return CalibrationSketch.of(score=score * factor, outcome=random.random(rows) < truth)


FIGURES = {"ece": 0.010, "ece_floor": 0.009, "wce": 0.021, "weight_check": 1.02, "nll": 0.25, "auc": 0.74}
HONEST = (FIGURES, sketch())
CROOKED = ({**FIGURES, "ece": 0.080, "wce": 1.52, "weight_check": 2.40, "nll": 0.31}, sketch(0.4))
HALFWAY = ({**FIGURES, "wce": 0.3, "weight_check": 1.3}, sketch(0.75))
Kind = tuple[dict[str, float], CalibrationSketch]


def with_figures(kind: Kind, **changes: float) -> Kind:
    return {**kind[0], **changes}, kind[1]


def honest(raw: Kind, calibrated: Kind, calibrator: str = "platt", **metrics: Any) -> Finding:
    kinds = {"raw": raw, "calibrated": calibrated}
    figures = {"propensity": {name: kind[0] for name, kind in kinds.items()}, **metrics}
    return honesty(figures, {"calibrator": calibrator}, {name: kind[1] for name, kind in kinds.items()})


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
        (CROOKED, with_figures(HALFWAY, nll=0.30), "open", "Platt helped, not fully"),
        (
            CROOKED,
            with_figures(HALFWAY, nll=0.33),
            "open",
            "Platt made the weights better and the NLL no better",
        ),
        (HALFWAY, with_figures(CROOKED, nll=0.20), "bad", "Platt lowered the NLL and made the weights worse"),
        (
            CROOKED,
            with_figures(CROOKED, nll=0.30),
            "open",
            "Platt lowered the NLL and made the weights no better beyond noise",
        ),
        (HONEST, with_figures(CROOKED, nll=0.32), "bad", "Platt made the weights and the NLL worse"),
        (CROOKED, with_figures(CROOKED, nll=0.32), "bad", "Platt did not help"),
        (
            CROOKED,
            (FIGURES, sketch(rows=300)),
            "open",
            "too few clicks to tell whether the propensities are honest",
        ),
    ],
)
def test_calibration_is_judged_by_the_weights(raw: Kind, calibrated: Kind, tone: str, short: str) -> None:
    found = honest(raw, calibrated)
    assert (found.tone, found.short) == (tone, short)


def test_weights_and_likelihood_that_disagree_are_both_told() -> None:
    text = honest(HALFWAY, with_figures(CROOKED, nll=0.20)).text
    assert "the NLL falls from 0.2500 to 0.2000" in text
    assert "By WCE the weights are worse beyond noise (95 % intervals before and after: " in text
    assert "the NLL disagrees" in text


def test_weights_that_are_off_are_not_honest_whatever_the_ece() -> None:
    found = honest(HONEST, (with_figures(HONEST, weight_check=1.3)[0], sketch(1 / 1.3)))
    assert found.tone != "good"
    assert "After Platt they are miscalibrated: their weights are off by" in found.text
    assert "add up to 1.30 times the population" in found.text


def test_the_error_that_is_told_is_that_of_the_tables_and_the_evidence_is_what_decided() -> None:
    """An ECE below its floor was quoted as evidence, beside another error of the weights than the table's."""
    text = honest(with_figures(CROOKED, ece=0.000048, ece_floor=0.000063, wce=0.9081), HONEST).text
    assert (
        "The raw propensities are miscalibrated: their weights are off by 91 % on average (WCE), beyond noise"
        " (χ² test of weights within 5 %: p < 0.0001) and add up to 2.40 times the population."
    ) in text
    assert "they are honest: their weights are off by 2.1 % on average (WCE), no more than noise may" in text
    assert "ECE" not in text


def test_few_clicks_are_told_how_many_would_decide() -> None:
    few = FIGURES, sketch(rows=300)
    text = honest(few, few, "none").text
    assert "weights that are off by a factor 1.2 would be found with a chance of" in text.lower()
    assert "pairs like these would tell" in text


def test_a_run_without_calibrator_is_judged_on_the_raw_propensities() -> None:
    found = honest(CROOKED, CROOKED, "none")
    assert (found.tone, found.short) == ("bad", "raw propensities miscalibrated")
    assert found.text.endswith("No calibrator was used.")


def test_an_unchanged_likelihood_does_not_rise_or_fall() -> None:
    assert "the NLL stays at 0.2500" in honest(HONEST, with_figures(HONEST, nll=0.25 + 1e-7)).text


@pytest.mark.parametrize("draw", range(5))
@pytest.mark.parametrize("wrong_tails", [True, False])
def test_audit_and_run_have_one_verdict_of_the_same_scores(
    tmp_path: Path, draw: int, wrong_tails: bool
) -> None:
    """Scores whose smallest are half the truth: too small a part of ECE, and what decides the weights."""
    random = np.random.default_rng(draw)
    truth = np.exp(random.normal(-3, 1, 20_000)).clip(1e-3, 0.8)
    score = np.where(truth < 0.03, truth / 1.35, truth) if wrong_tails else truth
    clicked = random.random(len(truth)) < truth
    csv.write_csv(pa.table({"p": score, "clicked": clicked.astype(int)}), tmp_path / "log.csv")
    found = audit(tmp_path / "log.csv", score="p", outcome="clicked", calibrators=["none"])
    kind = FIGURES, CalibrationSketch.of(score=score, outcome=clicked)
    run = honest(kind, kind, "none")
    assert {"good": True, "bad": False, "open": None}[run.tone] is found.healthy
    assert found.healthy is not wrong_tails


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


@pytest.mark.parametrize(
    ("level", "error", "tone", "words"),
    [
        (1.43, 0.05, "bad", "predicts 1.43 times the actual conversions on the randomly shown test pairs"),
        (0.70, 0.05, "bad", "predicts 0.70 times"),
        (
            1.05,
            0.02,
            "open",
            "(95 % interval over test users and seeds from 1.03 to 1.07): right within 10 %.",
        ),
        (1.16, 3.20, "open", "more seeds, or a larger test set, would tell"),
        (1.16, 0.08, "open", "more seeds, or a larger test set, would tell"),
        (1.43, None, "open", "more seeds, or a larger test set, would tell"),
    ],
)
def test_a_random_test_set_shows_the_level_of_the_naive_model(
    level: float, error: float | None, tone: str, words: str
) -> None:
    limits = {} if error is None else {"low": level - error, "high": level + error}
    methods = {"naive": {"mean_over_rate": {"mean": level, **limits}}}
    found = skew({"data": {"density": 0.08, **RANDOM}, "methods": methods})
    assert found.tone == tone
    assert words in found.text
    assert "cannot be measured" not in found.text
    if tone == "bad":
        assert found.short == f"naive model predicts {level:.2f} times the actual conversions"


def test_a_logged_test_set_does_not_show_what_is_skewed() -> None:
    methods = {"naive": {"mean_over_rate": {"mean": 1.43, "low": 1.4, "high": 1.46}}}
    for data in ({"test_is": "logged"}, {}):
        found = skew({"data": data, "methods": methods})
        assert found.tone == "open"
        assert "randomly shown" not in found.text
        assert "as chosen as the clicks it learned from" in found.text


@pytest.mark.parametrize(("difference", "p_holm"), [(0.02, 0.001), (-0.02, 0.001), (0.02, 0.2)])
def test_a_logged_test_set_never_tells_whether_debiasing_helped(difference: float, p_holm: float) -> None:
    found = improvement({**compared(difference, p_holm), "data": {"test_is": "logged"}})
    assert (found.tone, found.short) == ("open", "a logged test set cannot tell")
    assert "the naive model looks best whether it is or not" in found.text


@pytest.mark.parametrize(
    ("method", "said", "not_said"),
    [
        ("ips", "`unskew compare` on this run's folder", "second"),
        ("naive", "The naive model is the only one", "compare"),
        ("none", "There is no randomly shown test set", "compare"),
    ],
)
def test_a_run_without_a_test_set_names_what_its_folder_can_be_used_for(
    method: str, said: str, not_said: str
) -> None:
    text = improvement({"propensity": {"raw": {}}}, {"method": method}).text
    assert said in text
    assert not_said not in text


@pytest.mark.parametrize(
    ("auc", "chance", "tone"),
    [(0.74, 0.52, "good"), (0.517, 0.53, "open"), (0.517, 0.503, "open"), (0.58, 0.60, "open")],
)
def test_a_propensity_that_knows_next_to_nothing_gets_no_tick(auc: float, chance: float, tone: str) -> None:
    kind = with_figures(HONEST, auc=auc, auc_of_chance=chance)
    for calibrator, raw in (("platt", CROOKED), ("platt", HONEST), ("none", kind)):
        found = honest(raw, kind, calibrator)
        assert found.tone == tone
        assert ("know next to nothing" in found.short) == (tone == "open")


def test_noise_around_the_right_rate_knows_next_to_nothing() -> None:
    noise = FIGURES, sketch(knows=False)
    found = honest(noise, noise)
    assert (found.tone, found.short) == ("open", "propensities know next to nothing")
    assert "debias next to nothing" in found.text


@pytest.mark.parametrize(("mass", "tone"), [(0.02, "good"), (0.11, "bad"), (0.64, "bad")])
@pytest.mark.parametrize("raw", [HONEST, CROOKED])
def test_where_the_clip_decides_no_propensity_is_repaired(raw: Kind, mass: float, tone: str) -> None:
    found = honest(raw, with_figures(HONEST, clipped=0.4, clipped_mass=mass), p_min=0.05)
    assert found.tone == tone
    if tone == "bad":
        assert "the clip takes" in found.short
        assert "repaired" not in found.short
        assert "Give a lower p_min" in found.text


def levels(naive: float, raw: float, calibrated: float, signs: tuple[int, int], auc: int = 0) -> Any:
    """Metrics with a level, its distance from 1 tested for both methods, and the sign of a change in AUC."""

    def tested(better: int) -> dict[str, float]:
        return {"difference": -0.1 * better, "low": -0.2, "high": 0.2, "p_holm": 0.01 if better else 0.5}

    means = {"naive": naive, "ips_raw": raw, "ips": calibrated}
    order = {"difference": 0.01 * auc, "low": 0.0, "high": 0.02, "p_holm": 0.01 if auc else 0.5}
    return {
        "data": RANDOM,
        "methods": {
            key: {"mean_over_rate": {"mean": mean}, "nll": {"mean": mean - 0.8}, "auc": {"mean": 0.7}}
            for key, mean in means.items()
        },
        "comparison": {
            key: {"mean_over_rate": tested(sign), "nll": tested(sign), "auc": order}
            for key, sign in zip(("ips_raw", "ips"), signs, strict=True)
        },
    }


@pytest.mark.parametrize(
    ("signs", "auc", "tone", "short"),
    [
        ((1, 1), 0, "good", "IPS, calibrated: level nearer the truth, ranks no better"),
        ((0, 1), -1, "open", "IPS, calibrated: level nearer the truth, ranks worse on 1 of 1 metric"),
        ((0, 0), 1, "good", "IPS, calibrated: level no nearer, ranks better on 1 of 1 metric"),
        ((1, -1), 0, "bad", "IPS, calibrated: level further off, ranks no better"),
        ((1, 0), 0, "open", "IPS, calibrated: level no nearer, ranks no better"),
    ],
)
def test_level_and_order_are_judged_apart(signs: tuple[int, int], auc: int, tone: str, short: str) -> None:
    found = improvement(levels(1.5, 1.2, 1.1, signs, auc))
    assert (found.tone, found.short) == (tone, short)


@pytest.mark.parametrize(
    ("signs", "ending"),
    [
        (
            (1, 1),
            "1.20 times and IPS with calibrated propensities 1.10 times, both nearer to 1 beyond noise.",
        ),
        ((0, 0), "1.10 times, neither nearer to 1 beyond noise."),
        ((0, 1), "1.20 times (not nearer to 1 beyond noise) and IPS with calibrated propensities 1.10 times"),
        ((-1, 1), "1.20 times (further off beyond noise) and"),
    ],
)
def test_what_each_method_predicts_is_said_in_plain_words(signs: tuple[int, int], ending: str) -> None:
    text = improvement(levels(1.5, 1.2, 1.1, signs)).text
    assert text.startswith("The naive model predicts 1.50 times the actual conversions; IPS with raw")
    assert ending in text
    assert f"the NLL falls from 0.7000 to 0.3000, {'beyond' if signs[1] else 'within'} noise" in text


def test_without_a_test_of_differences_the_levels_are_told_without_a_judgement() -> None:
    found = improvement({"methods": levels(1.5, 1.2, 1.1, (1, 1))["methods"]})
    assert found.tone == "open"
    assert "IPS with calibrated propensities 1.10 times. Nothing was tested" in found.text


def compared(difference: float, p_holm: float) -> dict[str, Any]:
    test = {"difference": difference, "low": difference - 0.01, "high": difference + 0.01, "p_holm": p_holm}
    return {
        "data": RANDOM,
        "methods": {"naive": {"auc": {"mean": 0.70}}, "ips": {"auc": {"mean": 0.70 + difference}}},
        "comparison": {"ips": {"auc": test}},
    }


@pytest.mark.parametrize(
    ("difference", "p_holm", "tone", "words"),
    [
        (0.02, 0.001, "good", "ranks better on 1 of 1 ranking metric beyond noise"),
        (-0.02, 0.001, "bad", "ranks worse on 1 of 1 ranking metric beyond noise"),
        (0.02, 0.2, "open", "ranks like the naive model: none of 1 ranking metric differs beyond noise"),
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
    assert improvement(metrics).short == "IPS, calibrated: ranks better on 1 of 1 metric"


def test_what_no_calibrator_can_remove_is_said() -> None:
    estimate = {"bias": -0.06, "calibration_part": 0.01, "refinement_part": -0.07}
    found = improvement({**compared(0.02, 0.001), "truth": {"estimates": {"ips": estimate}}})
    assert "IPS with calibrated propensities by +0.060" in found.text
    assert "−0.010 of it is still calibration, and +0.070 is refinement" in found.text


def learned_nothing(key: str, network: str, seeds: int) -> dict[str, Any]:
    return {"collapsed": {key: [{"network": network, "reason": "flat", "seeds": seeds, "of": 10}]}}


@pytest.mark.parametrize(
    ("key", "network", "seeds", "tone", "short"),
    [
        ("ips", "prediction", 10, "bad", "IPS with calibrated propensities learned nothing"),
        ("naive", "prediction", 6, "bad", "the naive model learned nothing"),
        ("ips", "prediction", 5, "good", "IPS, calibrated: ranks better on 1 of 1 metric"),
        ("ips", "imputation", 10, "good", "IPS, calibrated: ranks better on 1 of 1 metric"),
    ],
)
def test_a_model_that_learned_nothing_did_not_help(
    key: str, network: str, seeds: int, tone: str, short: str
) -> None:
    found = improvement({**compared(0.02, 0.001), **learned_nothing(key, network, seeds)})
    assert (found.tone, found.short) == (tone, short)
    assert f"'{network}' learned nothing in {seeds} of 10 seeds" in found.text
    assert "lower weight_decay" in found.text


def test_a_propensity_that_learned_nothing_is_told() -> None:
    found = honest(HONEST, HONEST, **learned_nothing("propensity", "propensity, fold 2", 3))
    assert "'propensity, fold 2' learned nothing in 3 of 10 seeds" in found.text
