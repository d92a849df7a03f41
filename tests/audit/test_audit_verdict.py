"""The verdict says what the figures say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.audit import AuditResult, audit
from unskew.audit.audit_result import ErrorFigure, Region
from unskew.audit.segments import Segment
from unskew.audit.verdict import short
from unskew.metrics import CalibrationSketch, ChanceTest, noise_floor
from unskew.metrics.judgement import WeightJudgement

LOW = Region(low=None, high=0.01, share=0.8, ratio=1 / 1.8, part=0.36)
HIGH = Region(low=0.1, high=None, share=0.1, ratio=1.3, part=0.03)


BEYOND = ChanceTest(0.7, 0.01, 0.0, True)
CHANCE = ChanceTest(0.494, 0.006, 0.84, False)


def judged(**changes: Any) -> WeightJudgement:
    off = WeightJudgement("bad", "off", 0.46, 0.0, 1.2, 1.0, 90_000, BEYOND)
    return replace(off, **changes)


def audited() -> AuditResult:
    """A healthy result, of which the tests change the figures."""
    score = np.tile([0.2, 0.4], 400_000)
    clicked = np.arange(800_000) % 20 < np.where(score == 0.2, 4, 8)
    table = pa.table({"score": score, "clicked": clicked.astype(int)})
    return audit(table, score="score", outcome="clicked")


AUDITED = audited()
ONE_SCORE = CalibrationSketch.of(score=np.full(100, 0.1), outcome=np.arange(100) < 10)


def with_zeros(clicks: int) -> CalibrationSketch:
    score = np.concatenate([np.zeros(clicks), np.full(100, 0.1)])
    return CalibrationSketch.of(score=score, outcome=np.arange(len(score)) < clicks + 10)


def result(
    *, p_value: float = 0.0, columns: tuple[str, str] = ("score", "clicked"), **changes: Any
) -> AuditResult:
    """An audit whose weights are 46 % off, and what is changed of it."""
    figures: dict[str, Any] = {
        "judgement": judged(),
        "wce": ErrorFigure(0.46, 0.44, 0.48, 0.01),
        "rows": 90_000,
        "clicks": 9000,
        "regions": (LOW, HIGH),
        "recommended": "platt",
        "test": AUDITED.test._replace(p_value=p_value),
        "roles": replace(AUDITED.roles, score=columns[0], outcome=columns[1]),
        "calibrators": tuple(replace(score, wce=0.02) for score in AUDITED.calibrators),
    }
    return replace(AUDITED, **(figures | changes))


def told(**changes: Any) -> str:
    return result(**changes).verdict


def segment(**changes: Any) -> Segment:
    figures: dict[str, Any] = {
        "column": "country",
        "value": "jp",
        "rows": 1200,
        "base_rate": 0.1,
        "mean_score": 0.2,
        "mean_outcome_over_score": 0.5,
        "low": 0.4,
        "high": 0.6,
        "wce": 0.5,
        "wce_debiased": 0.5,
        "p_value": 0.0,
        "q_value": 0.0,
        "of_rest": 1.02,
        "q_differs": 0.0,
    }
    return Segment(**(figures | changes))


def test_the_sentence_of_the_design() -> None:
    assert told() == (
        "Overstated by a factor 1.8 below 0.01; the weights that matter are 44 % too small."
        " Platt on logits, cross-fitted, would bring WCE from 0.46 to 0.02."
    )


def test_a_healthy_propensity_is_praised_for_the_right_reason() -> None:
    noise = ErrorFigure(0.012, 0.0, 0.02, 0.011)

    def healthy(debiased: float, **changes: Any) -> str:
        judgement = judged(level="good", reason="honest", wce_debiased=debiased)
        return told(judgement=judgement, regions=[], **changes)

    honest = healthy(0.0, wce=noise, p_value=0.4)
    assert (
        honest == "Honest: nothing tells the weights from right ones (WCE 0.012, noise alone 0.011, p = 0.4)."
    )
    small = healthy(0.02, wce=noise, p_value=1e-9)
    assert "off by 2 % (WCE without noise), which is more than noise but not more than 5 %" in small
    few = healthy(0.2, wce=ErrorFigure(0.3, 0.0, 0.5, 0.25), p_value=0.2, clicks=40)
    unclear = healthy(0.2, wce=ErrorFigure(0.3, 0.0, 0.5, 0.25), p_value=0.001)
    assert unclear.startswith("Not shown to be off by more than 5 %: the weights look 30 % off, but with")
    assert few.startswith(
        "Not distinguishable from honest: the weights look 30 % off, but with 40 clicks noise"
    )


def test_few_rows_are_neither_praised_nor_blamed() -> None:
    open_ = judged(level="undecided", reason="too few rows", power=0.14, rows_needed=46_211)
    text = told(judgement=open_, wce=ErrorFigure(0.23, 0.0, 0.4, 0.25), rows=1_200, clicks=1, regions=[])
    assert text == (
        "With 1 click on 1,200 rows, weights that are off by a factor 1.2 would be found with a chance of"
        " 14 %; some 47,000 rows like these would tell. So far they look 23 % off, where noise alone"
        " shows 25 %."
    )
    assert result(judgement=open_).headline == "Undecided"


def test_outcomes_that_are_no_clicks_are_not_called_so() -> None:
    """An audit of purchases told of "102 clicks"."""
    columns = ("p", "bought")
    few = judged(level="undecided", reason="too few rows", power=0.14, rows_needed=46_211)
    blind = judged(level="undecided", reason="not beyond chance", chance=CHANCE)
    texts = [
        told(columns=columns, judgement=few, clicks=126, regions=[]),
        told(columns=columns, judgement=blind, regions=[]),
        told(columns=columns, judgement=blind, regions=[], sketch=ONE_SCORE),
        told(
            columns=columns,
            sketch=with_zeros(2),
            recommended=None,
            clicks=0,
            regions=[Region(None, 0.1, 0.5, 0.0, 0.5)],
        ),
        told(columns=columns, segments=[segment(mean_outcome_over_score=float("inf"))]),
    ]
    assert texts[0].startswith("With 126 positives on 90,000 rows")
    assert texts[3].startswith("2 positives have a score of 0")
    for text in texts:
        assert "positive" in text
        assert "click" not in text


def test_scores_at_chance_are_asked_about_and_never_get_a_factor_alone() -> None:
    off = judged(chance=CHANCE)
    text = told(judgement=off, columns=("p_shown", "clicked"))
    assert text.startswith(
        "Is 'p_shown' the probability of 'clicked'? Higher scores were not clicked more often (AUC 0.494,"
        " chance 0.5 ± 0.012), and the weights do not add up."
    )
    assert "If it is: overstated by a factor 1.8 below 0.01; the weights that matter are 44 %" in text
    assert text.endswith("audit it with --actions N, the number of actions to choose from.")
    assert result(judgement=off).headline == "Not a propensity of 'clicked'?"
    level = judged(level="undecided", reason="not beyond chance", chance=CHANCE)
    right = told(judgement=level, columns=("p_shown", "clicked"), regions=[])
    assert right.startswith("The weights add up, but higher scores were not clicked more often (AUC 0.494,")
    assert right.endswith("Is 'p_shown' a propensity of 'clicked'?")


def test_infinite_weights_come_first() -> None:
    text = told(sketch=with_zeros(12), wce=ErrorFigure(float("inf"), None, None, 0.01), regions=[])
    assert text == (
        "12 clicks have a score of 0: their weights are infinite."
        " Platt on logits, cross-fitted, would bring WCE to 0.02."
    )
    assert told(sketch=with_zeros(1)).startswith("1 click has a score of 0: its weight is infinite.")


def remedied(name: str, wce: float, sketch: CalibrationSketch) -> str:
    scores = [replace(AUDITED.calibrators[0], name=name, wce=wce, sketch=sketch)]
    return told(recommended=name, calibrators=tuple(scores))


def test_the_remedy_is_told_for_what_it_does() -> None:
    off = AUDITED.sketch.mapped(AUDITED.sketch.points().score / 1.1)
    assert remedied("isotonic", 0.1, off).endswith(
        "Isotonic regression, cross-fitted, would bring WCE from 0.46 only to 0.1."
    )
    few = CalibrationSketch.of(score=np.full(2000, 0.1), outcome=np.arange(2000) < 200)
    floor = short(noise_floor(few, metric="wce"))
    assert remedied("beta", 0.02, few).endswith(f"to 0.02 (noise alone shows {floor}).")
    assert told(recommended="none").endswith(
        "On held-out rows no calibrator is better beyond noise than the scores as they are."
    )
    assert told(recommended=None).endswith(
        "No calibrator could be judged: there are too few rows of one class for cross-fitting."
    )
    assert told(recommended=None, clicks=0).endswith("Without a click no calibrator can be fitted.")


def test_the_worst_segment_ends_the_verdict() -> None:
    assert told(segments=[segment(of_rest=1 / 1.6)]).endswith(
        "Scores where country is 'jp' are overstated by a factor 2 (1,200 rows; the rest is overstated by a"
        " factor 1.6)."
    )
    assert told(segments=[segment()]).endswith("a factor 2 (1,200 rows; the rest is right).")
    alike = [segment(q_value=0.5, q_differs=0.5)]
    assert told(segments=alike).endswith("No segment is apart from the rest beyond noise and tolerance.")
    praised = judged(level="good", reason="honest", wce_debiased=0.01)
    assert "No segment" not in told(judgement=praised, regions=[], segments=alike)
    told_both = told(
        segments=[segment(), segment(value="de", mean_outcome_over_score=1.3, low=1.2, high=1.4)]
    )
    assert told_both.endswith(
        " Those where country is 'de' are understated by a factor 1.3 (1,200 rows; the rest is right)."
    )
    healthy = told(judgement=praised, segments=[segment(mean_outcome_over_score=float("inf"))])
    assert healthy.endswith("But scores where country is 'jp' have clicks at a score of 0 (1,200 rows).")
