"""Segments: their figures are the formulas, their tests hold their size, and noise does not lead."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from unskew.audit.segments import (
    MISSING,
    OTHERS,
    Segment,
    ValueCodes,
    corrected,
    segment_cells,
    segments_of,
    worst_first,
)
from unskew.metrics import mean_outcome_over_score


def filled(values: pa.Array, score: np.ndarray, outcome: np.ndarray, **options: int) -> list[Segment]:
    names = ValueCodes(**options)
    code = names.codes(pa.array(values) if isinstance(values, list) else values)
    return segments_of(segment_cells("g", names.names(), code, score, outcome))


def test_figures_of_a_segment_are_those_of_its_rows() -> None:
    generator = np.random.default_rng(0)
    score = generator.beta(1, 20, 5000)
    outcome = (generator.random(5000) < score).astype(np.int64)
    group = generator.choice(np.array(["a", "b"]), 5000)
    (first, second) = sorted(filled(group.tolist(), score, outcome), key=lambda s: s.value)
    for segment in (first, second):
        rows = group == segment.value
        assert segment.rows == rows.sum()
        assert segment.base_rate == pytest.approx(outcome[rows].mean())
        assert segment.mean_score == pytest.approx(score[rows].mean())
        exact = mean_outcome_over_score(score=score[rows], outcome=outcome[rows])
        assert segment.mean_outcome_over_score == pytest.approx(exact)
        assert segment.low < exact < segment.high


def test_correction_is_benjamini_and_hochbergs() -> None:
    generator = np.random.default_rng(3)
    score = np.full(8000, 0.2)
    outcome = (generator.random(8000) < np.repeat([0.2] * 6 + [0.26, 0.3], 1000)).astype(np.int64)
    segments = corrected(filled(np.repeat(list("abcdefgh"), 1000).tolist(), score, outcome))
    expected = stats.false_discovery_control([segment.p_value for segment in segments])
    np.testing.assert_allclose([segment.q_value for segment in segments], expected)


def test_of_scores_that_are_off_alike_no_segment_stands_out_and_one_that_is_further_off_does() -> None:
    """All segments are off beyond chance, and a verdict named the largest, with the factor of all rows."""
    generator = np.random.default_rng(6)
    segments, rows = 500, 2000
    score = np.exp(generator.uniform(np.log(0.01), np.log(0.6), segments * rows))
    group = np.repeat(np.arange(segments).astype(str), rows).tolist()
    alike = filled(group, score, generator.random(len(score)) < score / 1.7)
    assert all(segment.p_value is not None and segment.p_value < 0.01 for segment in alike)
    p = np.array([segment.p_differs for segment in alike], dtype=np.float64)
    assert abs((p < 0.05).mean() - 0.05) < 0.02
    off = np.where(np.arange(len(score)) < rows, 5.0, 1.7)
    first, *others = corrected(filled(group, score, generator.random(len(score)) < score / off))
    assert first.of_rest == pytest.approx(1 / 1.7, rel=0.02)
    assert first.stands_out(tolerance=0.05, significance=0.01)
    assert sum(each.stands_out(tolerance=0.05, significance=0.01) for each in others) <= 1


def test_a_small_noisy_segment_does_not_stand_before_a_large_one_that_is_off() -> None:
    generator = np.random.default_rng(4)
    score = np.full(20_030, 0.1)
    outcome = (generator.random(20_030) < 0.1).astype(np.int64)
    outcome[:10_000] = generator.random(10_000) < 0.15
    outcome[20_000:20_010] = 1
    group = ["large"] * 10_000 + ["honest"] * 10_000 + ["tiny"] * 30
    segments = worst_first(corrected(filled(group, score, outcome)), tolerance=0.05, significance=0.01)
    assert segments[0].value == "large"
    tiny = next(segment for segment in segments if segment.value == "tiny")
    assert tiny.mean_outcome_over_score > 3
    assert tiny.p_value is None
    assert tiny.q_value is None


def test_missing_values_and_values_beyond_the_limit_are_segments_too() -> None:
    score, outcome = np.full(6, 0.5), np.array([0, 1, 0, 1, 0, 1])
    segments = filled(["a", None, "b", "c", "d", "a"], score, outcome, most=3)
    told = {segment.value: segment.rows for segment in segments}
    assert told == {"a": 2, "b": 1, "c": 1, MISSING: 1, OTHERS: 1}


@pytest.mark.parametrize(
    "values",
    [
        pa.array([3, 3, None]),
        pa.array([True, True, None]),
        pa.array(["x", "x", None]).dictionary_encode(),
        pa.array(["x", "x", None], pa.string_view()),
        pa.array([b"x", b"x", None], pa.binary_view()),
        pa.array(["x", "x", None], pa.large_string()),
        pa.array([pa.scalar(0).cast(pa.timestamp("s")).as_py()] * 2 + [None], pa.timestamp("s")),
    ],
)
def test_columns_of_every_type_can_be_segments(values: pa.Array) -> None:
    assert [segment.rows for segment in filled(values, np.full(3, 0.5), np.array([0, 1, 1]))] == [2, 1]


def test_categories_that_no_row_has_take_no_segments_place():
    unused = [f"unused {number}" for number in range(50)]
    values = pa.DictionaryArray.from_arrays([50, 51, None, 51], [*unused, "de", "fr"])
    segments = filled(values, np.array([0.5, 0.25, 0.5, 0.5]), np.array([1, 0, 0, 1]), most=3)
    found = {segment.value: segment.rows for segment in segments}
    assert found == {"de": 1, "fr": 2, "(missing)": 1}
