"""What the base class does for every method, seen with one: seeds, clips, propensities, files, questions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone

import unskew as us
from contracts.debiaser_contract import BRIEFLY, CLIP, SEEDS, TRAINING, WORLD
from unskew.base.errors import DataError, NotFittedError, ParameterError
from unskew.study.legacy_propensity import LegacyPropensity


def make(kind: type[us.Debiaser] = us.IPS, **params: object) -> us.Debiaser:
    learner = us.NeuMF(dim=4, layers=(8, 4))
    return kind(**{"learner": learner, "p_min": CLIP, **TRAINING, **BRIEFLY, **params})


@pytest.fixture(scope="module")
def fitted() -> us.Debiaser:
    return make().fit(WORLD.train, propensity=WORLD.truth.propensity, seeds=SEEDS)


def test_the_history_has_a_loss_for_every_epoch_and_replica_and_tells_the_best(fitted):
    assert list(fitted.history_.train) == ["ips"]
    for losses in (fitted.history_.train["ips"], fitted.history_.validation):
        assert np.shape(losses) == (BRIEFLY["epochs"], len(SEEDS))
    np.testing.assert_array_equal(fitted.history_.best_epoch, np.argmin(fitted.history_.validation, axis=0))
    assert (np.diff(fitted.history_.train["ips"], axis=0) < 0).all()


def test_fitting_again_gives_the_same_bit_for_bit_and_seeds_differ(fitted):
    again = make().fit(WORLD.train, propensity=WORLD.truth.propensity, seeds=SEEDS)
    predictions = fitted.predict_each(WORLD.test)
    np.testing.assert_array_equal(again.predict_each(WORLD.test), predictions)
    assert len(np.unique(predictions, axis=0)) == len(SEEDS)


def test_unseen_ids_are_an_error_or_nan(fitted):
    with pytest.raises(DataError, match=r"column 'user', row 1: user 60 was not seen in training"):
        fitted.predict_pairs_each([0, 60], [0, 0])
    some = fitted.predict_pairs_each([0, 60], [0, 0], unseen="nan")
    assert np.isnan(some).tolist() == [[False, True]] * len(SEEDS)


def test_the_propensity_estimator_it_is_given_is_left_as_it_was():
    propensity = us.Propensity(learner=us.MF(dim=2), crossfit=2, epochs=1).fit(WORLD.train, seeds=2)
    propensity.network_.zero_grad()
    before = [parameter.detach().clone() for parameter in propensity.network_.parameters()]
    make(us.StableDR, epochs=1).fit(WORLD.train, propensity=propensity, seeds=2)
    for old, parameter in zip(before, propensity.network_.parameters(), strict=True):
        assert torch.equal(old, parameter)
        assert parameter.grad is None


def test_propensities_at_the_clip_are_not_clipped():
    model = make(epochs=1).fit(WORLD.train, propensity=CLIP)
    assert [line.clipped for line in model.clipping_] == [0.0]


@pytest.mark.parametrize("kind", [us.IPS, us.StableDR])
def test_propensities_below_the_clip_are_raised_to_it_and_told(kind):
    matrix = np.full(WORLD.truth.propensity.shape, 0.5)
    rows = slice(0, len(WORLD.train), 4)
    matrix[WORLD.train.user[rows], WORLD.train.item[rows]] = 0.0
    model = make(kind, epochs=1).fit(WORLD.train, propensity=matrix, seeds=SEEDS)
    (told,) = model.clipping_
    assert told.clipped == pytest.approx(0.25, abs=0.01)
    assert told.largest == pytest.approx(1 / CLIP)
    raised = make(kind, epochs=1).fit(WORLD.train, propensity=np.maximum(matrix, CLIP), seeds=SEEDS)
    np.testing.assert_array_equal(model.predict_each(WORLD.test), raised.predict_each(WORLD.test))


@pytest.mark.parametrize("kind", [us.IPS, us.StableDR])
def test_a_propensity_that_is_nan_is_an_error_that_names_the_row(kind):
    matrix = np.full(WORLD.truth.propensity.shape, 0.5)
    matrix[WORLD.train.user[17], WORLD.train.item[17]] = np.nan
    with pytest.raises(DataError, match=r"row 17: propensity is nan, not a probability"):
        make(kind).fit(WORLD.train, propensity=matrix)


def test_a_sum_over_all_pairs_refuses_the_propensity_of_a_sample():
    sampled = LegacyPropensity(learner=us.MF(dim=2), crossfit=2, epochs=1, negatives=1, population="sampled")
    sampled.fit(WORLD.train)
    with pytest.raises(ParameterError, match=r"of a sampled population.*population='D'"):
        make(us.DR).fit(WORLD.train, propensity=sampled)
    told = make(epochs=1).fit(WORLD.train, propensity=sampled).clipping_
    (p,) = sampled.predict_each(WORLD.train.take(WORLD.train.clicked))
    assert [each.largest for each in told] == pytest.approx([1 / max(p.min(), CLIP)])


def test_parameters_are_kept_read_set_and_cloned():
    model = make()
    copy = clone(model)
    assert copy == model
    copy.set_params(learner__dim=9, p_min=0.2)
    assert (copy.learner.dim, copy.p_min) == (9, 0.2)
    assert (model.learner.dim, model.p_min) == (4, CLIP)
    with pytest.raises(ParameterError, match="has no parameter 'clip'"):
        model.set_params(clip=0.1)


def test_asking_before_fitting_is_told(tmp_path):
    for ask in (make().predict, make().predict_each, make().validation_rows):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            ask(WORLD.test)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        make().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
