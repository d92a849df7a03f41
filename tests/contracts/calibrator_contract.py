"""What every calibrator must do. A test class inherits this and gives a ``calibrator`` fixture."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import sklearn.base
import torch

from unskew.calibration import Calibrator, calibrator_from_dict, load_calibrator
from unskew.calibration.base import CHUNK_ROWS
from unskew.errors import DataError, NotFittedError, ParameterError, RunFolderError
from unskew.metrics.sketch import CalibrationSketch


def skewed_rows(rows: int, *, seed: int = 0, level: float = -2.5, ties: int | None = None) -> tuple[Any, Any]:
    """Scores over-spread and shifted against the truth; ``ties`` rounds them to so many steps."""
    random = np.random.default_rng(seed)
    z = random.normal(level, 1.5, rows)
    outcome = (random.random(rows) < 1 / (1 + np.exp(-(0.67 * z - 0.4)))).astype(np.uint8)
    score = 1 / (1 + np.exp(-z))
    return (np.round(score * ties) / ties if ties else score), outcome


class CalibratorContract:
    """Inherit, and define the fixture ``calibrator``."""

    thins_rows_at_random = False
    """Chooses by cross-validation, so that another grouping of the same rows may choose otherwise."""

    def test_fit_returns_the_calibrator_and_learns_only_underscored_names(self, calibrator: Calibrator):
        before = set(vars(calibrator))
        assert calibrator.fit(*skewed_rows(500)) is calibrator
        public = {name for name in set(vars(calibrator)) - before if not name.startswith("_")}
        assert public
        assert all(name.endswith("_") for name in public)

    def test_tells_rows_and_base_rate(self, calibrator: Calibrator):
        score, outcome = skewed_rows(500)
        calibrator.fit(score, outcome)
        assert calibrator.rows_ == 500
        assert calibrator.base_rate_ == pytest.approx(outcome.mean(), abs=1e-12)

    def test_predict_before_fit_says_so(self, calibrator: Calibrator):
        with pytest.raises(NotFittedError, match="not fitted"):
            calibrator.predict([0.5])
        with pytest.raises(NotFittedError, match="not fitted"):
            calibrator.to_dict()

    @pytest.mark.parametrize("level", [-7.0, -2.5, 2.5])
    def test_probabilities_are_strictly_inside_zero_and_one(self, calibrator: Calibrator, level: float):
        score, outcome = skewed_rows(3000, level=level)
        score[:20], score[-20:] = 0.0, 1.0
        outcome[:20], outcome[-20:] = 0, 1
        outcome[20:22] = 0, 1
        probability = calibrator.fit(score, outcome).predict(np.concatenate([score, [0.0, 1.0, 1e-38]]))
        assert probability.dtype == np.float64
        assert probability.min() > 0
        assert probability.max() < 1

    @pytest.mark.parametrize("ties", [None, 7])
    def test_keeps_the_order_of_scores_where_it_claims_to(self, calibrator: Calibrator, ties: int | None):
        if not calibrator.monotone:
            pytest.skip(f"{calibrator.name} does not claim to be monotone")
        calibrator.fit(*skewed_rows(2000, ties=ties))
        probability = calibrator.predict(np.linspace(0, 1, 20_001))
        assert np.diff(probability).min() >= -1e-13

    def test_is_monotone_even_where_scores_rank_backwards(self, calibrator: Calibrator):
        if not calibrator.monotone:
            pytest.skip(f"{calibrator.name} does not claim to be monotone")
        score, outcome = skewed_rows(2000)
        calibrator.fit(1 - score, outcome)
        assert np.diff(calibrator.predict(np.linspace(0, 1, 2001))).min() >= -1e-13

    def test_the_order_of_rows_does_not_matter(self, calibrator: Calibrator):
        score, outcome = skewed_rows(1000, ties=50)
        order = np.random.default_rng(1).permutation(1000)
        straight = calibrator.fit(score, outcome).predict(score)
        shuffled = calibrator.clone().fit(score[order], outcome[order]).predict(score)
        np.testing.assert_allclose(shuffled, straight, rtol=1e-9)

    def test_a_weight_is_a_repetition(self, calibrator: Calibrator):
        if self.thins_rows_at_random:
            pytest.skip("chosen by cross-validation on the rows themselves")
        score, outcome = skewed_rows(600, ties=40)
        weight = np.random.default_rng(2).integers(0, 4, 600)
        repeated = calibrator.fit(np.repeat(score, weight), np.repeat(outcome, weight)).predict(score)
        weighted = calibrator.clone().fit(score, outcome, weight).predict(score)
        np.testing.assert_allclose(weighted, repeated, rtol=1e-7)

    def test_one_constant_score_gets_one_probability(self, calibrator: Calibrator):
        calibrator.fit(np.full(50, 0.25), np.arange(50) % 5 == 0)
        assert len(set(calibrator.predict([0.25, 0.25, 0.25]))) == 1

    @pytest.mark.parametrize(
        ("score", "outcome", "message"),
        [
            ([0.1, np.nan, 0.2], [0, 1, 0], "row 1: score is missing"),
            ([0.1, 0.2, -3.0], [0, 1, 0], r"row 2: score -3 is outside \[0, 1\].*sigmoid"),
            ([0.1, 0.2], [0, 2], "row 1: outcome is 2, not 0 or 1"),
            ([0.1, 0.2], [0, np.nan], "row 1: outcome is missing"),
            ([0.1, 0.2], [0], "outcome has 1 rows where score has 2"),
            ([], [], "no rows to fit on"),
            ([[0.1, 0.2]], [0, 1], "one-dimensional"),
            (["a", "b"], [0, 1], "not numbers"),
            ([0.1, 0.2], None, "outcome is missing"),
        ],
    )
    def test_bad_rows_are_named(self, calibrator: Calibrator, score: Any, outcome: Any, message: str):
        with pytest.raises(DataError, match=message):
            calibrator.fit(score, outcome)

    def test_bad_weights_are_named(self, calibrator: Calibrator):
        with pytest.raises(DataError, match="row 1: weight -1"):
            calibrator.fit([0.1, 0.2], [0, 1], [1, -1])
        with pytest.raises(DataError, match="every row has weight 0"):
            calibrator.fit([0.1, 0.2], [0, 1], [0, 0])

    @pytest.mark.parametrize("label", [0, 1])
    def test_one_class_is_an_error_with_a_remedy(self, calibrator: Calibrator, label: int):
        if not calibrator.needs_both_classes:
            pytest.skip("learns nothing from the outcome")
        for rows in (1, 10):
            with pytest.raises(DataError, match=f"outcome is {label} on every row.*To fix"):
                calibrator.fit(np.full(rows, 0.3), np.full(rows, label))

    def test_a_bad_score_is_named_when_predicting(self, calibrator: Calibrator):
        calibrator.fit(*skewed_rows(500))
        score = np.full(CHUNK_ROWS + 10, 0.5)
        score[CHUNK_ROWS + 3] = np.nan
        with pytest.raises(DataError, match=f"row {CHUNK_ROWS + 3}: score is missing"):
            calibrator.predict(score)
        with pytest.raises(DataError, match=r"row 1: score 1\.5 is outside"):
            calibrator.predict([0.5, 1.5])

    def test_chunks_do_not_show(self, calibrator: Calibrator):
        calibrator.fit(*skewed_rows(2000))
        score = np.random.default_rng(3).random(2 * CHUNK_ROWS + 7)
        pieces = [calibrator.predict(piece) for piece in np.array_split(score, 11)]
        np.testing.assert_array_equal(calibrator.predict(score), np.concatenate(pieces))
        assert calibrator.predict([]).shape == (0,)

    def test_takes_lists_tensors_and_booleans(self, calibrator: Calibrator):
        score, outcome = skewed_rows(500)
        expected = calibrator.fit(score, outcome).predict(score)
        as_list = calibrator.clone().fit(score.tolist(), outcome.astype(bool).tolist())
        as_tensor = calibrator.clone().fit(torch.tensor(score, requires_grad=True), torch.tensor(outcome))
        np.testing.assert_array_equal(as_list.predict(score), expected)
        np.testing.assert_array_equal(as_tensor.predict(torch.tensor(score)), expected)
        brief = torch.tensor(score).bfloat16()
        np.testing.assert_array_equal(calibrator.predict(brief), calibrator.predict(brief.double().numpy()))

    def test_does_not_change_its_input(self, calibrator: Calibrator):
        score, outcome = skewed_rows(500)
        kept = score.copy()
        calibrator.fit(score, outcome).predict(score)
        np.testing.assert_array_equal(score, kept)

    def test_parameters_are_stored_read_changed_and_cloned(self, calibrator: Calibrator):
        parameters = calibrator.get_params()
        assert calibrator.clone().get_params() == parameters
        calibrator.fit(*skewed_rows(500))
        for copy in (calibrator.clone(), sklearn.base.clone(calibrator)):
            assert copy.get_params() == parameters
            assert not hasattr(copy, "base_rate_")
        assert calibrator.set_params(exact_below=7).exact_below == 7
        with pytest.raises(ParameterError, match="no parameter 'nonsense'"):
            calibrator.set_params(nonsense=1)
        with pytest.raises(ParameterError, match="exact_below"):
            calibrator.set_params(exact_below=-1).fit(*skewed_rows(500))

    def test_saves_as_json_and_loads_to_the_last_bit(self, calibrator: Calibrator, tmp_path):
        score, outcome = skewed_rows(1500)
        calibrator.fit(score, outcome)
        calibrator.save(tmp_path / "calibrator.json")
        json.loads((tmp_path / "calibrator.json").read_text())
        loaded = load_calibrator(tmp_path / "calibrator.json")
        assert type(loaded) is type(calibrator)
        assert loaded.get_params() == calibrator.get_params()
        assert loaded.to_dict() == calibrator.to_dict()
        np.testing.assert_array_equal(loaded.predict(score), calibrator.predict(score))
        assert [path.name for path in tmp_path.iterdir()] == ["calibrator.json"]

    def test_a_damaged_file_is_refused(self, calibrator: Calibrator):
        saved = calibrator.fit(*skewed_rows(500)).to_dict()
        with pytest.raises(RunFolderError, match="format 99"):
            calibrator_from_dict(saved | {"version": 99})
        with pytest.raises(RunFolderError, match="damaged"):
            calibrator_from_dict(saved | {"learned": {}})
        with pytest.raises(RunFolderError, match="not a saved"):
            type(calibrator).from_dict(saved | {"calibrator": "other"})

    def test_a_sketch_fits_like_its_rows(self, calibrator: Calibrator):
        score, outcome = skewed_rows(100_000)
        sketch = CalibrationSketch.of(score=score, outcome=outcome)
        exact = calibrator.clone().set_params(exact_below=len(score)).fit(score, outcome).predict(score)
        sketched = calibrator.fit(sketch).predict(score)
        assert np.abs(sketched - exact).mean() <= 0.02 * outcome.mean()
        with pytest.raises(DataError, match="already holds its outcomes"):
            calibrator.fit(sketch, outcome)
        with pytest.raises(DataError, match="sketch is empty"):
            calibrator.fit(CalibrationSketch())

    def test_long_arrays_go_through_the_sketch(self, calibrator: Calibrator):
        score, outcome = skewed_rows(2000)
        by_sketch = calibrator.clone().fit(CalibrationSketch.of(score=score, outcome=outcome))
        by_length = calibrator.set_params(exact_below=100).fit(score, outcome)
        np.testing.assert_array_equal(by_length.predict(score), by_sketch.predict(score))
