"""Sizes by the data: as they were for small logs, larger batches and narrower tables for large ones."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

import unskew as us
from contracts.streamed_contract import impressions
from unskew.errors import ParameterError
from unskew.log import Field, Schema
from unskew.progress import SILENT
from unskew.propensity.choice import MOST_WORK, SAMPLE_ROWS
from unskew.run.protocol import protocol_of
from unskew.run.run_propensity import chosen_propensity, may_try_network
from unskew.run.sizes import FIRST_ROUND, batch_size, folds, sized, sizes_of, width


def log_of(*, clicks, users, items, rows=None, schema=None):
    """All that sizes are chosen by."""
    space = "matrix" if rows is None else "impressions"
    population = users * items if rows is None else rows

    class Counted(SimpleNamespace):
        def __len__(self):
            return rows or clicks

    return Counted(
        n_clicks=clicks,
        n_users=users,
        n_items=items,
        space=space,
        population_size=population,
        schema=schema or Schema.of_ids(users, items),
    )


COAT = log_of(clicks=6_960, users=290, items=300)
LARGE = log_of(clicks=10**6, users=10**6, items=10**5, rows=10**7)


def test_a_log_like_coat_has_the_sizes_of_the_paper_and_members_as_time_allows():
    sizes = sizes_of(us.RunConfig(data="coat", device="cpu"), COAT)
    assert (sizes.parameters, sizes.crossfit, sizes.label) == ({}, 5, [])
    assert re.search(
        r"10 seeds of 4 members, 5 folds; training takes some \d+ s to \d+ \w+, as early", sizes.sentence
    )


def test_a_large_log_has_large_batches_narrow_tables_and_fewer_folds():
    sizes = sizes_of(us.RunConfig(device="cpu"), LARGE)
    assert sizes.parameters == {"propensity.batch_size": 8192, "backbone.dim": 16}
    assert sizes.crossfit == 3
    assert sizes.label == ["sizes by the data: propensity.batch_size = 8192, backbone.dim = 16, crossfit = 3"]
    assert "backbone.dim = 16 (--set changes them)" in sizes.sentence
    config = sized(us.RunConfig(device="cpu"), sizes)
    assert (config.crossfit, config.parameters["backbone.dim"]) == (3, 16)


def test_networks_that_read_features_have_batches_whose_activations_a_cpu_can_hold():
    sizes = sizes_of(us.RunConfig(backbone="dcn", device="cpu"), LARGE)
    assert sizes.parameters == {"propensity.batch_size": 2048}


def test_a_network_that_features_make_wide_is_estimated_to_take_longer_on_a_cpu():
    ids = {"clicks": 10**5, "users": 50_000, "items": 10_000, "rows": 10**6}
    features = [Field(f"field {number}", "category", "row", 20) for number in range(20)]
    wide = Schema((*Schema.of_ids(50_000, 10_000).ids, *features))

    def seconds(schema, **options):
        config = us.RunConfig(method="naive", propensity="logistic", seeds=1, members=1, **options)
        return sizes_of(config, log_of(**ids, schema=schema)).seconds

    narrow, wider = (seconds(each, backbone="dcn", device="cpu") for each in (None, wide))
    assert wider > 2 * narrow
    assert seconds(wide, backbone="neumf", device="cpu") == narrow, "it reads the ids alone"
    smaller = seconds(wide, backbone="dcn", device="cpu", parameters={"backbone.dim": 4})
    assert smaller == narrow, "what is set by hand counts"


def test_a_network_that_the_choice_tries_is_in_the_estimate_with_many_ids_too():
    def seconds(**options):
        config = us.RunConfig(method="none", seeds=1, device="cpu", **options)
        return sizes_of(config, log_of(clicks=5_000, users=50_000, items=10_000, rows=10**5)).seconds

    assert seconds() == pytest.approx(seconds(propensity="neumf") + seconds(propensity="logistic"))
    wide = {"parameters": {"backbone.dim": 512, "backbone.layers": [512, 512]}}
    assert seconds(**wide) == seconds(propensity="logistic"), "it is too much work"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_the_estimate_and_the_choice_try_the_same_networks(monkeypatch, stream, factor):
    log = impressions(rows=1_000)
    if stream:
        log = us.StreamedLog.of(log, block_rows=500)
    config = us.RunConfig(
        method="none", seeds=1, device="cpu", crossfit=2, parameters={"propensity.epochs": 1, "dim": 4}
    )
    rows = log.sample(SAMPLE_ROWS) if stream else log
    work = us.Propensity(backbone=us.NeuMF(dim=4), epochs=1, crossfit=2).work(rows)
    monkeypatch.setitem(MOST_WORK, "cpu", factor * work)
    _, choice, _ = chosen_propensity(config, protocol_of(config), rows, SILENT)
    tried = next(each for each in choice.tried if each.name == "neumf").left_out is None
    assert tried == may_try_network(config, log) == (factor > 1)


@pytest.mark.parametrize("name", ["training.batch_size", "method.batch_size", "backbone.dim"])
def test_what_is_set_by_hand_stays(name):
    config = us.RunConfig(parameters={name: 64}, crossfit=4, device="cpu")
    sizes = sizes_of(config, LARGE)
    assert name not in sizes.parameters
    assert sizes.crossfit == 4
    assert sized(config, sizes).parameters[name] == 64
    if name == "training.batch_size":
        assert sizes.parameters == {"backbone.dim": 16}


def test_the_paper_has_sizes_of_its_own():
    sizes = sizes_of(us.RunConfig(protocol="paper", device="cpu"), LARGE)
    assert (sizes.parameters, sizes.crossfit) == ({}, 5)


def test_more_rows_and_seeds_take_longer():
    one = sizes_of(us.RunConfig(seeds=1, device="cpu"), LARGE).seconds
    assert sizes_of(us.RunConfig(seeds=4, device="cpu"), LARGE).seconds == pytest.approx(4 * one)
    assert sizes_of(us.RunConfig(seeds=1, members=1, device="cpu"), COAT).seconds < one / 40
    two, three = (
        sizes_of(us.RunConfig(seeds=1, members=number, device="cpu"), COAT).seconds for number in (2, 3)
    )
    assert three > two


class TestMembers:
    def test_five_where_they_are_quick_and_one_where_they_are_not(self):
        found = [
            sizes_of(us.RunConfig(device="cpu", seeds=seeds), log).members
            for seeds, log in ((1, COAT), (3, COAT), (10, COAT), (1, LARGE))
        ]
        assert found == [5, 5, 4, 1]

    def test_a_gpu_has_five(self, monkeypatch):
        monkeypatch.setattr("unskew.run.sizes.resolve_device", lambda _: SimpleNamespace(type="cuda"))
        sizes = sizes_of(us.RunConfig(), LARGE)
        assert (sizes.members, sizes.of_members) == (5, ["each model is the mean logit of 5 members"])
        assert "10 seeds of 5 members" in sizes.sentence

    def test_what_the_time_allows_is_said(self):
        (label,) = sizes_of(us.RunConfig(device="cpu", seeds=20), COAT).of_members
        assert label == (
            "each model is the mean logit of 2 members, as the time on a CPU allows (--members 5 for more)"
        )
        (label,) = sizes_of(us.RunConfig(device="cpu", seeds=60), COAT).of_members
        assert label == "one network a seed, as the time on a CPU allows (--members 5 for more)"

    def test_a_number_that_is_given_stays(self):
        config = us.RunConfig(device="cpu", members=3)
        sizes = sizes_of(config, LARGE)
        assert sizes.of_members == ["each model is the mean logit of 3 members"]
        assert sized(config, sizes).members == 3

    @pytest.mark.parametrize("kind", ["snapshot", "swa"])
    def test_those_of_one_training_are_five_and_quick(self, kind):
        one, five, many = (
            sizes_of(us.RunConfig(device="cpu", **options), LARGE)
            for options in ({}, {"ensemble": kind}, {"members": 5})
        )
        assert (one.members, five.members) == (1, 5)
        assert one.seconds < five.seconds < many.seconds
        (label,) = five.of_members
        assert label.endswith("left in turn by one training")

    def test_another_kind_is_refused(self):
        with pytest.raises(ParameterError, match="'snapshot', 'swa' or 'batch', not 'deep'"):
            us.RunConfig(ensemble="deep")

    @pytest.mark.parametrize("options", [{"protocol": "paper"}, {"method": "none"}])
    def test_the_paper_and_a_propensity_alone_have_none(self, options):
        sizes = sizes_of(us.RunConfig(device="cpu", seeds=1, **options), COAT)
        assert (sizes.members, sizes.of_members) == (1, [])

    def test_impossible_numbers_are_refused(self):
        with pytest.raises(ParameterError, match="members must be 'auto' or from 1 to 1,000, not 0"):
            us.RunConfig(members=0)
        with pytest.raises(ParameterError, match=r"members has an option of its own.*--members"):
            us.RunConfig(parameters={"method.members": 2})


def test_each_rule_changes_in_one_direction():
    rows = [10**k for k in range(1, 10)]
    assert [batch_size(n) for n in rows] == sorted(batch_size(n) for n in rows)
    assert [folds(n) for n in rows] == [5, 5, 5, 5, 5, 5, 3, 2, 2]
    assert [width(n, 64) for n in (600, 50_000, 50_001, 10**6)] == [64, 64, 16, 16]
    assert width(10**6, 8) == 8


def test_a_run_tells_the_sizes_that_its_data_chose(monkeypatch):
    monkeypatch.setattr("unskew.run.sizes.MANY_IDS", 10)
    small = {"n_users": 40, "n_items": 30, "density": 0.2}
    config = us.RunConfig(
        options=small, propensity="popularity", method="naive", seeds=1, parameters={"method.epochs": 1}
    )
    result = us.run(config)
    assert "sizes by the data: backbone.dim = 16" in result.metrics["labels"]
    assert "set: method.epochs = 1" in result.metrics["labels"]
    assert result.models["naive"].backbone.dim == 16
    assert result.config.crossfit == 5


def test_a_search_with_one_member_is_estimated_as_a_round_of_all_candidates():
    one, two = (
        sizes_of(us.RunConfig(method="auto", members=members, device="cpu"), COAT).seconds
        for members in (1, 2)
    )
    none = sizes_of(us.RunConfig(method="none", device="cpu"), COAT).seconds
    assert (two - none) / (one - none) == pytest.approx((2 + FIRST_ROUND) / FIRST_ROUND)
