"""What the base class does for every calibrator, seen with one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.base
import torch

from contracts.calibrator_contract import skewed_rows
from unskew.base.errors import DataError, NotFittedError, ParameterError, RunFolderError
from unskew.calibration import Calibrator, Platt, calibrator_from_dict, make_calibrator
from unskew.calibration.calibrator import CHUNK_ROWS
from unskew.metrics.sketch import CalibrationSketch


@pytest.fixture
def calibrator() -> Calibrator:
    return Platt()


def test_predict_before_fit_says_so(calibrator: Calibrator):
    with pytest.raises(NotFittedError, match="not fitted"):
        calibrator.predict([0.5])
    with pytest.raises(NotFittedError, match="not fitted"):
        calibrator.to_dict()


@pytest.mark.parametrize(
    ("score", "outcome", "message"),
    [
        ([0.1, np.nan, 0.2], [0, 1, 0], "row 1: score is missing"),
        ([0.1, 0.2, -3.0], [0, 1, 0], r"row 2: score -3 is outside \[0, 1\].*sigmoid"),
        ([0.1, 0.2], [0, 2], "row 1: outcome is 2, not 0 or 1"),
        ([0.1, 0.2], [0, np.nan], "row 1: outcome is missing"),
        ([0.1, 0.2], [0], "'outcome' has 1 rows where 'score' has 2"),
        ([], [], "no rows with a positive weight"),
        ([[0.1, 0.2]], [0, 1], "one-dimensional"),
        (["a", "b"], [0, 1], "'a' is not a number"),
        ([0.1, 0.2], None, "outcome is missing"),
    ],
)
def test_bad_rows_are_named(calibrator: Calibrator, score: Any, outcome: Any, message: str):
    with pytest.raises(DataError, match=message):
        calibrator.fit(score, outcome)


def test_bad_weights_are_named(calibrator: Calibrator):
    with pytest.raises(DataError, match="row 1: weight -1"):
        calibrator.fit([0.1, 0.2], [0, 1], [1, -1])
    with pytest.raises(DataError, match="no rows with a positive weight"):
        calibrator.fit([0.1, 0.2], [0, 1], [0, 0])


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_is_an_error_with_a_remedy(calibrator: Calibrator, label: int):
    for rows in (1, 10):
        with pytest.raises(DataError, match=f"outcome is {label} on every row.*To fix"):
            calibrator.fit(np.full(rows, 0.3), np.full(rows, label))
    assert make_calibrator("none").fit([0.3, 0.4], [label, label]).predict([0.3]) == pytest.approx(0.3)


def test_a_bad_score_is_named_when_predicting(calibrator: Calibrator):
    calibrator.fit(*skewed_rows(500))
    score = np.full(CHUNK_ROWS + 10, 0.5)
    score[CHUNK_ROWS + 3] = np.nan
    with pytest.raises(DataError, match=f"row {CHUNK_ROWS + 3}: score is missing"):
        calibrator.predict(score)
    with pytest.raises(DataError, match=r"row 1: score 1\.5 is outside"):
        calibrator.predict([0.5, 1.5])


def test_takes_lists_tensors_and_booleans(calibrator: Calibrator):
    score, outcome = skewed_rows(500)
    expected = calibrator.fit(score, outcome).predict(score)
    as_list = calibrator.clone().fit(score.tolist(), outcome.astype(bool).tolist())
    as_tensor = calibrator.clone().fit(torch.tensor(score, requires_grad=True), torch.tensor(outcome))
    np.testing.assert_array_equal(as_list.predict(score), expected)
    np.testing.assert_array_equal(as_tensor.predict(torch.tensor(score)), expected)
    brief = torch.tensor(score).bfloat16()
    np.testing.assert_array_equal(calibrator.predict(brief), calibrator.predict(brief.double().numpy()))


def test_parameters_are_stored_read_changed_and_cloned(calibrator: Calibrator):
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


def test_a_damaged_file_is_refused(calibrator: Calibrator):
    saved = calibrator.fit(*skewed_rows(500)).to_dict()
    with pytest.raises(RunFolderError, match="format 99"):
        calibrator_from_dict(saved | {"version": 99})
    with pytest.raises(RunFolderError, match="damaged"):
        calibrator_from_dict(saved | {"learned": {}})
    with pytest.raises(RunFolderError, match="not a saved"):
        type(calibrator).from_dict(saved | {"calibrator": "other"})


def test_a_sketch_needs_rows_and_no_outcomes(calibrator: Calibrator):
    score, outcome = skewed_rows(500)
    with pytest.raises(DataError, match="already holds its outcomes"):
        calibrator.fit(CalibrationSketch.of(score=score, outcome=outcome), outcome)
    with pytest.raises(DataError, match="no rows with a positive weight"):
        calibrator.fit(CalibrationSketch())
