"""Which cells train, stop and judge: every role is there, and no cell has two."""

from __future__ import annotations

import pytest
import torch

from unskew.errors import ParameterError
from unskew.propensity.design import OUT, STOP, TRAIN, SplitDesign


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


@pytest.mark.parametrize("folds", [2, 3, 5, 10])
def test_each_replica_of_a_cross_fit_stops_on_about_a_tenth_and_trains_on_the_rest(folds):
    for roles in SplitDesign.of(folds).roles:
        train, stop, out = shares(roles)
        assert out == pytest.approx(1 / folds)
        assert 0.05 <= stop <= 0.15
        assert train + stop + out == pytest.approx(1)
        assert train > 1 - 1 / folds - 0.16


def test_roles_are_the_same_for_every_seed_with_clicks_in_all_slots():
    design = SplitDesign.of(3)
    roles = design.roles_of(torch.ones(2, design.slots))
    assert torch.equal(roles, design.roles.repeat(2, 1))


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


def test_nothing_need_be_held_out():
    design = SplitDesign.of(None, hold_out=False)
    assert shares(design.roles) == [1.0, 0.0, 0.0]
    with pytest.raises(ParameterError, match="exclude each other"):
        SplitDesign.of(5, hold_out=False)


@pytest.mark.parametrize("folds", [1, 0, -3])
def test_fewer_than_two_folds_are_refused(folds):
    with pytest.raises(ParameterError, match=f"from 2 to 100 folds, not {folds}"):
        SplitDesign.of(folds)
