"""Estimates of the ideal loss over many draws of clicks: unbiased where theory says so, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.datasets import load
from unskew.errors import ParameterError
from unskew.study import unbiasedness
from unskew.study.unbiasedness import show_unbiasedness, unbiasedness_study
from unskew.theory import dr_estimate, ideal_loss, ips_estimate, naive_estimate


@pytest.fixture(scope="module")
def table():
    return unbiasedness_study()


def row_of(table, estimate: str, propensity: str, imputation: str):
    (row,) = (
        row
        for row in table.to_pylist()
        if (row["estimate"], row["propensity"], row["imputation"]) == (estimate, propensity, imputation)
    )
    return row


@pytest.mark.parametrize(
    ("estimate", "propensity", "imputation"),
    [
        ("IPS", "true", "–"),
        ("DR", "true", "one rate"),
        ("DR", "true", "wrong"),
        ("DR", "wrong", "true errors"),
        ("DR", "true", "best for DR-JL"),
        ("DR", "true", "best for MRDR"),
    ],
)
def test_true_propensities_or_true_errors_are_unbiased(table, estimate, propensity, imputation):
    row = row_of(table, estimate, propensity, imputation)
    assert abs(row["miss"]) <= 3 * row["standard_error"] + 1e-9
    assert row["expected_miss"] == pytest.approx(0.0, abs=1e-12)
    assert row["holds"]


@pytest.mark.parametrize(
    ("estimate", "propensity", "imputation"),
    [("naive", "–", "–"), ("IPS", "wrong", "–"), ("EIB", "–", "wrong"), ("DR", "wrong", "wrong")],
)
def test_wrong_propensities_or_wrong_imputation_alone_are_not(table, estimate, propensity, imputation):
    row = row_of(table, estimate, propensity, imputation)
    assert abs(row["miss"]) > 3 * row["standard_error"]
    assert abs(row["miss"] - row["expected_miss"]) <= 4 * row["standard_error"] + 1e-3 * abs(row["miss"])
    assert row["holds"]


def test_the_best_imputation_for_mrdr_has_the_least_variance(table):
    mrdr, joint = (row_of(table, "DR", "true", f"best for {name}") for name in ("MRDR", "DR-JL"))
    assert mrdr["expected_deviation"] < joint["expected_deviation"]
    assert mrdr["deviation"] < joint["deviation"]
    assert joint["deviation"] < row_of(table, "IPS", "true", "–")["deviation"]


def test_measured_deviations_are_those_of_theory(table):
    for row in table.to_pylist():
        # The standard deviation of 2,000 draws is known to about 1.6 %.
        assert row["deviation"] == pytest.approx(row["expected_deviation"], rel=0.08)


def test_each_draw_is_the_textbook_estimate():
    data = load("synthetic", n_users=20, n_items=18, seed=2)
    error, estimates = unbiasedness.estimates_of(data, np.random.default_rng([2, 1]))
    p = data.truth.propensity.ravel()
    random = np.random.default_rng(7)
    values = unbiasedness.redrawn(estimates, p, 3, np.random.default_rng(7))
    clicks = random.random((3, len(p))) < p
    for line, click in zip(values, clicks, strict=True):
        told = {(e.name, e.propensity, e.imputation): v for e, v in zip(estimates, line, strict=True)}
        assert told["naive", "–", "–"] == pytest.approx(naive_estimate(click=click, error=error))
        assert told["IPS", "true", "–"] == pytest.approx(ips_estimate(click=click, propensity=p, error=error))
        exact = dr_estimate(click=click, propensity=p, error=error, imputed=error)
        assert told["DR", "wrong", "true errors"] == pytest.approx(exact) == pytest.approx(ideal_loss(error))


def test_the_table_to_read_has_every_estimate(table):
    shown = show_unbiasedness(table)
    assert len(shown.rows) == table.num_rows
    assert "2,000 draws" in shown.title
    assert shown.markdown().count("\n") == table.num_rows + 1
    assert shown.rich().row_count == table.num_rows


def test_one_draw_is_refused():
    with pytest.raises(ParameterError, match="redraws must be at least 2"):
        unbiasedness_study(redraws=1)
