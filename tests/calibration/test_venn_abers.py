"""Venn-Abers against its definition: two isotonic regressions for every new score."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

import unskew as us
from contracts.calibrator_contract import skewed_rows
from unskew.calibration import Platt, VennAbers
from unskew.calibration.venn_abers import RaisedWarning


def by_definition(score, outcome, weight, new, label):
    """Isotonic regression with the new row in it, at the new score."""
    model = IsotonicRegression()
    model.fit(np.append(score, new), np.append(outcome, label), sample_weight=np.append(weight, 1.0))
    return model.predict([new])[0]


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 8), st.booleans(), st.integers(1, 3)), min_size=2, max_size=25
    ).filter(lambda rows: 0 < sum(outcome for _, outcome, _ in rows) < len(rows)),
    new=st.integers(0, 64).map(lambda step: step / 64),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_equals_two_isotonic_regressions_with_the_new_row(rows, new):
    score, outcome, weight = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    score /= 8
    calibrator = VennAbers().fit(score, outcome, weight)
    for value in (new, score[0], 0.0, 1.0):
        low, high = calibrator.interval([value])
        assert low[0] == pytest.approx(by_definition(score, outcome, weight, value, 0), abs=1e-12)
        assert high[0] == pytest.approx(by_definition(score, outcome, weight, value, 1), abs=1e-12)
        assert calibrator.predict([value])[0] == pytest.approx(
            min(max(high[0] / (1 - low[0] + high[0]), 1e-12), 1 - 1e-12), abs=1e-15
        )


def test_the_interval_holds_the_prediction_and_narrows_with_rows():
    few, many = VennAbers().fit(*skewed_rows(300)), VennAbers().fit(*skewed_rows(30_000))
    score = np.linspace(0.01, 0.6, 200)
    widths = []
    for calibrator in (few, many):
        low, high = calibrator.interval(score)
        probability = calibrator.predict(score)
        assert np.all((low <= probability) & (probability <= high))
        widths.append((high - low).mean())
    assert widths[1] < widths[0] / 5


def test_one_of_the_two_is_calibrated_on_new_rows():
    """The mean of p_outcome, chosen by the outcome itself, is the base rate: the theorem, over draws."""
    gap = []
    for seed in range(40):
        score, outcome = skewed_rows(400, seed=seed)
        new, label = skewed_rows(400, seed=1000 + seed)
        low, high = VennAbers().fit(score, outcome).interval(new)
        gap.append((np.where(label == 1, high, low) - label).mean())
    assert abs(np.mean(gap)) < 4 * np.std(gap) / np.sqrt(len(gap))


def test_a_debiaser_warns_once_of_weights_made_with_it():
    log = us.load("synthetic", n_users=60, n_items=40, density=0.2, seed=1).train
    model = us.IPS(learner=us.MF(dim=2), epochs=1)
    raised = us.PopularityPropensity(calibrator=VennAbers(), crossfit=2).fit(log)
    with pytest.warns(
        RaisedWarning, match=r"above the click rate \(by 3 to 4 % with 700 .* use platt"
    ) as told:
        model.fit(log, propensity=raised, seeds=2)
    (one,) = (each for each in told if each.category is RaisedWarning)
    assert one.filename == __file__, "the line that gave the propensity is shown"
    honest = us.PopularityPropensity(calibrator=Platt(), crossfit=2).fit(log)
    with warnings.catch_warnings():
        # One epoch teaches nothing, which is told too.
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RaisedWarning)
        model.fit(log, propensity=honest, seeds=2)
