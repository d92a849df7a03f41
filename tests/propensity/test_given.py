"""Propensities from anywhere: an estimator, arrays, a column, a number; and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.base.errors import DataError, NotFittedError, ParameterError
from unskew.propensity.given import given_propensities
from unskew.study.legacy_propensity import LegacyPropensity

SEEDS = (3, 8)
CLIP = 0.05


@pytest.fixture(scope="module")
def log() -> us.Log:
    """Pairs of 12 users and 9 items, some listed without a click, with a column of propensities."""
    random = np.random.default_rng(1)
    cells = random.permutation(12 * 9)[:60]
    click = (np.arange(60) % 3 > 0).astype(int)
    return us.Log.from_arrays(
        user=cells // 9,
        item=cells % 9,
        click=click,
        conversion=np.where(click == 1, cells % 2, np.nan),
        columns={
            "p": np.where(click == 1, 0.01 + random.random(60) * 0.9, np.nan),
            "word": np.array(["x"] * 60),
        },
    )


@pytest.fixture(scope="module")
def estimator(log) -> us.Propensity:
    return us.Propensity(learner=us.MF(dim=2), crossfit=2, epochs=2, learning_rate=0.05).fit(log, seeds=SEEDS)


def given(log, propensity, **options):
    return given_propensities(log, propensity, SEEDS, CLIP, **options)


def test_rows_a_column_a_matrix_and_a_line_for_each_seed_are_the_same_numbers(log):
    p = np.maximum(log.columns["p"], CLIP)
    matrix = np.full((12, 9), np.nan)
    matrix[log.user, log.item] = log.columns["p"]
    for form in ("p", log.columns["p"], np.stack([log.columns["p"]] * 2), matrix, np.stack([matrix] * 2)):
        clicked = given(log, form).clicked
        assert clicked.shape == (2, log.n_clicks)
        np.testing.assert_array_equal(clicked, np.stack([p[log.clicked]] * 2))


def test_the_seeds_of_an_estimator_are_paired_with_those_of_the_model(log, estimator):
    each = estimator.predict_each(log)[:, log.clicked]
    np.testing.assert_array_equal(given(log, estimator).clicked, np.maximum(each, CLIP))
    raw = estimator.predict_each(log, calibrated=False)[:, log.clicked]
    np.testing.assert_array_equal(given(log, estimator, calibrated=False).clicked, np.maximum(raw, CLIP))


def test_other_seeds_get_the_mean_of_an_estimator(log, estimator):
    mean = estimator.predict(log)[log.clicked]
    others = given_propensities(log, estimator, (0, 1, 2), CLIP).clicked
    np.testing.assert_allclose(others, np.maximum(np.stack([mean] * 3), CLIP))


def test_everywhere_gives_every_cell_and_agrees_with_the_clicked_rows(log, estimator):
    matrix = np.linspace(0.01, 0.9, 12 * 9).reshape(12, 9)
    for form in (matrix, estimator, 0.2):
        told = given(log, form, everywhere=True)
        assert told.everywhere.shape == (2, 12 * 9)
        np.testing.assert_allclose(
            told.everywhere[:, log.cell[log.clicked]], told.clicked.astype(np.float32), rtol=1e-6
        )
        assert told.everywhere.min() >= np.float32(CLIP)


def test_what_the_clip_did_is_told(log):
    (told,) = given(log, "p").diagnostics
    p = log.columns["p"][log.clicked]
    assert told.rows == log.n_clicks
    assert told.clipped == pytest.approx((p < CLIP).mean())
    assert told.largest == pytest.approx(1 / max(p.min(), CLIP))
    assert told.weight_check == pytest.approx((1 / p).sum() / log.population_size)


@pytest.mark.parametrize("wrong", [np.nan, -0.1, 1.1, np.inf])
def test_what_is_no_probability_names_its_row(log, wrong):
    p = np.full(len(log), 0.5)
    row = int(log.clicked[7])
    p[row] = wrong
    with pytest.raises(DataError, match=rf"^row {row}: propensity is .*, not a probability.*in \[0, 1\]"):
        given(log, p)


def test_a_cell_without_probability_is_named_where_every_cell_is_needed(log):
    matrix = np.full((12, 9), 0.5)
    free = np.setdiff1d(np.arange(12 * 9), log.cell)[0]
    matrix.flat[free] = np.nan
    assert (given(log, matrix).clicked == 0.5).all()
    with pytest.raises(DataError, match=rf"user {free // 9}, item {free % 9}: propensity is nan"):
        given(log, matrix, everywhere=True)


def test_rows_alone_are_refused_where_every_cell_is_needed(log):
    with pytest.raises(ParameterError, match=r"every pair.*fitted Propensity or an array \[users, items\]"):
        given(log, "p", everywhere=True)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("propensity", r"the log has no column 'propensity'.*it has: p, word"),
        ("word", r"column 'word', row 0: value 'x' is not a number"),
        (np.full(59, 0.5), r"of shape \(59,\) do not fit a log of 60 rows"),
        (np.full((3, 60), 0.5), "3 lines of propensities do not fit 2 seeds"),
        (np.full((3, 12, 9), 0.5), "3 lines of propensities do not fit 2 seeds"),
        (np.array(["0.5"] * 60), "are not numbers"),
        ([None] * 60, "are not numbers"),
    ],
)
def test_forms_that_do_not_fit_are_told(log, form, message):
    with pytest.raises(DataError, match=message):
        given(log, form)


def test_an_estimator_that_is_not_fitted_is_told(log):
    with pytest.raises(NotFittedError, match="this Propensity is not fitted yet"):
        given(log, us.Propensity())


def test_sums_over_all_pairs_refuse_the_propensity_of_a_sample(log):
    sampled = LegacyPropensity(
        learner=us.MF(dim=2), crossfit=2, epochs=1, negatives=1, population="sampled"
    ).fit(log)
    with pytest.raises(ParameterError, match=r"1:k negatives without the logit offset.*population='D'"):
        given(log, sampled, full_space=True)
    corrected = us.Propensity(learner=us.MF(dim=2), crossfit=2, epochs=1, negatives=1).fit(log)
    expected = np.maximum(corrected.predict_each(log)[:, log.clicked], CLIP)
    np.testing.assert_allclose(
        given(log, corrected, full_space=True).clicked, np.repeat(expected, len(SEEDS), axis=0), rtol=1e-6
    )
