"""CalibrationSketch: chunking, order, merging, weights, both passes, files, bad input."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.base.errors import DataError, ParameterError, RunFolderError
from unskew.metrics import CalibrationSketch, ece
from unskew.metrics import sketch as sketch_module
from unskew.metrics.sketch_grid import ids, width_bin

EXTREME = [0.0, 1.0, 1e-38, 1e-300, 5e-324, 0.5, 0.57, 0.29, 0.01, 0.1, 0.3, 2.0**-30, 1 - 1e-16]
EXTREME += [1 - 2.0**-30, 1 - 2.0**-31, 1 - 1e-7, 1 - 1e-4, 0.5 + 2.0**-53, 0.5 + 1e-12, 0.9997]
scores = st.one_of(st.sampled_from(EXTREME), st.integers(0, 100).map(lambda k: k / 100), st.floats(0, 1))
rows = st.lists(st.tuples(scores, st.integers(0, 1)), min_size=1, max_size=80)


def arrays(data):
    score, outcome = zip(*data, strict=True)
    return np.array(score), np.array(outcome)


def assert_same(a, b):
    np.testing.assert_array_equal(a.sums.rows, b.sums.rows)
    np.testing.assert_allclose(a.table, b.table, rtol=2e-12, atol=1e-300)


def numpy_sketch(score, outcome, weight=None, bins=100):
    """The sketch of rows without the compiled pass: ids and sums by NumPy."""
    sketch = CalibrationSketch(bins=bins)
    grid, sums = sketch.grid, sketch.sums
    p, o = score.astype(np.float64), outcome.astype(np.float64)
    w = np.ones_like(p) if weight is None else weight
    cell = ids(p, edges=grid.edges, bins=grid.bins, shift=grid.shift, base=grid.base)
    likelihood = np.maximum(np.where(o == 1, p, 1.0 - p), np.finfo(np.float64).eps)
    inverse = np.where(p > 0, w / np.maximum(p, 1e-100), 0.0)
    values = (w**0, w, w * w, w * p, inverse, w * (o - p) ** 2, -w * np.log(likelihood))
    for target, added in zip(sums, values, strict=True):
        np.add.at(target, (cell, o.astype(np.int64)), added)
    return sketch


@given(rows, st.lists(st.integers(0, 80), max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_equal_under_any_chunking_order_and_merging(data, cuts, random):
    score, outcome = arrays(data)
    whole = CalibrationSketch.of(score=score, outcome=outcome)
    order = list(range(len(score)))
    random.shuffle(order)
    chunked, merged = CalibrationSketch(), CalibrationSketch()
    for part in np.split(np.array(order), sorted(cuts)):
        chunked.update(score[part], outcome[part])
        merged = CalibrationSketch.of(score=score[part], outcome=outcome[part]) + merged
    assert_same(chunked, whole)
    assert_same(merged, whole)


@given(rows, st.data())
@settings(max_examples=60, deadline=None)
def test_a_weight_is_a_number_of_repetitions(data, draw):
    score, outcome = arrays(data)
    weight = np.array(draw.draw(st.lists(st.integers(0, 4), min_size=len(score), max_size=len(score))))
    weighted = CalibrationSketch.of(score=score, outcome=outcome, weight=weight)
    repeated = CalibrationSketch.of(score=np.repeat(score, weight), outcome=np.repeat(outcome, weight))
    for left, right in zip(weighted.points()[:3], repeated.points()[:3], strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12)
    assert weighted.brier_sum == pytest.approx(repeated.brier_sum, rel=1e-12, abs=1e-300)
    assert weighted.log_loss_sum == pytest.approx(repeated.log_loss_sum, rel=1e-12, abs=1e-300)


@given(rows, st.booleans(), st.sampled_from([1, 3, 10, 100, 1000]))
@settings(max_examples=60, deadline=None)
def test_numpy_pass_gives_the_same_cells(data, weighted, bins):
    score, outcome = arrays(data)
    weight = 0.5 + np.arange(len(score)) if weighted else None
    compiled = CalibrationSketch.of(score=score, outcome=outcome, weight=weight, bins=bins)
    assert_same(compiled, numpy_sketch(score, outcome, weight, bins))
    error = (outcome - score) * (1.0 if weight is None else weight)
    gap = np.bincount(width_bin(score, bins=bins, rule="paper"), error)
    total = len(score) if weight is None else weight.sum()
    expected = np.abs(gap).sum() / total
    assert ece(score=score, outcome=outcome, weight=weight, bins=bins) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("score_type", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(
    "outcome_type", [bool, np.uint8, np.int8, np.int32, np.int64, np.float32, np.float64]
)
def test_types_agree(score_type, outcome_type):
    score = np.array([0.0, 0.25, 0.5, 0.75, 1.0], dtype=score_type)
    outcome = np.array([0, 1, 0, 1, 1])
    expected = CalibrationSketch.of(score=score.astype(np.float64), outcome=outcome)
    assert_same(CalibrationSketch.of(score=score, outcome=outcome.astype(outcome_type)), expected)
    assert_same(CalibrationSketch.of(score=score[::-1], outcome=outcome.astype(outcome_type)[::-1]), expected)


def test_arrow_chunks_need_not_align():
    score = np.linspace(0, 1, 11)
    outcome = np.arange(11) % 2
    expected = CalibrationSketch.of(score=score, outcome=outcome)
    chunked_score = pa.chunked_array([score[:3], score[3:4], score[4:]])
    chunked_outcome = pa.chunked_array([pa.array(outcome[:7] == 1), pa.array(outcome[7:] == 1)])
    assert_same(CalibrationSketch.of(score=chunked_score, outcome=chunked_outcome), expected)
    assert_same(CalibrationSketch.of(score=pa.array(score), outcome=pa.array(outcome)), expected)


def test_torch_and_frames():
    torch = pytest.importorskip("torch")
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    score, outcome = np.array([0.25, 0.5, 0.75]), np.array([0, 1, 1])
    expected = CalibrationSketch.of(score=score, outcome=outcome)
    tensor = torch.tensor(score, requires_grad=True)
    assert_same(CalibrationSketch.of(score=tensor, outcome=torch.tensor(outcome)), expected)
    assert_same(CalibrationSketch.of(score=tensor.bfloat16(), outcome=torch.tensor(outcome)), expected)
    for frame in (pandas, polars):
        assert_same(CalibrationSketch.of(score=frame.Series(score), outcome=frame.Series(outcome)), expected)


def test_zero_has_a_cell_of_its_own():
    points = CalibrationSketch.of(score=[0.0, 1e-300, 0.0, 1e-38], outcome=[0, 0, 1, 0]).points()
    assert points.rows.tolist() == [2, 2]
    assert points.score[0] == 0 < points.score[1]


def test_scores_near_1_are_told_apart_as_well_as_scores_near_0():
    tail = np.geomspace(1e-9, 0.009, 3_000)
    near_0, near_1 = (
        CalibrationSketch.of(score=score, outcome=np.zeros(3_000)).points() for score in (tail, 1 - tail)
    )
    assert len(near_1.score) == len(near_0.score) > 2_500
    np.testing.assert_array_equal(near_1.rows[::-1], near_0.rows)
    np.testing.assert_allclose((1 - near_1.score)[::-1], near_0.score, rtol=1e-6)


@pytest.mark.parametrize("score_type", [np.float32, np.float64])
@pytest.mark.parametrize("mantissa_bits", [2, 7])
def test_a_cell_is_an_exponent_and_bits_of_the_score_or_of_what_it_lacks_to_1(score_type, mantissa_bits):
    """The rule as plain arithmetic, as engines without bits have it."""
    generator = np.random.default_rng(0)
    tail = np.exp(generator.uniform(np.log(1e-7), np.log(0.5), 4_000))
    score = np.where(generator.random(4_000) < 0.5, tail, 1 - tail).astype(score_type)
    exact = score.astype(np.float64)
    upper = exact > 0.5
    rest = np.where(upper, 1 - exact, exact)
    exponent = np.floor(np.log2(rest))
    part = np.floor((rest / 2.0**exponent - 1) * 2**mantissa_bits)
    place = exponent * 2**mantissa_bits + part
    _, counts = np.unique(np.stack([upper, np.where(upper, -place, place)]), axis=1, return_counts=True)
    sketch = CalibrationSketch.of(score=score, outcome=np.zeros(4_000), bins=1, mantissa_bits=mantissa_bits)
    np.testing.assert_array_equal(sketch.points().rows, counts)


def test_a_sketch_of_an_older_format_is_refused_in_one_line(tmp_path, monkeypatch):
    sketch = CalibrationSketch.of(score=[0.1], outcome=[0])
    with monkeypatch.context() as patch:
        patch.setattr(sketch_module, "FORMAT_VERSION", 1)
        sketch.save(tmp_path / "old.sketch")
    with pytest.raises(DataError, match=r"old\.sketch: the sketch has format 1, .* reads 2") as told:
        CalibrationSketch.load(tmp_path / "old.sketch")
    assert "\n" not in str(told.value)


def test_save_and_load(tmp_path):
    sketch = CalibrationSketch.of(score=[0.1, 0.2, 0.2], outcome=[0, 1, 0], weight=[1, 2, 3], bins=7)
    sketch.save(tmp_path / "s.sketch")
    loaded = CalibrationSketch.load(tmp_path / "s.sketch")
    assert loaded.bins == 7
    for name in ("rows", "weight", "square", "score"):
        np.testing.assert_array_equal(getattr(loaded.sums, name), getattr(sketch.sums, name))
    np.testing.assert_array_equal(loaded.sums.inverse[:, 1], sketch.sums.inverse[:, 1])
    assert (loaded.brier_sum, loaded.log_loss_sum) == (sketch.brier_sum, sketch.log_loss_sum)
    assert [path.name for path in tmp_path.iterdir()] == ["s.sketch"]


def test_files_that_are_no_sketch(tmp_path):
    with pytest.raises(DataError, match=r"missing\.sketch: the sketch cannot be read"):
        CalibrationSketch.load(tmp_path / "missing.sketch")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(DataError, match="is not a calibration sketch"):
        CalibrationSketch.load(tmp_path / "text")
    sketch = CalibrationSketch.of(score=[0.1], outcome=[0])
    sketch.save(tmp_path / "whole")
    (tmp_path / "cut").write_bytes((tmp_path / "whole").read_bytes()[:-40])
    with pytest.raises(DataError, match="damaged"):
        CalibrationSketch.load(tmp_path / "cut")
    with pytest.raises(RunFolderError, match="its folder does not exist"):
        sketch.save(tmp_path / "no" / "folder")


@pytest.mark.parametrize(
    ("score", "outcome", "weight", "message"),
    [
        ([0.1, np.nan], [0, 1], None, r"'score', row 1: score is missing \(NaN\)"),
        ([0.1, -3.2], [0, 1], None, r"'score', row 1: score -3.2 is outside \[0, 1\].*logits"),
        ([0.1, 1.0000001], [0, 1], None, r"outside \[0, 1\]"),
        ([0.1, 0.2], [0, 2], None, "'outcome', row 1: outcome is 2, not 0 or 1"),
        ([0.1, 0.2], [0, np.nan], None, r"'outcome', row 1: outcome is missing \(NaN\)"),
        ([0.1, 0.2], [0, 1], [1, -1], "'weight', row 1: weight -1"),
        ([0.1, 0.2], [0, 1], [np.inf, 1], "'weight', row 0: weight inf"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_added(score, outcome, weight, message):
    sketch = CalibrationSketch()
    with pytest.raises(DataError, match=message):
        sketch.update(np.array(score), np.array(outcome), weight)
    assert sketch.rows == 0
    assert not sketch.table.any()


def test_the_row_is_found_in_a_late_block_and_counted_from_first_row():
    score = np.full(5000, 0.5)
    score[4321] = 7.0
    with pytest.raises(DataError, match="column 'p', row 14321: score 7"):
        CalibrationSketch().update(score, np.zeros(5000), first_row=10_000, names=("p", "clicked", "w"))
    outcome = np.zeros(5000, dtype=np.int64)
    outcome[4999] = 300
    with pytest.raises(DataError, match="row 4999: outcome is 300"):
        ece(score=np.full(5000, 0.5), outcome=outcome)


def test_columns_that_cannot_be_used():
    with pytest.raises(DataError, match="'outcome' has 1 rows where 'score' has 2"):
        CalibrationSketch.of(score=[0.1, 0.2], outcome=[0])
    with pytest.raises(DataError, match=r"one-dimensional, not of shape \(1, 2\)"):
        CalibrationSketch.of(score=[[0.1, 0.2]], outcome=[0])
    with pytest.raises(DataError, match="value 'high' is not a number"):
        CalibrationSketch.of(score=[0.1, "high"], outcome=[0, 1])
    with pytest.raises(DataError, match=r"row 1: value is missing \(null; 1 such rows\)"):
        CalibrationSketch.of(score=pa.array([0.1, None]), outcome=[0, 1])
    with pytest.raises(ParameterError, match="bins=10 and bins=100"):
        CalibrationSketch(bins=10).merge(CalibrationSketch())
    with pytest.raises(ParameterError, match="bins must be a whole number"):
        CalibrationSketch(bins=0)
    with pytest.raises(ParameterError, match="mantissa_bits must be a whole number"):
        CalibrationSketch(mantissa_bits=40)
