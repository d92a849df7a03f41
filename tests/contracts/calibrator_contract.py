"""What every calibrator must do for itself. A test class inherits this and gives a ``calibrator`` fixture.

What the base class does for all of them is tested once, in ``tests/calibration/test_calibrator.py``.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from unskew.calibration import Calibrator, load_calibrator
from unskew.calibration.calibrator import CHUNK_ROWS
from unskew.metrics import nll
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

    @pytest.mark.parametrize("level", [-7.0, -2.5, 2.5])
    def test_scores_of_zero_and_one_are_no_harm(self, calibrator: Calibrator, level: float):
        score, outcome = skewed_rows(3000, level=level)
        score[:20], score[-20:] = 0.0, 1.0
        outcome[:20], outcome[-20:] = 0, 1
        outcome[20:22] = 0, 1
        probability = calibrator.fit(score, outcome).predict(score)
        rate = np.full(len(score), outcome.mean())
        assert nll(score=probability, outcome=outcome) < nll(score=rate, outcome=outcome)
        tiny, zero, one = calibrator.predict([1e-38, 0.0, 1.0])
        assert max(tiny, zero) < outcome.mean() < one

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

    def test_chunks_do_not_show(self, calibrator: Calibrator):
        calibrator.fit(*skewed_rows(2000))
        score = np.random.default_rng(3).random(2 * CHUNK_ROWS + 7)
        pieces = [calibrator.predict(piece) for piece in np.array_split(score, 11)]
        np.testing.assert_array_equal(calibrator.predict(score), np.concatenate(pieces))
        assert calibrator.predict([]).shape == (0,)

    def test_does_not_change_its_input(self, calibrator: Calibrator):
        score, outcome = skewed_rows(500)
        kept = score.copy()
        calibrator.fit(score, outcome).predict(score)
        np.testing.assert_array_equal(score, kept)

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

    def test_a_sketch_fits_like_its_rows(self, calibrator: Calibrator):
        score, outcome = skewed_rows(100_000)
        sketch = CalibrationSketch.of(score=score, outcome=outcome)
        exact = calibrator.clone().set_params(exact_below=len(score)).fit(score, outcome).predict(score)
        sketched = calibrator.fit(sketch).predict(score)
        assert np.abs(sketched - exact).mean() <= 0.02 * outcome.mean()
