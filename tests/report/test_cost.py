"""What it costs, in one sentence: counts, intervals, and "undecided" where the data cannot tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unskew.metrics import CalibrationSketch
from unskew.metrics.promise import Promise
from unskew.report.cost import excess_words, judge_promise, main_method, promises, run_cost


def metrics(naive: tuple[float, ...], ips: tuple[float, ...], **data: Any) -> dict[str, Any]:
    """A run in which methods have these levels, with their intervals, on 1,000 conversions."""
    names = ("mean", "low", "high")
    return {
        "data": {"test_is": "random", "test_rows_judged": 5000, "test_conversions": 1000, **data},
        "methods": {
            key: {"mean_over_rate": dict(zip(names, level, strict=True))}
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
            "as many as came (95 % interval 21 too few to 18 too many: undecided)",
        ),
        (Promise(9, 0, 0, 3.8), "bad", "9 too many (95 % interval 5 to 9)"),
        (Promise(2, 0, 0, 3.8), "undecided", "2 too many (95 % interval 2 too few to 2 too many: undecided)"),
        (Promise(110, 100, float("nan"), float("nan")), "undecided", "10 too many (undecided)"),
    ],
)
def test_a_promise_in_words(promise, level, words):
    assert (judge_promise(promise), excess_words(promise)) == (level, words)


def test_a_run_says_what_the_naive_model_and_its_method_promise():
    found = run_cost(metrics((1.4, 1.25, 1.55), (1.02, 0.95, 1.09)), {})
    assert found.tone == "good"
    assert found.text == (
        "1,000 conversions came on 5,000 randomly shown test pairs: the naive model promises 400 too many"
        " (95 % interval over test users and seeds from 250 to 550) and IPS with calibrated propensities"
        " promises 20 too many (95 % interval over test users and seeds from 50 too few to 90 too many: right"
        " within 10 %)."
    )
    assert run_cost(metrics((1.4, 1.2, 1.5), (1.3, 1.2, 1.5)), {}).tone == "bad"
    assert run_cost(metrics((1.4, 1.2, 1.5), (1.0, 0.7, 1.3)), {}).tone == "open"


def test_a_run_of_two_seeds_says_that_these_are_not_in_its_intervals():
    of = metrics((1.4, 1.25, 1.55), (1.02, 0.95, 1.09))
    for each in of["methods"].values():
        each["mean_over_rate"]["seeds"] = [1.0, 1.1]
    text = run_cost(of, {}).text
    assert "(95 % interval over test users from 250 to 550)" in text
    assert text.endswith(
        "Two seeds do not tell how far another training would move that, which is not in it."
    )


def test_a_logged_test_set_decides_nothing():
    found = run_cost(metrics((1.4, 1.25, 1.55), (1.3, 1.2, 1.5), test_is="logged"), {})
    assert found.tone == "open"
    assert found.text.endswith("what it costs elsewhere is undecided.")


def test_without_a_test_set_clicks_are_counted_and_the_rest_is_undecided():
    score = np.full(10_000, 0.1)
    sketch = CalibrationSketch.of(score=score, outcome=np.arange(10_000) < 800)
    found = run_cost({"data": {"space": "impressions"}}, {"raw": sketch, "calibrated": sketch})
    assert found.tone == "open"
    assert "promise 1,000 clicks on 10,000 held-out impressions and 800 came: 200 too many" in found.text
    assert found.text.endswith("undecided.")
    assert run_cost({}, {}).text.endswith("undecided.")


def test_runs_of_older_folders_have_no_counts():
    run = metrics((1.4, 1.25, 1.55), (1.0, 0.9, 1.1), test_conversions=None)
    assert promises(run) == {}
    assert "undecided" in run_cost(run, {}).text


@pytest.mark.parametrize(
    ("keys", "main"),
    [
        (["naive", "ips_raw", "ips"], "ips"),
        (["naive", "dr_known"], "dr_known"),
        (["naive"], None),
        ([], None),
    ],
)
def test_the_method_that_a_run_is_about(keys, main):
    assert main_method(dict.fromkeys(keys)) == main
