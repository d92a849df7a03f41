"""An audit names what is off beyond noise and tolerance, and a remedy that is better beyond noise."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import unskew as us
from unskew.audit import audit
from unskew.cli import main

ROWS = 60_000


def audited(truth: NDArray[Any], factor: Any, *, seed: int = 0, **columns: Any) -> Any:
    """Audit scores that are ``truth`` × ``factor``, with segments."""
    clicked = np.random.default_rng(seed).random(len(truth)) < truth
    table = pa.table({"p": truth * factor, "clicked": clicked, **columns})
    return us.audit(table, score="p", outcome="clicked", segments=list(columns))


def spread(rows: int, seed: int = 1) -> NDArray[np.float64]:
    return np.asarray(np.exp(np.random.default_rng(seed).uniform(np.log(0.02), np.log(0.4), rows)))


def test_no_calibrator_is_recommended_for_healthy_scores() -> None:
    """Scores that are 2 % too large were told to use Platt, for a gain of some 0.00005."""
    result = audited(spread(1_000_000), 1.02)
    assert result.healthy
    assert min(score.nll for score in result.calibrators) < result.nll
    assert result.recommended == "none"
    assert result.command is None


def test_segments_of_healthy_scores_are_named_by_what_they_cost() -> None:
    """The first alone was named."""
    group = np.random.default_rng(2).choice(list("abcdefgh"), ROWS * 5, p=[0.6, *[0.4 / 7] * 7])
    factor = np.ones(ROWS * 5)
    for name, off in {"b": 1.25, "c": 0.8, "d": 1.5, "e": 1 / 1.5}.items():
        factor[group == name] = off
    result = audited(spread(ROWS * 5), factor, group=group)
    assert [s.value for s in result.segments if s.is_off(tolerance=0.05, significance=0.01)] == [
        s.value for s in result.segments[:4]
    ]
    costs = [s.rows * s.wce_debiased for s in result.segments[:4]]
    assert costs == sorted(costs, reverse=True)
    assert {s.value for s in result.segments[:4]} == {"b", "c", "d", "e"}
    told = result.verdict
    assert f"cores where group is '{result.segments[0].value}' are" in told
    for segment in result.segments[1:3]:
        assert f"Those where group is '{segment.value}' are" in told
    assert told.endswith("1 more segment is off.")


def test_a_segment_that_is_off_against_the_rest_is_named_though_it_is_less_far_off() -> None:
    """It was not named: the rest is off by more."""
    small = np.arange(ROWS) % 5 == 0
    result = audited(spread(ROWS), np.where(small, 1 / 1.3, 1.6), half=np.where(small, "small", "large"))
    assert result.healthy is False
    assert "Those where half is 'small' are understated by a factor 1.2 (12,000 rows" in result.verdict


def test_a_segment_that_is_right_on_average_is_not_said_to_be_understated() -> None:
    """It was "understated by a factor 1.01", with an interval that holds 1."""
    truth = spread(ROWS * 5)
    bent = np.arange(ROWS * 5) % 4 == 0
    factor = np.where(bent, np.where(truth < np.median(truth), 1.3, 1 / 1.3), 1.0)
    factor[bent] *= (1 / factor[bent]).mean()
    result = audited(truth, factor, group=np.where(bent, "bent", "straight"))
    worst = result.segments[0]
    assert (worst.value, worst.low < 1 < worst.high) == ("bent", True)
    assert (
        "where group is 'bent' are right on average, but from score to score weights are 2" in result.verdict
    )
    assert "understated by a factor 1.0" not in result.verdict


@pytest.mark.parametrize("segments", [[], ["country"]])
def test_the_command_that_is_printed_writes_honest_weights(
    segments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An audit listed "platt by country", which no command knew."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    truth, country = spread(ROWS), np.random.default_rng(3).choice(["de", "fr"], ROWS)
    factor = np.where(country == "de", 1.5, 1 / 1.5) if segments else 1.5
    table = pa.table({"p": truth * factor, "clicked": np.random.default_rng(4).random(ROWS) < truth})
    pq.write_table(table.append_column("country", pa.array(country)), "my log.parquet")
    options = ["--score", "p", "--outcome", "clicked", *(f"--segments={name}" for name in segments)]
    assert main(["audit", "my log.parquet", *options, "--no-report"]) == 1
    printed = capsys.readouterr().out
    command = next(line for line in printed.splitlines() if line.startswith("Write the weights: "))
    program, *arguments = shlex.split(command.removeprefix("Write the weights: "))
    assert program == "unskew"
    assert ("multicalibrated" in arguments) is bool(segments)
    assert main(arguments) == 0
    after = audit("weighted.parquet", score="propensity_calibrated", outcome="clicked", segments=segments)
    assert after.healthy
    assert after.recommended == "none"
    assert not any(s.is_off(tolerance=0.05, significance=0.01) for s in after.segments)
