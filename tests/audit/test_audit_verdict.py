"""The verdict says what the figures say."""

from __future__ import annotations

from typing import Any

import pytest

from unskew.audit.figures import Figure, Region
from unskew.audit.segments import Segment
from unskew.audit.verdict import CALIBRATOR_WORDS, Remedy, place, verdict
from unskew.calibration import CALIBRATORS

LOW = Region(low=None, high=0.01, share=0.8, ratio=1 / 1.8, part=0.36)
HIGH = Region(low=0.1, high=None, share=0.1, ratio=1.3, part=0.03)


def told(**changes: Any) -> str:
    figures: dict[str, Any] = {
        "healthy": False,
        "tolerance": 0.05,
        "wce": Figure(0.46, 0.44, 0.48, 0.01),
        "wce_debiased": 0.46,
        "p_value": 0.0,
        "significance": 0.01,
        "clicks": 9000,
        "infinite": 0,
        "regions": [LOW, HIGH],
        "remedy": Remedy("platt", 0.02, 0.004, True),
        "segment": None,
    }
    return verdict(**(figures | changes))


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
    }
    return Segment(**(figures | changes))


def test_the_sentence_of_the_design() -> None:
    assert told() == (
        "Overstated by a factor 1.8 below 0.01; the weights that matter are 44 % too small."
        " Platt on logits, cross-fitted, would bring WCE from 0.46 to 0.02."
    )


def test_two_regions_that_both_matter_are_both_told() -> None:
    high = Region(low=0.1, high=None, share=0.3, ratio=1.3, part=0.2)
    assert told(regions=[LOW, high]).startswith(
        "Overstated by a factor 1.8 below 0.01 (weights 44 % too small);"
        " understated by a factor 1.3 above 0.1 (weights 30 % too large)."
    )


@pytest.mark.parametrize(
    ("region", "words"),
    [
        (
            Region(None, None, 1.0, 2.0, 1.0),
            "Understated by a factor 2 everywhere; the weights are 100 % too large.",
        ),
        (
            Region(0.02, 0.3, 0.5, 0.8, 0.1),
            "Overstated by a factor 1.2 between 0.02 and 0.3; the weights there are",
        ),
        (Region(None, 0.001, 0.5, 0.0, 0.5), "Overstated beyond measure (not one click) below 0.001;"),
        (
            Region(None, 0.5, 0.5, 1.06, 0.1),
            "Understated by a factor 1.06 below 0.5; the weights that matter",
        ),
    ],
)
def test_every_kind_of_region_has_its_words(region: Region, words: str) -> None:
    assert told(regions=[region]).startswith(words)


def test_places_are_told_in_two_digits() -> None:
    assert place(Region(None, 0.0123, 0.5, 0.5, 0.1)) == "below 0.012"


def test_a_healthy_propensity_is_praised_for_the_right_reason() -> None:
    noise = Figure(0.012, 0.0, 0.02, 0.011)
    honest = told(healthy=True, wce=noise, wce_debiased=0.0, p_value=0.4, regions=[])
    assert (
        honest == "Honest: nothing tells the weights from right ones (WCE 0.012, noise alone 0.011, p = 0.4)."
    )
    small = told(healthy=True, wce=noise, wce_debiased=0.02, p_value=1e-9, regions=[])
    assert "off by 2 %, which is more than noise but not more than 5 %" in small
    few = told(healthy=True, wce=Figure(0.3, 0.0, 0.5, 0.25), wce_debiased=0.2, p_value=0.2, clicks=40)
    unclear = told(healthy=True, wce=Figure(0.3, 0.0, 0.5, 0.25), wce_debiased=0.2, p_value=0.001)
    assert unclear.startswith("Not shown to be off by more than 5 %: the weights look 30 % off, but with")
    assert few.startswith(
        "Not distinguishable from honest: the weights look 30 % off, but with 40 clicks noise"
    )


def test_infinite_weights_come_first() -> None:
    text = told(
        infinite=12, wce=Figure(float("inf"), None, None, 0.01), wce_debiased=float("inf"), regions=[]
    )
    assert text == (
        "12 clicks have a score of 0: their weights are infinite."
        " Platt on logits, cross-fitted, would bring WCE to 0.02."
    )
    assert told(infinite=1).startswith("1 click has a score of 0: its weight is infinite.")


@pytest.mark.parametrize(
    ("remedy", "clicks", "words"),
    [
        (
            Remedy("isotonic", 0.1, 0.01, False),
            9,
            "Isotonic regression, cross-fitted, would bring WCE from 0.46 only to 0.1.",
        ),
        (Remedy("beta", 0.02, 0.018, True), 9, "to 0.02 (noise alone shows 0.018)."),
        (
            Remedy("none", 0.46, 0.01, False),
            9,
            "No calibrator does better on held-out rows than the scores as they are.",
        ),
        (None, 9, "No calibrator could be judged: there are too few rows of one class for cross-fitting."),
        (None, 0, "Without a click no calibrator can be fitted."),
    ],
)
def test_the_remedy_is_told_for_what_it_does(remedy: Remedy | None, clicks: int, words: str) -> None:
    assert told(remedy=remedy, clicks=clicks).endswith(words)


def test_the_worst_segment_ends_the_verdict() -> None:
    assert told(segment=segment()).endswith(
        "Scores where country is 'jp' are overstated by a factor 2 (1,200 rows)."
    )
    healthy = told(healthy=True, wce_debiased=0.01, segment=segment(mean_outcome_over_score=float("inf")))
    assert healthy.endswith("But scores where country is 'jp' have clicks at a score of 0 (1,200 rows).")


def test_every_calibrator_has_words() -> None:
    assert set(CALIBRATOR_WORDS) == set(CALIBRATORS) - {"none", "auto"}
