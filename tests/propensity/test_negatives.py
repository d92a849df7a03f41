"""The logit offset that undoes sampled negatives."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.errors import ParameterError
from unskew.propensity import logit_offset
from unskew.propensity.negatives import AUTO_RATIO, MOST_CELLS, resolve_ratio


@pytest.mark.parametrize(
    ("ratio", "clicks", "cells", "offset"),
    [
        (1, 6_960, 87_000, -2.442),
        (4, 6_960, 87_000, -1.056),
        (1, 311_704, 15_400_000, -3.880),
        (1, 1_436_609, 27_285 * 7_583, -4.963),
    ],
)
def test_offsets_are_those_of_the_datasets(ratio, clicks, cells, offset):
    assert logit_offset(ratio, clicks, cells) == pytest.approx(offset, abs=6e-4)


def test_the_offset_turns_the_odds_of_the_sample_into_those_of_the_population():
    clicks, cells, ratio = 300, 5000, 2.5
    sample_odds = 1 / ratio
    assert sample_odds * np.exp(logit_offset(ratio, clicks, cells)) == pytest.approx(
        clicks / (cells - clicks)
    )


@pytest.fixture(scope="module")
def world():
    return us.load("synthetic", seed=2).train


def fitted(log, *, epochs=25, **options):
    """Trained to the end: while it is still learning, no model of the sample has its base rate."""
    training = {"learning_rate": 0.02, "epochs": epochs, "patience": None, "crossfit": None}
    return us.Propensity(backbone=us.MF(dim=4), calibrator=None, **training, **options).fit(log)


@pytest.mark.parametrize("ratio", [1, 4])
def test_with_the_offset_sampled_negatives_recover_the_base_rate(world, ratio):
    mean = fitted(world, negatives=ratio).predict_matrix_each().mean()
    assert mean == pytest.approx(world.density, rel=0.1)


def test_without_the_offset_they_are_far_above_it(world):
    propensity = fitted(world, negatives=1, population="sampled")
    assert propensity.offset_ == 0
    assert propensity.predict_matrix_each().mean() > 3 * world.density


def test_all_of_the_population_needs_no_offset(world):
    propensity = fitted(world, negatives="auto", epochs=5)
    assert propensity.ratio_ is None
    assert propensity.offset_ == 0
    assert propensity.predict_matrix_each().mean() == pytest.approx(world.density, rel=0.1)


def test_auto_samples_only_a_huge_population():
    assert resolve_ratio("auto", MOST_CELLS) is None
    assert resolve_ratio("auto", MOST_CELLS + 1) == AUTO_RATIO
    assert resolve_ratio(None, 10**12) is None
    assert resolve_ratio(2, 10) == 2.0


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), "many"])
def test_a_ratio_that_is_none_is_told(wrong):
    with pytest.raises(ParameterError, match="negatives must be None, 'auto' or a positive ratio"):
        resolve_ratio(wrong, 100)
