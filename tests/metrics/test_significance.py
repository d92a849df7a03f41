"""Paired tests against SciPy, Holm against a slow step-down reading, summaries with ddof 1."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from unskew.base.errors import DataError, ParameterError
from unskew.metrics.significance import holm, paired_test, summarise, users_and_seeds


def slow_holm(p_values):
    """Smallest level at which the step-down procedure rejects each hypothesis, found by trying all levels."""

    def rejected(level):
        remaining = dict(enumerate(p_values))
        out = set()
        while remaining:
            smallest = min(remaining, key=remaining.get)
            if remaining[smallest] * len(remaining) > level:
                break
            out.add(smallest)
            del remaining[smallest]
        return out

    levels = sorted({p * k for p in p_values for k in range(1, len(p_values) + 1)} | {1.0})
    return [
        min((level for level in levels if i in rejected(level)), default=1.0) for i in range(len(p_values))
    ]


@given(st.lists(st.floats(0, 1).map(lambda p: round(p, 3)), min_size=1, max_size=7))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_holm_equals_the_step_down_procedure(p_values):
    expected = np.minimum(1.0, slow_holm(p_values))
    np.testing.assert_allclose(holm(p_values), expected, atol=1e-12)


def test_holm_keeps_the_family_error_below_its_level():
    generator = np.random.default_rng(1)
    false_alarms = np.mean([holm(generator.random(10)).min() < 0.05 for _ in range(4000)])
    assert false_alarms < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4000)


def test_holm_names_a_value_that_is_no_probability():
    with pytest.raises(DataError, match=r"position 1: p-value nan does not lie between 0 and 1"):
        holm([0.1, np.nan])


@pytest.fixture(scope="module")
def pairs():
    generator = np.random.default_rng(2)
    b = generator.normal(0.75, 0.01, 10)
    return b + generator.normal(0.004, 0.005, 10), b


def test_t_equals_scipy(pairs):
    found = paired_test(*pairs)
    expected = stats.ttest_rel(*pairs)
    interval = expected.confidence_interval(0.95)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-10)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-10)
    assert found.difference == pytest.approx(np.mean(pairs[0]) - np.mean(pairs[1]))
    assert (found.pairs, found.test) == (10, "t")


def test_wilcoxon_equals_the_exact_count_of_signs(pairs):
    a, b = pairs
    d = a - b
    rank = stats.rankdata(np.abs(d))
    signs = (np.arange(2**10)[:, None] >> np.arange(10)) & 1
    sums = signs @ rank
    observed = rank[d > 0].sum()
    expected = min(1.0, 2 * min((sums <= observed).mean(), (sums >= observed).mean()))
    found = paired_test(a, b, test="wilcoxon")
    assert found.p_value == pytest.approx(expected, rel=1e-10)
    assert (found.low, found.high) == (paired_test(a, b).low, paired_test(a, b).high)


def test_differences_that_do_not_vary_are_as_sure_as_the_sign_test():
    same = paired_test([0.7, 0.8, 0.9], [0.7, 0.8, 0.9])
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)
    assert paired_test([0.7, 0.8], [0.7, 0.8], test="wilcoxon").p_value == 1
    assert paired_test([2.0, 3.0], [1.0, 2.0]).p_value == 0.5
    assert paired_test([0.619886, 0.611685], [0.606076, 0.597875]).p_value == 0.5, "equal but for rounding"
    assert paired_test(np.arange(2.0, 12.0), np.arange(1.0, 11.0)).p_value == 2 / 1024


def test_bad_pairs_are_named():
    with pytest.raises(DataError, match=r"values of shapes \(2,\) and \(3,\) are not pairs"):
        paired_test([1, 2], [1, 2, 3])
    with pytest.raises(DataError, match=r"1 pair\(s\) do not show .*run at least two seeds"):
        paired_test([1], [2])
    with pytest.raises(DataError, match="pair 1: a value is NaN or infinite"):
        paired_test([1, np.nan], [1, 2])
    with pytest.raises(ParameterError, match="test must be 't' or 'wilcoxon', not 'z'"):
        paired_test([1, 2], [1, 3], test="z")
    with pytest.raises(ParameterError, match="level must be between 0 and 1, not 95"):
        paired_test([1, 2], [1, 3], level=95)


@pytest.mark.parametrize("values", [[0.5], [0.5, float("nan")], [0.1, 0.2]])
def test_summary_is_json_with_none_where_undefined(values):
    found = summarise(values)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["std"] is None) == (len(values) == 1 or np.isnan(values).any())
    assert (found["mean"] is None) == bool(np.isnan(values).any())


@pytest.mark.parametrize(("seeds", "of_seeds", "of_users"), [(1, 0.0, 1.0), (5, 1.0, 0.0), (5, 0.5, 1.0)])
def test_intervals_over_users_and_seeds_cover_the_truth_as_their_p_values_say(seeds, of_seeds, of_users):
    random = np.random.default_rng(seeds)
    covered, rejected = [], []
    for _ in range(600):
        people = of_users * random.standard_normal(100)
        trained = of_seeds * random.standard_normal(seeds)
        draws = people[random.integers(100, size=(200, 100))].mean(axis=1)
        found = users_and_seeds(people.mean() + trained, trained[:, None] + draws)
        covered.append(found.low <= 0 <= found.high)
        rejected.append(found.p_value < 0.05)
    # 600 intervals of 95 % cover between 93.0 and 97.0 %, but for one time in 40.
    assert 0.925 <= np.mean(covered) <= 0.98
    assert np.mean(rejected) == pytest.approx(1 - np.mean(covered), abs=1e-12)


def test_without_users_the_interval_is_students_over_seeds():
    found, student = users_and_seeds([0.1, 0.3, 0.2, 0.25]), paired_test([0.1, 0.3, 0.2, 0.25], np.zeros(4))
    np.testing.assert_allclose(found, (student.low, student.high, student.p_value))
    assert users_and_seeds([0.1, 0.3]) == (None, None, None)
    assert users_and_seeds([np.nan], [[0.1, 0.2]]) == (None, None, None)
