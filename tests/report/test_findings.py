"""The findings follow from the numbers: their keys and levels, and the sentences that a reader acts on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from unskew.audit import audit
from unskew.metrics import CalibrationSketch
from unskew.metrics.reliability import Promise
from unskew.report.facts import excess_words, judge_promise, promises
from unskew.report.finding import Answer
from unskew.report.findings import bias_findings, cost_findings, findings, help_findings
from unskew.report.propensity_findings import propensity_findings

RANDOM = {"test_is": "random"}
SIZE = 40_000
Kind = tuple[dict[str, float], CalibrationSketch]


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


def with_figures(kind: Kind, **changes: float) -> Kind:
    return {**kind[0], **changes}, kind[1]


def judged(raw: Kind, calibrated: Kind, calibrator: str = "platt", **metrics: Any) -> Answer:
    kinds = {"raw": raw, "calibrated": calibrated}
    figures = {"propensity": {name: kind[0] for name, kind in kinds.items()}, **metrics}
    sketches = {name: kind[1] for name, kind in kinds.items()}
    return propensity_findings(figures, {"calibrator": calibrator}, sketches)


def test_the_questions_are_answered(inputs: dict[str, Any]) -> None:
    answers = findings(inputs["metrics"], inputs["config"], inputs["sketches"])
    assert [(answer.main.key, answer.tone) for answer in answers] == [
        ("bias.naive", "bad"),
        ("propensity.repaired", "good"),
        ("help.change", "good"),
    ]
    for answer in answers:
        assert answer.text.startswith(answer.short)
        assert "{" not in answer.text


@pytest.mark.parametrize(("bias", "word"), [(-0.1, "too high"), (0.1, "too low")])
def test_the_direction_of_the_bias_is_that_of_estimate_minus_truth(bias: float, word: str) -> None:
    estimate = {"estimate": 0.5 - bias, "bias": bias, "standard_error": 0.01}
    answer = bias_findings(
        {"data": {"density": 0.09}, "truth": {"ideal_loss": 0.5, "estimates": {"naive": estimate}}}
    )
    assert answer.tone == "bad"
    assert f"20 % {word}" in answer.short
    assert "9.0 % of the pairs" in answer.text


def test_without_the_truth_the_bias_is_left_open() -> None:
    answer = bias_findings({"data": {"density": 0.08}, "propensity": {"calibrated": {"auc": 0.74}}})
    assert (answer.main.key, answer.tone) == ("bias.unknown", "open")
    assert "not a random sample" in answer.text


@pytest.mark.parametrize(
    ("raw", "calibrated", "tone", "key"),
    [
        (CROOKED, HONEST, "good", "repaired"),
        (HONEST, HONEST, "good", "good"),
        (CROOKED, with_figures(HALFWAY, nll=0.30), "open", "better"),
        (HALFWAY, with_figures(CROOKED, nll=0.20), "bad", "worse"),
        (HONEST, with_figures(CROOKED, nll=0.32), "bad", "worse"),
        (CROOKED, with_figures(CROOKED, nll=0.32), "bad", "no_help"),
        (CROOKED, (FIGURES, sketch(rows=300)), "open", "few"),
    ],
)
def test_calibration_is_judged_by_the_weights(raw: Kind, calibrated: Kind, tone: str, key: str) -> None:
    answer = judged(raw, calibrated)
    assert (answer.tone, answer.main.key) == (tone, f"propensity.{key}")
    assert answer.text


def test_weights_and_likelihood_that_disagree_are_both_told() -> None:
    text = judged(HALFWAY, with_figures(CROOKED, nll=0.20)).text
    assert "the NLL falls from 0.2500 to 0.2000, and the WCE is worse beyond noise" in text
    assert "the NLL stays at 0.2500" in judged(HONEST, with_figures(HONEST, nll=0.25 + 1e-7)).text


def test_the_error_that_is_told_is_that_of_the_tables() -> None:
    text = judged(with_figures(CROOKED, ece=0.000048, ece_floor=0.000063, wce=0.9081), HONEST).text
    assert (
        "The weights of the raw propensities are off by 91 % on average (WCE; χ² test against a tolerance of"
        " 5.0 %: p < 0.0001) and add up to 2.40 times the population."
    ) in text
    assert "ECE" not in text


def test_few_clicks_are_told_how_many_would_decide() -> None:
    few = FIGURES, sketch(rows=300)
    text = judged(few, few, "none").text
    assert "off by a factor of 1.2 would be detected with a probability of" in text
    assert "pairs like these would be enough" in text


def test_a_run_without_calibrator_is_judged_on_the_raw_propensities() -> None:
    answer = judged(CROOKED, CROOKED, "none")
    assert (answer.tone, answer.main.key) == ("bad", "propensity.off")
    assert "calibrated propensities" not in answer.text


@pytest.mark.parametrize("draw", range(2))
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
    audited = audit(tmp_path / "log.csv", score="p", outcome="clicked")
    kind = FIGURES, CalibrationSketch.of(score=score, outcome=clicked)
    run = judged(kind, kind, "none")
    assert {"good": True, "bad": False, "open": None}[run.tone] is audited.healthy
    assert audited.healthy is not wrong_tails


@pytest.mark.parametrize(
    ("level", "error", "tone", "words"),
    [
        (1.43, 0.05, "bad", "predicts 1.43 times the actual conversions"),
        (0.70, 0.05, "bad", "predicts 0.70 times"),
        (1.05, 0.02, "open", "seeds: 1.03 to 1.07). Conversions are known only for the 8.0 %"),
        (1.05, 0.02, "open", "right within 10 %"),
        (1.16, 3.20, "open", "More seeds or a larger test set"),
        (1.16, 0.08, "open", "More seeds or a larger test set"),
        (1.43, None, "open", "More seeds or a larger test set"),
    ],
)
def test_a_random_test_set_shows_the_level_of_the_naive_model(
    level: float, error: float | None, tone: str, words: str
) -> None:
    limits = {} if error is None else {"low": level - error, "high": level + error}
    methods = {"naive": {"mean_over_rate": {"mean": level, **limits}}}
    answer = bias_findings({"data": {"density": 0.08, **RANDOM}, "methods": methods})
    assert (answer.tone, answer.main.key) == (tone, "bias.naive")
    assert words in answer.text
    assert "On the randomly shown test pairs" in answer.short


def test_a_logged_test_set_decides_nothing() -> None:
    methods = {"naive": {"mean_over_rate": {"mean": 1.43, "low": 1.4, "high": 1.46}}}
    for data in ({"test_is": "logged"}, {}):
        answer = bias_findings({"data": data, "methods": methods})
        assert answer.tone == "open"
        assert "randomly shown" not in answer.text
        assert "was selected like the training clicks" in answer.text
    for difference, p_holm in ((0.02, 0.001), (-0.02, 0.001), (0.02, 0.2)):
        answer = help_findings({**compared(difference, p_holm), "data": {"test_is": "logged"}})
        assert (answer.tone, answer.main.key) == ("open", "help.logged")


@pytest.mark.parametrize(
    ("method", "said", "not_said"),
    [
        ("ips", "`unskew compare` estimates", "second"),
        ("naive", "A second method", "compare`"),
        ("none", "There is no test set of randomly shown pairs", "compare`"),
    ],
)
def test_a_run_without_a_test_set_names_what_could_be_done(method: str, said: str, not_said: str) -> None:
    text = help_findings({"propensity": {"raw": {}}}, {"method": method}).text
    assert said in text
    assert not_said not in text


@pytest.mark.parametrize(
    ("auc", "chance", "tone"),
    [(0.74, 0.52, "good"), (0.517, 0.53, "open"), (0.517, 0.503, "open"), (0.58, 0.60, "open")],
)
def test_a_propensity_that_knows_next_to_nothing_gets_no_tick(auc: float, chance: float, tone: str) -> None:
    kind = with_figures(HONEST, auc=auc, auc_of_chance=chance)
    for calibrator, raw in (("platt", CROOKED), ("platt", HONEST), ("none", kind)):
        answer = judged(raw, kind, calibrator)
        assert answer.tone == tone
        assert (answer.main.key == "propensity.blind") == (tone == "open")


@pytest.mark.parametrize(("mass", "tone"), [(0.02, "good"), (0.11, "bad"), (0.64, "bad")])
@pytest.mark.parametrize("raw", [HONEST, CROOKED])
def test_where_the_clip_decides_no_propensity_is_repaired(raw: Kind, mass: float, tone: str) -> None:
    answer = judged(raw, with_figures(HONEST, clipped=0.4, clipped_mass=mass), p_min=0.05)
    assert answer.tone == tone
    assert ("Lower p_min." in answer.short) == (tone == "bad")


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
    ("signs", "auc", "tone", "changes"),
    [
        ((1, 1), 0, "good", "level closer to the truth, ranking no better"),
        ((0, 1), -1, "open", "level closer to the truth, ranking worse in 1 of 1 metric"),
        ((0, 0), 1, "good", "level no closer, ranking better in 1 of 1 metric"),
        ((1, -1), 0, "bad", "level further off, ranking no better"),
        ((1, 0), 0, "open", "level no closer, ranking no better"),
    ],
)
def test_level_and_order_are_judged_apart(signs: tuple[int, int], auc: int, tone: str, changes: str) -> None:
    answer = help_findings(levels(1.5, 1.2, 1.1, signs, auc))
    assert (answer.tone, answer.main.numbers["changes"]) == (tone, changes)
    assert answer.short.startswith("IPS with calibrated propensities: level")


@pytest.mark.parametrize(
    ("signs", "ending"),
    [
        ((0, 1), "1.20 times (no closer to 1 beyond noise) and IPS with calibrated propensities 1.10 times"),
        ((-1, 1), "1.20 times (further off) and IPS with calibrated propensities 1.10 times (closer to 1)."),
    ],
)
def test_what_each_method_predicts_is_said(signs: tuple[int, int], ending: str) -> None:
    text = help_findings(levels(1.5, 1.2, 1.1, signs)).text
    assert "The naive model predicts 1.50 times the actual conversions; IPS with raw" in text
    assert ending in text


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
        (0.02, 0.001, "good", "better than the naive model in 1 and worse in 0 of 1 ranking metric"),
        (-0.02, 0.001, "bad", "better than the naive model in 0 and worse in 1 of 1 ranking metric"),
        (0.02, 0.2, "open", "better than the naive model in 0 and worse in 0 of 1 ranking metric"),
    ],
)
def test_a_method_helps_only_beyond_noise(difference: float, p_holm: float, tone: str, words: str) -> None:
    answer = help_findings(compared(difference, p_holm))
    assert answer.tone == tone
    assert words in answer.text
    assert "after Holm's correction" in answer.text


def test_what_no_calibrator_can_remove_is_said() -> None:
    estimate = {"bias": -0.06, "calibration_part": 0.01, "refinement_part": -0.07}
    text = help_findings({**compared(0.02, 0.001), "truth": {"estimates": {"ips": estimate}}}).text
    assert "IPS with calibrated propensities by +0.060" in text
    assert "−0.0100 of that is calibration error and +0.0700 is refinement error" in text


def learned_nothing(key: str, network: str, seeds: int) -> dict[str, Any]:
    return {"collapsed": {key: [{"network": network, "reason": "flat", "seeds": seeds, "of": 10}]}}


@pytest.mark.parametrize(
    ("key", "network", "seeds", "tone", "main"),
    [
        ("ips", "prediction", 10, "bad", "help.collapsed"),
        ("naive", "prediction", 6, "bad", "help.collapsed"),
        ("ips", "prediction", 5, "good", "help.change"),
        ("ips", "imputation", 10, "good", "help.change"),
    ],
)
def test_a_model_that_learned_nothing_did_not_help(
    key: str, network: str, seeds: int, tone: str, main: str
) -> None:
    answer = help_findings({**compared(0.02, 0.001), **learned_nothing(key, network, seeds)})
    assert (answer.tone, answer.main.key) == (tone, main)
    assert f"'{network}' learned nothing in {seeds} of 10 seeds" in answer.text
    assert "lower weight_decay" in answer.text
    told = judged(HONEST, HONEST, **learned_nothing("propensity", network, seeds)).text
    assert f"'{network}' learned nothing in {seeds} of 10 seeds" in told


def run(naive: tuple[float, ...], ips: tuple[float, ...], **data: Any) -> dict[str, Any]:
    """A run in which methods have these levels, with their intervals, on 1,000 conversions."""
    return {
        "data": {"test_is": "random", "test_rows_judged": 5000, "test_conversions": 1000, **data},
        "methods": {
            key: {"mean_over_rate": dict(zip(("mean", "low", "high"), level, strict=True))}
            for key, level in {"naive": naive, "ips_raw": naive, "ips": ips}.items()
        },
    }


@pytest.mark.parametrize(
    ("promise", "level", "words"),
    [
        (Promise(150, 100, 82, 121), "bad", "50 too many (95 % interval 29 to 68)"),
        (Promise(50, 100, 82, 121), "bad", "50 too few (95 % interval 32 to 71)"),
        (
            Promise(110, 100, 82, 121),
            "undecided",
            "10 too many (95 % interval 11 too few to 28 too many: undecided)",
        ),
        (
            Promise(10_010, 10_000, 9_800, 10_200),
            "good",
            "10 too many (95 % interval 190 too few to 210 too many: right within 10 %)",
        ),
        (
            Promise(100, 100, 82, 121),
            "undecided",
            "exactly as many (95 % interval 21 too few to 18 too many: undecided)",
        ),
        (Promise(9, 0, 0, 3.8), "bad", "9 too many (95 % interval 5 to 9)"),
        (Promise(110, 100, float("nan"), float("nan")), "undecided", "10 too many (undecided)"),
    ],
)
def test_a_cost_in_words(promise: Promise, level: str, words: str) -> None:
    assert (judge_promise(promise), excess_words(promise)) == (level, words)


def test_a_run_says_what_the_naive_model_and_its_method_cost() -> None:
    answer = cost_findings(run((1.4, 1.25, 1.55), (1.02, 0.95, 1.09)), {})
    assert answer.tone == "good"
    assert answer.text == (
        "1,000 conversions occurred on 5,000 randomly shown test pairs: the naive model predicts 400 too many"
        " (95 % interval 250 to 550) and IPS with calibrated propensities predicts 20 too many (95 % interval"
        " 50 too few to 90 too many: right within 10 %)."
    )
    assert cost_findings(run((1.4, 1.2, 1.5), (1.3, 1.2, 1.5)), {}).tone == "bad"
    assert cost_findings(run((1.4, 1.2, 1.5), (1.0, 0.7, 1.3)), {}).tone == "open"
    logged = cost_findings(run((1.4, 1.25, 1.55), (1.3, 1.2, 1.5), test_is="logged"), {})
    assert logged.tone == "open"
    assert "does not show what the models cost elsewhere" in logged.text


def test_a_run_of_two_seeds_says_that_these_are_not_in_its_intervals() -> None:
    metrics = run((1.4, 1.25, 1.55), (1.02, 0.95, 1.09))
    for method in metrics["methods"].values():
        method["mean_over_rate"]["seeds"] = [1.0, 1.1]
    text = cost_findings(metrics, {}).text
    assert text.endswith("Two seeds cannot show how much another training would change this.")


def test_without_a_test_set_clicks_are_counted_and_the_rest_is_open() -> None:
    scores = CalibrationSketch.of(score=np.full(10_000, 0.1), outcome=np.arange(10_000) < 800)
    answer = cost_findings({"data": {"space": "impressions"}}, {"raw": scores, "calibrated": scores})
    assert (answer.tone, answer.main.key) == ("open", "cost.no_test")
    assert (
        "predict 1,000 clicks on 10,000 held-out impressions, and 800 occurred: 200 too many" in answer.text
    )
    assert cost_findings({}, {}).tone == "open"
    older = run((1.4, 1.25, 1.55), (1.0, 0.9, 1.1), test_conversions=None)
    assert promises(older) == {}
