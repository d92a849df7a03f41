"""The clip with the least estimated error: its formula, and that it holds at any density and size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.base.errors import ParameterError
from unskew.metrics import least_error_clip
from unskew.metrics.weights import require_clip


def error(p, clip):
    """B² + V of the docstring, row by row."""
    weight, clipped = 1 / p, 1 / np.maximum(p, clip)
    bias = (weight - clipped).sum() / weight.sum()
    return bias**2 + (clipped**2).sum() / weight.sum() ** 2


def log_normal(rows, density, spread=1.0, seed=0):
    p = density * np.exp(spread * np.random.default_rng(seed).standard_normal(rows))
    return np.minimum(p, 1.0)


propensities = st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=60).map(np.array)


class TestLeastErrorClip:
    @given(propensities)
    def test_no_other_propensity_is_a_better_clip(self, p):
        clip = least_error_clip(propensity=p)
        best = min(error(p, candidate) for candidate in p)
        assert error(p, clip) <= best * (1 + 1e-9) or clip == 0.5

    @given(propensities, st.floats(1e-3, 1.0))
    def test_it_follows_the_density(self, p, factor):
        assert least_error_clip(propensity=p * factor * 0.4) == pytest.approx(
            least_error_clip(propensity=p * 0.4) * factor, rel=1e-9
        )

    def test_counts_stand_for_rows(self):
        p, count = np.array([0.001, 0.01, 0.05, 0.2]), np.array([3, 50, 400, 90])
        assert least_error_clip(propensity=p, count=count) == least_error_clip(propensity=np.repeat(p, count))

    def test_zeros_count_as_the_smallest_that_is_not_zero(self):
        assert least_error_clip(propensity=[0.0, 0.1, 0.1, 0.2]) == least_error_clip(
            propensity=[0.1, 0.1, 0.1, 0.2]
        )

    def test_weights_over_many_decades_stay_finite(self):
        assert 1e-300 < least_error_clip(propensity=[1e-300, 1e-200, 0.1, 0.2, 0.3]) <= 0.3

    @pytest.mark.parametrize("nothing", [[], [0.0, 0.0]])
    def test_without_a_propensity_above_zero_there_is_no_clip(self, nothing):
        with pytest.raises(ParameterError, match="no clicked row has a propensity above 0"):
            least_error_clip(propensity=nothing)


class TestClip:
    @pytest.mark.parametrize("wrong", [0.0, 1.0, -1, "none", None, True, float("nan")])
    def test_others_are_refused(self, wrong):
        with pytest.raises(ParameterError, match="p_min must be 'auto' or a number in"):
            require_clip(wrong)
