"""What the battery trains and costs, counted before it begins."""

from __future__ import annotations

import pytest

import unskew as us
from unskew.datasets.battery import WORLDS
from unskew.errors import ParameterError
from unskew.study.battery_plan import LADDER, MINUTES, REAL, plan_battery, sizes_of, total_sentence


def seconds(plans):
    return sum(each.seconds for each in plans)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_whole_battery_stays_within_its_time_and_small_worlds_are_repeated_most(device):
    plans = plan_battery([*WORLDS, REAL], device=device)
    assert seconds(plans) <= 60 * MINUTES[device]
    replicas = {each.world: each.repetitions * each.members for each in plans}
    assert replicas["sparse"] == min(replicas.values())
    assert replicas["tiny"] == max(replicas.values())


def test_time_buys_repetitions_and_members_and_what_is_given_stays():
    short, long = (plan_battery(["coat", "hidden"], minutes=each) for each in (0.1, 600))
    assert {(each.repetitions, each.members) for each in short} == {LADDER[0]}
    assert {(each.repetitions, each.members) for each in long} == {LADDER[-1]}
    given = plan_battery(["coat", "hidden"], repetitions=7, members=2)
    assert {(each.repetitions, each.members) for each in given} == {(7, 2)}


def test_cost_grows_with_methods_and_is_said():
    few, many = (plan_battery(["coat"], methods=each, repetitions=1) for each in (["ips"], ["ips", "esmm"]))
    assert seconds(few) < seconds(many)
    assert "coat: 6,960 clicks, " in few[0].sentence
    assert total_sentence(few).startswith("The battery takes about ")
    with pytest.raises(ParameterError, match="minutes must be above 0"):
        plan_battery(["coat"], minutes=0)


@pytest.mark.parametrize("world", WORLDS)
def test_sizes_are_those_of_the_worlds(world):
    clicks, cells = sizes_of(world, "small")
    train = us.load("battery", world=world, scale="small").train
    assert train.n_clicks == pytest.approx(clicks, rel=0.25)
    assert cells == (len(train) if train.space == "impressions" else train.population_size)
