"""Which cells train, stop and judge; and the logit offset that undoes sampled negatives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unskew.base.errors import ParameterError
from unskew.propensity import logit_offset
from unskew.propensity.crossfit import OUT, STOP, TRAIN, SplitDesign, resolve_ratio


def shares(roles):
    return [float((roles == role).float().mean()) for role in (TRAIN, STOP, OUT)]


def test_one_split_is_80_10_10():
    design = SplitDesign.of(None)
    assert design.replicas == 1
    assert shares(design.roles) == pytest.approx([0.8, 0.1, 0.1])


@pytest.mark.parametrize("folds", [2, 3, 5, 10])
def test_cross_fitting_holds_every_slot_out_from_exactly_one_replica(folds):
    design = SplitDesign.of(folds)
    assert design.replicas == folds
    held_out = design.roles == OUT
    assert (held_out.sum(0) == 1).all()
    assert torch.equal(design.fold_of(torch.arange(design.slots)), held_out.int().argmax(0))
    assert (held_out.sum(1) * folds == design.slots).all()


@pytest.mark.parametrize("folds", [None, 2, 5])
@pytest.mark.parametrize("clicks", [4, 9, 30])
def test_parts_without_a_click_get_one_that_would_have_trained_and_folds_stay(folds, clicks):
    design = SplitDesign.of(folds)
    for seed in range(20):
        slot = torch.randint(design.slots, (clicks,), generator=torch.Generator().manual_seed(seed))
        in_slots = torch.bincount(slot, minlength=design.slots)
        for roles, planned in zip(design.roles_of(in_slots[None]), design.roles, strict=True):
            has = {role: bool(in_slots[roles == role].any()) for role in (TRAIN, STOP, OUT)}
            planned_train = int((in_slots[planned == TRAIN] > 0).sum())
            assert has[TRAIN] == (planned_train > 0)
            assert has[STOP] or planned_train < 2
            if folds is None:
                assert has[OUT] or planned_train < 3
            else:
                assert torch.equal(roles == OUT, planned == OUT)
            assert (roles[(roles != planned)] != TRAIN).all()


@pytest.mark.parametrize("folds", [1, 0, -3])
def test_fewer_than_two_folds_are_refused(folds):
    with pytest.raises(ParameterError, match=f"from 2 to 100 folds, not {folds}"):
        SplitDesign.of(folds)


@pytest.mark.parametrize(
    ("ratio", "clicks", "cells", "offset"),
    [
        (1, 6_960, 87_000, -2.442),
        (4, 6_960, 87_000, -1.056),
        (1, 311_704, 15_400_000, -3.880),
        (1, 1_436_609, 27_285 * 7_583, -4.963),
    ],
)
def test_offsets_are_those_of_the_datasets(ratio, clicks, cells, offset):
    assert logit_offset(ratio, clicks, cells) == pytest.approx(offset, abs=6e-4)


def test_the_offset_turns_the_odds_of_the_sample_into_those_of_the_population():
    clicks, cells, ratio = 300, 5000, 2.5
    sample_odds = 1 / ratio
    assert sample_odds * np.exp(logit_offset(ratio, clicks, cells)) == pytest.approx(
        clicks / (cells - clicks)
    )


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), "many"])
def test_a_ratio_that_is_none_is_told(wrong):
    with pytest.raises(ParameterError, match="negatives must be None, 'auto' or a positive ratio"):
        resolve_ratio(wrong, 100, most_cells=100)
