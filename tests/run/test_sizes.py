"""Sizes by the data: as they were for small logs, larger batches and narrower tables for large ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import unskew as us
from unskew.run.sizes import batch_size, folds, sized, sizes_of, width


def log_of(*, clicks, users, items, rows=None):
    """All that sizes are chosen by."""
    space = "matrix" if rows is None else "impressions"
    population = users * items if rows is None else rows

    class Counted(SimpleNamespace):
        def __len__(self):
            return rows or clicks

    return Counted(n_clicks=clicks, n_users=users, n_items=items, space=space, population_size=population)


COAT = log_of(clicks=6_960, users=290, items=300)
LARGE = log_of(clicks=10**6, users=10**6, items=10**5, rows=10**7)


def test_a_log_like_coat_is_trained_as_before():
    sizes = sizes_of(us.RunConfig(data="coat", device="cpu"), COAT)
    assert (sizes.parameters, sizes.crossfit, sizes.label) == ({}, 5, [])
    assert "10 seeds, 5 folds; training takes about" in sizes.sentence


def test_a_large_log_has_large_batches_narrow_tables_and_fewer_folds():
    sizes = sizes_of(us.RunConfig(device="cpu"), LARGE)
    assert sizes.parameters == {"method.batch_size": 8192, "propensity.batch_size": 8192, "backbone.dim": 16}
    assert sizes.crossfit == 3
    assert sizes.label == [
        "sizes by the data: method.batch_size = 8192, propensity.batch_size = 8192, backbone.dim = 16,"
        " crossfit = 3"
    ]
    assert "backbone.dim = 16 (--set changes them)" in sizes.sentence
    config = sized(us.RunConfig(device="cpu"), sizes)
    assert (config.crossfit, config.parameters["backbone.dim"]) == (3, 16)


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
    assert sizes_of(us.RunConfig(seeds=1, device="cpu"), COAT).seconds < one / 50


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
