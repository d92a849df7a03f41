"""Splits of a run: by time where there are times, by user or group on request; young rows are left out."""

from __future__ import annotations

import json
from html import unescape

import numpy as np
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.base.errors import ParameterError
from unskew.cli import main

WORLD = {"n_rows": 3_000, "n_users": 150, "n_items": 40, "click_rate": 0.2, "conversion_rate": 0.3}
QUICK = {"learner": "mf", "seeds": 2, "crossfit": 2, "propensity_epochs": 1, "method": "ips"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A log of impressions as files."""
    place = tmp_path_factory.mktemp("world") / "w"
    options = (
        "--rows 3e3 --users 150 --items 40 --test-rows 0 --option click_rate=.2 --option conversion_rate=.3"
    )
    assert main(["make-data", "impressions", "--out", str(place), *options.split()]) == 0
    return place


@pytest.mark.parametrize("split", ["", "time:2", "user:x", "group", "group:", "row:0.1", "time:0"])
def test_other_words_are_no_split(split):
    with pytest.raises(ParameterError, match=r"is not a split.*time:0\.8"):
        us.Config(split=split)


def test_two_ways_at_once_and_the_papers_protocol_are_refused():
    with pytest.raises(ParameterError, match="split and valid_from both"):
        us.Config(split="time:0.8", valid_from="2026-01-01")
    with pytest.raises(ParameterError, match="'yesterday' is not a date"):
        us.Config(valid_from="yesterday")
    with pytest.raises(ParameterError, match="--split has no effect with --protocol paper"):
        us.Config(protocol="paper", split="user:0.2")
    with pytest.raises(ParameterError, match="'7' is not a length of time"):
        us.Config(maturity="7")


def test_impressions_with_times_are_split_by_time_and_the_report_says_so(tmp_path):
    result = us.run(us.Config(data="impressions", options=WORLD, **QUICK))
    log, model = result.dataset.train, result.models["ips"]
    rows = model.validation_rows(log)
    assert (rows[0] == rows[1]).all()
    times = log.columns["time"]
    rest = np.setdiff1d(log.clicked, rows[0])
    assert times[rows[0]].min() > times[rest].max()
    words = [label for label in result.metrics["labels"] if "by time" in label]
    assert len(words) == 1
    assert str(times[rows[0]].min().astype("datetime64[s]")) in words[0]
    result.save(tmp_path / "run")
    assert words[0] in unescape((tmp_path / "run" / "report.html").read_text())
    loaded = us.load_model(tmp_path / "run", "ips")
    np.testing.assert_array_equal(loaded.validation_rows(log), rows)
    assert pq.read_table(tmp_path / "run" / "propensities.parquet").column("time").null_count == 0
    assert main(["compare", str(tmp_path / "run"), "--json", str(tmp_path / "c.json")]) == 0
    assert json.loads((tmp_path / "c.json").read_text())


def test_by_user_no_user_is_on_both_sides():
    result = us.run(us.Config(data="impressions", options=WORLD, split="user:0.3", **QUICK))
    log = result.dataset.train
    model = result.models["naive"]
    for replica, rows in zip(model.replicas(), model.validation_rows(log), strict=True):
        training, held = us_split(log, replica, model)
        assert not np.isin(log.user[training], log.user[held]).any()
        assert not np.isin(log.user[training], log.user[rows]).any()
        assert np.isin(held, rows).mean() > 0.5
    assert any("by user" in label for label in result.metrics["labels"])


def us_split(log, replica, model):
    from unskew.training.held_out import split_parts

    split, part = model.split_, replica.part
    training, held = split_parts(log, replica.seed, split.held_out, split.by, (part,))[part]
    return log.clicked[training], log.clicked[held]


def test_young_rows_are_left_out_and_counted():
    options = {**WORLD, "delay_days": 3.0}
    result = us.run(us.Config(data="impressions", options=options, maturity="4d", **QUICK))
    facts = result.metrics["data"]
    whole = us.load("impressions", **options)
    cut = whole.train.columns["time"].max() - np.timedelta64(4, "D")
    assert facts["immature_rows_dropped"] == (whole.train.columns["time"] > cut).sum() > 0
    assert facts["rows"] == len(whole.train) - facts["immature_rows_dropped"]
    assert facts["late_conversions_censored"] > 0
    words = next(label for label in result.metrics["labels"] if "dropped: less than 4d" in label)
    assert f"{facts['immature_rows_dropped']:,} rows after" in words
    assert len(result.dataset.row_truth["train"]["true_click"]) == facts["rows"]


def command(folder, tmp_path):
    return ["run", "--data", str(folder / "log"), "--space", "impressions", "--out", str(tmp_path / "r")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "by time, from"),
        ("--split time:0.7", "the latest 30 % of the clicks"),
        ("--valid-from 2026-01-16", "by time, from 2026-01-16"),
        ("--split group:session:0.25", "by groups of column 'session'"),
        ("--maturity 3d --split user:0.2", "dropped: less than 3d"),
    ],
)
def test_the_command_line_says_what_was_held_out(folder, tmp_path, capsys, options, words):
    quick = "--learner mf --seeds 1 --crossfit 2 --propensity-epochs 1 --method naive"
    assert main([*command(folder, tmp_path), *quick.split(), *options.split()]) == 0
    assert words in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--time when", "column 'when' is missing"),
        ("--split group:basket", "column 'basket' is missing"),
        ("--maturity 90d", "no click is older than 90d"),
    ],
)
def test_a_wrong_split_is_one_line(folder, tmp_path, capsys, options, message):
    assert main([*command(folder, tmp_path), "--seeds", "1", *options.split()]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert message in lines[0]
