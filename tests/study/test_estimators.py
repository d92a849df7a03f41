"""The semi-synthetic benchmark: its matrices, its estimators, and what calibration does to them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from unskew.errors import DataError, ParameterError
from unskew.study import estimators
from unskew.study.estimators import (
    ESTIMATORS,
    PREDICTIONS,
    RATES,
    SHARES,
    clicks_and_truth,
    conversion_rates,
    estimator_study,
    predictions_of,
    show_estimators,
)
from unskew.theory import dr_estimate, ips_estimate, naive_estimate, snips_estimate


@pytest.fixture(scope="module")
def table():
    return estimator_study(calibrator="isotonic")


@pytest.fixture(scope="module")
def world():
    """Labels, clicks, logits of a prediction, propensities; and what an estimator sees of them."""
    random = np.random.default_rng(0)
    logit = random.normal(-0.5, 1.0, 400)
    label = (random.random(400) < expit(logit)).astype(float)
    p = random.uniform(0.1, 0.9, 400)
    click = random.random(400) < p
    clicks, truth = clicks_and_truth(label, click, logit, p)
    error = np.logaddexp(0, logit) - label * logit
    assert truth == pytest.approx(error.mean())
    return label, click, logit, p, error, clicks


def imputed(logit, rate):
    return np.logaddexp(0, logit) - rate * logit


def test_estimators_without_imputation_are_those_of_theory(world):
    _, click, _, p, error, clicks = world
    assert ESTIMATORS["naive"](clicks) == pytest.approx(naive_estimate(click=click, error=error))
    assert ESTIMATORS["ips"](clicks) == pytest.approx(ips_estimate(click=click, propensity=p, error=error))
    assert ESTIMATORS["snips"](clicks) == pytest.approx(
        snips_estimate(click=click, propensity=p, error=error)
    )


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("dr", lambda p: 1 / p),
        ("mrdr", lambda p: (1 - p) / p**2),
        ("dr-bias", lambda p: (1 - p) ** 2 / p**3),
        ("dr-mse", lambda p: 0.5 * (1 - p) ** 2 / p**3 + 0.5 * (1 - p) / p**2),
    ],
)
def test_doubly_robust_estimators_impute_the_weighted_rate(world, name, weight):
    label, click, logit, p, error, clicks = world
    rate = np.average(label[click], weights=weight(p[click]))
    expected = dr_estimate(click=click, propensity=p, error=error, imputed=imputed(logit, rate))
    assert ESTIMATORS[name](clicks) == pytest.approx(expected)


def test_eib_keeps_known_errors_and_imputes_the_rest(world):
    label, click, logit, _, error, clicks = world
    expected = np.where(click, error, imputed(logit, label[click].mean())).mean()
    assert ESTIMATORS["eib"](clicks) == pytest.approx(expected)


def test_stable_dr_and_tdr_are_their_formulas(world):
    label, click, logit, p, error, clicks = world
    guess = imputed(logit, np.average(label[click], weights=1 / p[click]))
    left = (error - guess)[click]
    assert ESTIMATORS["stable-dr"](clicks) == pytest.approx(
        guess.mean() + np.average(left, weights=1 / p[click])
    )
    odds = 1 / p - 1
    (epsilon,), *_ = np.linalg.lstsq(odds[click][:, None], left)
    expected = dr_estimate(click=click, propensity=p, error=error, imputed=guess + epsilon * odds)
    assert ESTIMATORS["tdr"](clicks) == pytest.approx(expected)
    # At its optimum ε makes the doubly robust estimate that of EIB with the targeted errors.
    assert expected == pytest.approx(np.where(click, error, guess + epsilon * odds).mean())


def test_a_complete_matrix_has_the_rates_in_their_shares_and_in_the_order_of_the_score():
    rates = conversion_rates(None, 0, n_users=50, n_items=40)
    assert [float((rates == rate).mean()) for rate in RATES] == pytest.approx(SHARES)


def test_the_five_predictions_err_as_told():
    rates = conversion_rates(None, 0, n_users=50, n_items=40)
    predictions = predictions_of(rates, np.random.default_rng(0))
    assert tuple(predictions) == PREDICTIONS
    highest = (rates == 0.9).sum()
    for name, rate in (("ONE", 0.1), ("THREE", 0.3), ("FIVE", 0.5)):
        changed = predictions[name] != rates
        assert changed.sum() == highest
        assert set(rates[changed]) == {rate}
        assert set(predictions[name][changed]) == {0.9}
    assert predictions["SKEW"].min() >= 0.1
    assert predictions["SKEW"].max() <= 0.9
    assert set(predictions["CRS"][rates >= 0.7]) == {0.1}
    assert set(predictions["CRS"][rates < 0.7]) == {0.5}


def errors(table, kind: str, estimator: str) -> np.ndarray:
    return np.array(
        [
            row["relative_error"]
            for row in table.to_pylist()
            if (row["propensity"], row["estimator"]) == (kind, estimator)
        ]
    )


@pytest.mark.parametrize("estimator", ["dr", "mrdr", "dr-bias", "dr-mse", "stable-dr", "tdr"])
def test_calibration_brings_doubly_robust_estimates_close_to_those_with_true_propensities(table, estimator):
    raw, calibrated, true = (errors(table, kind, estimator) for kind in ("raw", "calibrated", "true"))
    assert (calibrated < raw).all()
    np.testing.assert_allclose(calibrated, true, atol=0.005)


def test_what_uses_no_propensity_is_the_same_under_each(table):
    for estimator in ("naive", "eib"):
        raw, calibrated, true = (errors(table, kind, estimator) for kind in ("raw", "calibrated", "true"))
        assert (raw == calibrated).all()
        assert (raw == true).all()


def test_conversions_of_all_pairs_are_drawn_anew_in_each_draw(monkeypatch):
    drawn = []

    def spy(label, *rest):
        drawn.append(label.tobytes())
        return clicks_and_truth(label, *rest)

    monkeypatch.setattr(estimators, "clicks_and_truth", spy)
    estimator_study(draws=3, n_users=40, n_items=30)
    assert len(set(drawn)) == 3


def test_movielens_is_completed_by_the_structure_of_its_ratings(tmp_path):
    random = np.random.default_rng(1)
    user, item = random.normal(size=30), random.normal(size=20)
    score = user[:, None] + item
    rows, columns = np.nonzero(random.random(score.shape) < 0.5)
    rating = np.clip(np.round(3 + score), 1, 5)[rows, columns]
    lines = [f"{u + 1}\t{i + 1}\t{int(r)}\t0" for u, i, r in zip(rows, columns, rating, strict=True)]
    (tmp_path / "u.data").write_text("\n".join(lines))
    rates = conversion_rates(tmp_path, 0)
    assert rates.shape == (600,)
    assert np.corrcoef(rates, score.ravel())[0, 1] > 0.7
    told = estimator_study(tmp_path, draws=2)
    assert told.schema.metadata[b"source"] == b"MovieLens-100K"


def test_the_table_to_read_has_a_row_for_each_propensity_and_estimator(table):
    shown = show_estimators(table)
    assert len(shown.rows) == 3 * len(ESTIMATORS)
    assert shown.columns[2:] == PREDICTIONS
    assert shown.rich().row_count == len(shown.rows)


def test_wrong_input_is_told(tmp_path):
    with pytest.raises(DataError, match=r"u.data of MovieLens-100K is not there.*grouplens"):
        estimator_study(tmp_path)
    (tmp_path / "u.data").write_text("a,b,c\n")
    with pytest.raises(DataError, match="is not MovieLens-100K"):
        estimator_study(tmp_path)
    with pytest.raises(ParameterError, match="draws must be at least 1"):
        estimator_study(draws=0)
