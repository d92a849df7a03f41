"""Members: the networks of a seed, whose mean logit is the model."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

import unskew as us
from contracts.stages import short_stages
from unskew.base.errors import CollapseWarning, ParameterError, RunFolderError
from unskew.base.manifest import write_manifest
from unskew.debias import METHODS, make_method
from unskew.training.fitted import combined

QUICK = {"epochs": 3, "patience": 2, "batch_size": 256}
EVERY_PART = ("ips", "att", "tdr", "kb-dr", "stable-dr", "gpl", "dr-v2")
"""Methods that between them have every kind of stage, state and click tower."""
SEEDS = (3, 5)


@pytest.fixture(scope="module")
def data():
    return us.load("synthetic", n_users=40, n_items=30, density=0.2, seed=2)


@pytest.fixture(scope="module")
def propensity(data):
    """Of its own for each seed, everywhere."""
    return np.random.default_rng(0).uniform(0.1, 0.6, (len(SEEDS), data.train.n_users, data.train.n_items))


@pytest.fixture(scope="module")
def fitted(data, propensity):
    return ips(members=3).fit(data.train, propensity=propensity, seeds=SEEDS, device="cpu")


def ips(**more) -> us.IPS:
    return us.IPS(**{"learner": us.MF(dim=4, init_std=0.3), **QUICK, "learning_rate": 0.02, **more})


def test_the_model_is_the_mean_logit_of_its_members():
    members = np.array([[[0.1, 1.0], [0.4, 0.5]]])
    expected = [expit((logit(0.1) + logit(0.4)) / 2)]
    np.testing.assert_allclose(combined(members)[0, :1], expected)
    assert 0.5 < combined(members)[0, 1] < 1.0
    np.testing.assert_array_equal(combined(members[:, :1]), members[:, 0])


def test_predictions_are_those_of_the_ensembles(data, fitted):
    members = fitted.predict_members_each(data.test)
    assert members.shape == (2, 3, len(data.test))
    np.testing.assert_array_equal(fitted.predict_each(data.test), combined(members))
    np.testing.assert_allclose(fitted.predict(data.test), combined(members).mean(axis=0))
    for seed in members:
        assert np.abs(seed[0] - seed[1]).max() > 1e-3
        assert np.abs(seed[1] - seed[2]).max() > 1e-3


@pytest.mark.parametrize("name", EVERY_PART)
def test_the_first_members_are_the_model_without_others(name, data, propensity):
    """Also with propensities of each seed: a member of one seed never reads those of the other."""

    def model(members):
        quick = QUICK | short_stages(METHODS[name])
        method = make_method(name, learner=us.MF(dim=4), members=members, **quick)
        return method.fit(data.train, propensity=propensity, seeds=SEEDS, device="cpu")

    one, two = model(1), model(2)
    members = two.predict_members_each(data.test)
    np.testing.assert_allclose(members[:, 0], one.predict_each(data.test), rtol=1e-4)
    assert np.abs(members[:, 1] - members[:, 0]).max() > 1e-4
    assert two.history_.best_epoch[::2] == one.history_.best_epoch
    np.testing.assert_allclose(two.validation_loss_[::2], one.validation_loss_, rtol=1e-4)
    np.testing.assert_array_equal(two.validation_rows(data.train)[::2], one.validation_rows(data.train))


def test_each_member_holds_out_clicks_of_its_own_and_is_judged_on_them(data, fitted, propensity, tmp_path):
    """No member learned from a line that it is asked about, and the others did."""
    log = data.train
    lines = fitted.validation_rows(log)
    assert lines.shape == (6, round(0.1 * log.n_clicks))
    assert all(len(np.unique(rows)) == rows.size for rows in lines.reshape(2, -1))
    np.testing.assert_allclose(
        fitted.predict_lines_each(data.test), np.concatenate(fitted.predict_members_each(data.test))
    )
    conversion = np.array(log.conversion)
    conversion[lines[4]] = 1 - conversion[lines[4]]
    options = {"members": 3, "patience": None}
    one, other = (
        ips(**options).fit(each, propensity=propensity, seeds=SEEDS, device="cpu").predict_lines_each(log)
        for each in (log, replace(log, conversion=conversion))
    )
    same = [np.array_equal(*pair) for pair in zip(one, other, strict=True)]
    assert same == [False] * 4 + [True] + [False]
    fitted.save(tmp_path / "model")
    loaded = us.load_model(tmp_path / "model", device="cpu")
    assert loaded.split_ == fitted.split_
    np.testing.assert_array_equal(loaded.validation_rows(log), lines)


@pytest.mark.parametrize("damage", ["lines = 7", "lines = 2", "held_out = -5"])
def test_a_split_that_no_such_model_has_is_damage(fitted, tmp_path, damage):
    fitted.save(tmp_path / "model")
    config = tmp_path / "model" / "config.toml"
    key = damage.partition(" ")[0]
    config.write_text(re.sub(rf"^{key} = .*$", damage, config.read_text(), flags=re.MULTILINE))
    write_manifest(tmp_path / "model")
    with pytest.raises(RunFolderError, match="split"):
        us.load_model(tmp_path / "model", device="cpu")


def test_a_warning_of_networks_that_learned_nothing_names_the_callers_line(data):
    with pytest.warns(CollapseWarning) as told:
        us.Naive(learner=us.MF(dim=2), epochs=1, learning_rate=1e-9).fit(data.train, device="cpu")
    assert told[0].filename == __file__


def test_a_map_is_fitted_on_what_each_member_says_of_its_own(data, propensity):
    model = ips(members=3).fit(data.train, propensity=propensity, seeds=SEEDS, device="cpu")
    lines = model.validation_rows(data.train)
    score = model.predict_lines_each(data.train)
    outcome = data.train.known_conversion()
    at = np.searchsorted(data.train.clicked, lines)
    p = propensity[:, data.train.user, data.train.item].repeat(3, axis=0)
    weight = 1 / np.maximum(np.take_along_axis(p, lines, axis=1), 0.05)
    predicted, actual = (
        (weight * each).reshape(2, -1).sum(axis=1)
        for each in (np.take_along_axis(score, lines, axis=1), outcome[at])
    )
    model.p_min = 0.05
    found = model.recalibrate_on(data.train, propensity=propensity, by="shift").recalibration_
    assert found.rows == 3 * lines.shape[1]
    assert found.before.value == pytest.approx((predicted / actual).mean(), rel=1e-6)


@pytest.mark.parametrize("whole", [True, False], ids=["all of D", "clicks"])
def test_members_in_groups_are_those_trained_at_once(data, propensity, monkeypatch, whole):
    """Groups that end within a seed, whose propensities both parts read."""
    name = "kb-dr" if whole else "ips"
    method = make_method(name, learner=us.MF(dim=4), members=3, **QUICK)

    def lines():
        model = method.fit(data.train, propensity=propensity, seeds=SEEDS, device="cpu")
        return model.predict_members_each(data.test)

    at_once = lines()
    monkeypatch.setattr("unskew.debias.fit.replicas_at_once", lambda *_, **__: 2)
    np.testing.assert_allclose(lines(), at_once, rtol=1e-4)


class TestWarmStart:
    def test_each_member_goes_on_from_itself(self, data, propensity, fitted):
        start = ips(members=2, epochs=1, learning_rate=1e-9)
        again = start.fit(data.train, propensity=propensity[1], seeds=[5], start=fitted, device="cpu")
        before = fitted.predict_members_each(data.test)[1:, :2]
        np.testing.assert_allclose(again.predict_members_each(data.test), before, rtol=1e-4)


class TestSpread:
    def test_it_is_the_deviation_over_all_members_of_all_seeds(self, data, fitted):
        members = np.concatenate(fitted.predict_members_each(data.test))
        np.testing.assert_allclose(fitted.spread(data.test), members.std(axis=0, ddof=1))

    def test_the_interval_holds_the_mean_logit_and_widens_with_its_level(self, data, fitted):
        low, high = fitted.predict_interval(data.test, level=0.8)
        middle = combined(np.concatenate(fitted.predict_members_each(data.test))[None])[0]
        assert ((low < middle) & (middle < high)).all()
        wide = fitted.predict_interval(data.test, level=0.99)
        assert ((wide[0] < low) & (high < wide[1])).all()

    def test_the_interval_holds_another_member_as_often_as_it_says(self, data):
        few, many = (
            ips(members=members).fit(data.train, propensity=0.3, device="cpu") for members in (5, 30)
        )
        low, high = few.predict_interval(data.test, level=0.8)
        new = many.predict_members_each(data.test)[0, 5:]
        assert ((low < new) & (new < high)).mean() == pytest.approx(0.8, abs=0.05)

    def test_one_network_tells_nothing(self, data):
        model = us.Naive(learner=us.MF(dim=2), epochs=1).fit(data.train, device="cpu")
        with pytest.raises(ParameterError, match=r"one network of naive .* fit it with members=5"):
            model.spread(data.test)
        with pytest.raises(ParameterError, match="fit it with members=5"):
            model.predict_interval(data.test)
