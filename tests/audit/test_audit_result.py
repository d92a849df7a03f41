"""The audit as a whole, on scores whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.audit import audit
from unskew.base.errors import DataError, ParameterError
from unskew.metrics import auc, brier, ece, mean_outcome_over_score, nll, wce


@pytest.fixture(scope="module")
def big(make_log: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    log = make_log(120_000, seed=2)
    return log, log.write(tmp_path_factory.mktemp("audit") / "log.parquet")


def test_the_figures_are_those_of_the_rows(big: tuple[Any, Path]) -> None:
    log, path = big
    result = audit(path, score="p", outcome="clicked")
    rows = {"score": log.score, "outcome": log.outcome}
    assert (result.rows, result.clicks) == (len(log.score), int(log.outcome.sum()))
    assert result.ece.value == pytest.approx(ece(**rows), rel=1e-9)
    assert result.nll == pytest.approx(nll(**rows), rel=1e-9)
    assert result.brier == pytest.approx(brier(**rows), rel=1e-9)
    assert result.auc == pytest.approx(auc(**rows), abs=1e-3)
    assert result.mean_outcome_over_score == pytest.approx(mean_outcome_over_score(**rows), rel=1e-9)
    assert result.wce.value == pytest.approx(wce(**rows), abs=0.01)


def test_overstated_scores_are_found_and_platt_is_told_to_mend_them(big: tuple[Any, Path]) -> None:
    log, path = big
    result = audit(path, score="p", outcome="clicked")
    assert not result.healthy
    assert result.recommended == "platt", "the truth is a straight line on logits"
    assert result.verdict.startswith("Overstated by a factor")
    assert "Platt on logits, cross-fitted, would bring WCE from" in result.verdict
    region = result.regions[0]
    inside = (log.score > (region.low or 0.0)) & (log.score < (region.high or 1.0))
    assert region.share == pytest.approx(inside.mean(), abs=0.01)
    assert region.ratio == pytest.approx(float((log.honest / log.score)[inside].mean()), rel=0.05)
    assert result.calibrated is not None
    assert wce(result.calibrated, debiased=True) < 0.05


@pytest.mark.parametrize("k", [1, 10, 100])
def test_scores_off_by_a_factor_2_are_found_where_negatives_were_sampled(k: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(k)
    truth = generator.beta(2, 58, 100_000)
    clicked = generator.random(100_000) < truth
    kept = clicked | (generator.random(100_000) < 1 / k)
    columns = {"honest": truth, "double": 2 * truth, "clicked": clicked, "w": np.where(clicked, 1.0, k)}
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({name: values[kept] for name, values in columns.items()}), path)
    off = audit(path, score="double", outcome="clicked", weight="w")
    assert off.healthy is False
    assert off.verdict.startswith(("Overstated by a factor 2", "Overstated by a factor 1.9"))
    honest = audit(path, score="honest", outcome="clicked", weight="w")
    assert honest.healthy is not False
    assert honest.wce.floor == pytest.approx(honest.wce.value, rel=0.6)


def test_a_constant_at_the_base_rate_gets_no_praise(big: tuple[Any, Path], tmp_path: Path) -> None:
    log, _ = big
    constant = np.full(len(log.score), log.outcome.mean())
    pq.write_table(pa.table({"p": constant, "clicked": log.outcome}), tmp_path / "log.parquet")
    result = audit(tmp_path / "log.parquet", score="p", outcome="clicked")
    assert result.healthy is None
    assert result.auc == 0.5
    assert "all rows have one score" in result.verdict


def test_a_probability_of_showing_is_not_taken_for_one_of_clicking(tmp_path: Path) -> None:
    generator = np.random.default_rng(4)
    shown = generator.choice(np.array([0.05, 0.1, 0.2, 0.5]), 30_000)
    clicked = generator.random(30_000) < 0.05
    pq.write_table(pa.table({"p": shown, "clicked": clicked}), tmp_path / "log.parquet")
    result = audit(tmp_path / "log.parquet", score="p", outcome="clicked")
    assert result.healthy is False
    assert result.headline == "Not a propensity of 'clicked'?"
    assert result.verdict.startswith("Is 'p' the probability of 'clicked'?")
    assert "--actions N" in result.verdict


def test_honest_scores_on_few_rows_are_undecided_with_the_rows_that_would_tell(
    make_log: Any, tmp_path: Path
) -> None:
    path = make_log(3000, seed=9).write(tmp_path / "few.parquet")
    few = audit(path, score="honest", outcome="clicked")
    assert few.healthy is None
    assert few.headline == "Undecided"
    needed = few.judgement.rows_needed
    path = make_log(2 * needed, seed=9).write(tmp_path / "enough.parquet")
    assert audit(path, score="honest", outcome="clicked").healthy is True
    told = few.to_dict()
    assert told["healthy"] is None
    assert told["power"] == {"error": 1.2, "power": few.judgement.power, "rows_needed": needed}


def test_segments_that_are_off_are_found_and_the_worst_is_told(make_log: Any, tmp_path: Path) -> None:
    log = make_log(60_000, seed=5)
    score = log.honest * np.where(log.country == "us", 0.5, 1.0)
    score = np.where(log.country == "de", 1.5 * log.honest, score)
    table = pa.table(
        {"p": score, "clicked": log.outcome, "country": log.country, "half": np.arange(60_000) % 2}
    )
    pq.write_table(table, tmp_path / "log.parquet")
    result = audit(tmp_path / "log.parquet", score="p", outcome="clicked", segments=["country", "half"])
    by_value = {(segment.column, segment.value): segment for segment in result.segments}
    assert set(by_value) == {("country", c) for c in ("de", "fr", "us")} | {("half", "0"), ("half", "1")}
    assert by_value["country", "us"].mean_outcome_over_score == pytest.approx(2.0, rel=0.1)
    assert by_value["country", "de"].mean_outcome_over_score == pytest.approx(1 / 1.5, rel=0.1)
    assert by_value["country", "fr"].q_value > 0.01
    assert result.segments[0].value == "us"
    assert "Scores where country is 'us' are understated by a factor" in result.verdict


@pytest.mark.parametrize(
    ("outcome", "question"),
    [(0, "was the outcome joined to these rows"), (1, "are these the clicked rows only")],
)
def test_one_outcome_on_every_row_is_asked_about(outcome: int, question: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"p": [0.4] * 1000, "clicked": [outcome] * 1000}), tmp_path / "log.parquet")
    with pytest.raises(DataError, match=f"is {outcome} on all 1,000 rows.* expect 400 of 1: {question}"):
        audit(tmp_path / "log.parquet", score="p", outcome="clicked")


def test_a_click_at_score_zero_is_told_and_not_healthy(tmp_path: Path) -> None:
    score = [0.0] * 100 + [0.3] * 900
    outcome = [1] * 2 + [0] * 98 + [1] * 270 + [0] * 630
    pq.write_table(pa.table({"p": score, "clicked": outcome}), tmp_path / "log.parquet")
    result = audit(tmp_path / "log.parquet", score="p", outcome="clicked")
    assert not result.healthy
    assert result.verdict.startswith("2 clicks have a score of 0: their weights are infinite.")
    assert result.wce.value == np.inf
    assert result.weights is None


def test_one_row_can_be_audited(tmp_path: Path) -> None:
    pq.write_table(pa.table({"p": [0.5], "clicked": [1]}), tmp_path / "log.parquet")
    result = audit(tmp_path / "log.parquet", score="p", outcome="clicked")
    assert result.rows == 1
    assert result.healthy is None, "one row says nothing"
    assert result.judgement.rows_needed > 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0.0}, "tolerance must be above 0 and finite, not 0.0"),
        ({"significance": 1.0}, "significance must be between 0 and 1, not 1.0"),
        ({"p_min": 1.0}, r"p_min must be 'auto' or in \[0, 1\), not 1.0"),
        ({"weight": "p"}, "score, outcome and weight must be three columns"),
    ],
)
def test_bad_parameters_are_refused(log_file: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        audit(log_file, score="p", outcome="clicked", **options)
