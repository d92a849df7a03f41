"""What the published propensity does otherwise, switch by switch; that nothing of it is on by default."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unskew as us
from unskew.base.errors import ParameterError
from unskew.study.legacy_propensity import DualFocalOnProbabilities, LegacyPropensity


def quick(**options):
    training = {"learner": us.MF(dim=4), "learning_rate": 0.02, "epochs": 12, "crossfit": None}
    return LegacyPropensity(**{**training, **options})


@pytest.fixture(scope="module")
def log():
    return us.load("synthetic", n_users=100, n_items=60, density=0.12, seed=1).train


def test_without_a_switch_it_is_the_propensity(log):
    ours = us.Propensity(learner=us.MF(dim=4), learning_rate=0.02, epochs=3).fit(log, device="cpu")
    legacy = quick(epochs=3, crossfit=5).fit(log, device="cpu")
    np.testing.assert_array_equal(legacy.predict_each(log), ours.predict_each(log))


def test_in_sample_nothing_is_held_out_and_clicks_stand_one_to_one_with_fresh_negatives(log):
    in_sample = {"calibrate_in_sample": True, "judge_in_sample": True}
    propensity = quick(**in_sample, negatives=1, population="sampled", patience=None, epochs=5).fit(log)
    (sketch,) = propensity.held_out_sketches(calibrated=True)
    assert sketch.positives == log.n_clicks
    assert sketch.base_rate == pytest.approx(0.5)
    assert propensity.history_.validation == []
    with pytest.raises(ParameterError, match="exclude each other"):
        quick(**in_sample, crossfit=2).fit(log)
    with pytest.raises(ParameterError, match="hold-out changes how it is trained"):
        propensity.reread(judge_in_sample=False)


def test_without_the_offset_scores_are_far_above_the_base_rate(log):
    sampled = quick(negatives=1, population="sampled", calibrator=None, patience=None, epochs=25).fit(log)
    assert sampled.offset_ == 0
    assert sampled.predict_matrix_each().mean() > 3 * log.density


def test_probabilities_taken_for_logits_keep_to_a_narrow_range():
    z = torch.tensor([-30.0, -1.0, 0.3, 30.0], dtype=torch.float64)
    p = torch.sigmoid(2 * torch.sigmoid(z) - 1)
    assert p.min() > 0.26
    assert p.max() < 0.74
    true = torch.where(p > 0.5, 2 * (1 - p), 1 - p) ** 2 * -torch.log(p)
    torch.testing.assert_close(DualFocalOnProbabilities().loss(torch.ones(4).double(), z), true)


def test_a_saved_one_is_read_back_as_what_it_is(log, tmp_path):
    propensity = quick(
        learner=us.NeuMF(dim=4, layers=(4,), dropout=0.3),
        calibrator_dropout=True,
        uncertainty=DualFocalOnProbabilities(),
        epochs=2,
    ).fit(log, device="cpu")
    propensity.save(tmp_path / "p")
    loaded = us.load_propensity(tmp_path / "p", device="cpu")
    assert isinstance(loaded, LegacyPropensity)
    assert loaded.uncertainty == propensity.uncertainty
    np.testing.assert_array_equal(loaded.predict_each(log), propensity.predict_each(log))
