"""The level of conversion models: mended by weighted held-out clicks or a random sample, the order kept."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit, logit

import unskew as us
from unskew.base.errors import DataError, ParameterError, RunFolderError
from unskew.calibration.recalibration import Judged, Recalibration, level_of, recalibration, trust_in

TRAINING = {"learner": us.MF(dim=4), "learning_rate": 0.02, "epochs": 25}
LEVEL = "mean_over_rate"


@pytest.fixture(scope="module")
def data():
    """Clicks convert more often than pairs at random, by a known propensity."""
    return us.load("synthetic", n_users=250, n_items=200, density=0.1, bias=1.0, test_per_user=30, seed=1)


@pytest.fixture(scope="module")
def naive(data):
    return us.Naive(**TRAINING, members=2).fit(data.train, seeds=4, device="cpu")


@pytest.fixture(scope="module")
def before(data, naive):
    naive.recalibration_ = None
    return us.evaluate(naive, data.test)


@pytest.fixture(scope="module")
def random_part(data):
    """A part of the random log, and the rest of it to be judged on."""
    part = np.arange(len(data.test)) % 4 == 0
    return data.test.take(np.flatnonzero(part)), data.test.take(np.flatnonzero(~part))


def level(found, logit, outcome, weight) -> float:
    """Predicted ÷ actual rate with a recalibration."""
    return level_of(Judged(found.predict(expit(logit)), outcome, weight)).value


def distance(figures) -> float:
    return abs(float(figures[LEVEL].mean()) - 1.0)


@pytest.mark.parametrize("known", [True, False], ids=["true propensities", "estimated"])
def test_weighted_clicks_halve_the_distance_of_the_level_to_1_and_keep_the_order(data, naive, before, known):
    p = data.truth.propensity if known else us.Propensity(learner=us.Linear(), crossfit=3).fit(data.train)
    after = us.evaluate(naive.recalibrate_on(data.train, propensity=p), data.test)
    assert distance(before) > 0.25
    assert distance(after) < distance(before) / 2
    np.testing.assert_allclose(after["auc"], before["auc"], atol=1e-9)
    found = naive.recalibration_
    assert found.on == "held-out clicks, weighted by 1/p"
    assert found.before.low < found.before.value < found.before.high
    assert "after" not in found.figures, "1.00 by construction on the rows of the fit"
    assert found.rows == 2 * naive.validation_rows(data.train).shape[1]


def test_a_random_sample_brings_it_within_a_tenth(naive, before, random_part):
    sample, rest = random_part
    after = us.evaluate(naive.recalibrate_on(sample), rest)
    assert distance(after) < 0.1
    assert naive.recalibration_.on == "clicks of a random sample"


def test_a_method_that_learned_with_weights_is_recalibrated_when_it_is_fitted(data):
    given = {"propensity": data.truth.propensity, "seeds": 2, "device": "cpu"}
    plain = us.IPS(**TRAINING).fit(data.train, **given)
    levelled = us.IPS(**TRAINING, recalibrate="shift").fit(data.train, **given)
    assert plain.recalibration_ is None
    assert levelled.recalibration_.by == ("shift", "shift")
    again = plain.recalibrate_on(data.train, propensity=data.truth.propensity, by="shift")
    np.testing.assert_allclose(levelled.predict_each(data.test), again.predict_each(data.test), rtol=1e-9)


class TestKept:
    """With a map that changes predictions."""

    @pytest.fixture(scope="class")
    @classmethod
    def levelled(cls, data, naive, before):
        return naive.recalibrate_on(data.train, propensity=data.truth.propensity, by="platt")

    def test_saved_and_loaded(self, data, levelled, tmp_path):
        levelled.save(tmp_path / "model")
        loaded = us.load_model(tmp_path / "model", device="cpu")
        np.testing.assert_array_equal(loaded.predict_each(data.test), levelled.predict_each(data.test))
        assert loaded.recalibration_.figures == levelled.recalibration_.figures

    def test_a_damaged_file_is_an_error(self, levelled, tmp_path):
        levelled.save(tmp_path / "model")
        saved = json.loads((tmp_path / "model" / "recalibration.json").read_text())
        saved["naive"]["by"] = None
        with pytest.raises(RunFolderError, match="the saved recalibration is damaged"):
            Recalibration.from_dict(saved["naive"])

    def test_members_go_through_the_map_of_their_seed(self, data, levelled):
        members = levelled.predict_members_each(data.test)
        mean = expit(logit(members).mean(axis=1))
        np.testing.assert_allclose(mean, levelled.predict_each(data.test), rtol=1e-6)


class TestMaps:
    @pytest.fixture(scope="class")
    @classmethod
    def world(cls):
        rng = np.random.default_rng(0)
        z = rng.normal(-1.0, 1.0, (2, 4000))
        return z, (rng.random(z.shape) < expit(z)).astype(float)

    def test_predictions_that_are_shifted_get_a_shift_and_steep_ones_a_line(self, world):
        z, outcome = world
        weight = np.ones(z.shape)
        shifted = recalibration(Judged(expit(z + 0.8), outcome, weight), "auto", "rows")
        assert shifted.by == ("shift", "shift")
        assert [each.intercept_ for each in shifted.calibrators] == pytest.approx([-0.8, -0.8], abs=0.1)
        assert {each.slope_ for each in shifted.calibrators} == {1.0}
        steep = recalibration(Judged(expit(3 * z), outcome, weight), "auto", "rows")
        assert steep.by == ("platt", "platt")
        assert [each.slope_ for each in steep.calibrators] == pytest.approx([1 / 3, 1 / 3], abs=0.05)

    def test_the_level_has_an_interval_that_holds_it_as_often_as_it_says(self):
        rng = np.random.default_rng(1)
        held = []
        for _ in range(300):
            p = rng.uniform(0.1, 0.5, (1, 400))
            weight = rng.uniform(1.0, 5.0, p.shape)
            found = level_of(Judged(1.2 * p, (rng.random(p.shape) < p).astype(float), weight))
            held.append(found.low < 1.2 < found.high)
        assert np.mean(held) == pytest.approx(0.95, abs=0.035)

    @pytest.fixture(scope="class")
    @classmethod
    def chosen(cls):
        """Clicks of which those with high logits have small weights: what was chosen converts more."""
        rng = np.random.default_rng(3)
        z = rng.normal(0.0, 1.0, (3, 2000))
        return z, (rng.random(z.shape) < expit(z)).astype(float), np.exp(-z)

    def test_a_shift_towards_what_weights_take_away_is_made_and_another_is_not(self, chosen):
        z, outcome, weight = chosen
        down = recalibration(Judged(expit(z + 1.0), outcome, weight), "auto", "rows")
        assert 0.95 < down.trust < 1.0
        assert level(down, z + 1.0, outcome, weight) == pytest.approx(1.0, abs=0.05)
        up = recalibration(Judged(expit(z - 1.0), outcome, weight), "auto", "rows")
        assert up.trust == 0.0
        np.testing.assert_allclose(up.predict(expit(z - 1.0)), expit(z - 1.0), rtol=1e-8)
        # Asked for by name, or by propensities that are known, it is made.
        for found in (
            recalibration(Judged(expit(z - 1.0), outcome, weight), "shift", "rows"),
            recalibration(Judged(expit(z - 1.0), outcome, weight), "auto", "rows", known=True),
        ):
            assert found.trust == 1.0
            assert level(found, z - 1.0, outcome, weight) == pytest.approx(1.0, abs=0.05)

    def test_a_shift_up_is_made_as_far_as_it_exceeds_what_weights_take_away(self, chosen):
        """All of it where weights have nothing to do with outcomes: clicks as good as shown at random."""
        z, outcome, weight = chosen
        aimless = np.exp(np.random.default_rng(4).normal(0.0, 0.2, z.shape))
        up = recalibration(Judged(expit(z - 1.0), outcome, aimless), "auto", "rows")
        assert 0.9 < up.trust <= 1.0
        assert level(up, z - 1.0, outcome, aimless) == pytest.approx(1.0, abs=0.05)
        d, removed = (
            (weight / weight.sum(axis=1, keepdims=True) * (outcome - expit(z - 3.0))).sum(axis=1).mean(),
            (outcome.mean(axis=1) - (weight * outcome).sum(axis=1) / weight.sum(axis=1)).mean(),
        )
        assert 0 < removed < d
        part = trust_in(Judged(expit(z - 3.0), outcome, weight))
        assert part == pytest.approx(1.0 - removed / d, rel=0.05)

    def test_what_may_be_noise_is_left(self, chosen):
        """The same residual of a twentieth of the clicks, and seeds that held out the same ones."""
        z, outcome, weight = chosen
        rows = Judged(expit(z + 0.3), outcome, weight)
        few = Judged(*(each[:, ::20] for each in rows))
        same = Judged(*(np.repeat(each[:1], 3, axis=0) for each in rows))
        one = Judged(*(each[:1] for each in rows))
        assert trust_in(few) < trust_in(rows)
        number = np.tile(np.arange(z.shape[1]), (3, 1))
        assert trust_in(same, number) == pytest.approx(trust_in(one))
        assert trust_in(same) > trust_in(one)
        # In another order they are the same clicks too.
        turned = Judged(
            *(np.stack([line[:: 1 - 2 * (k == 1)] for k, line in enumerate(each)]) for each in same)
        )
        number[1] = number[1][::-1]
        assert trust_in(turned, number) == pytest.approx(trust_in(one))
        share = weight[:1] / weight[:1].sum()
        d = float((share * (outcome - expit(z + 0.3))[:1]).sum())
        se = np.sqrt(float((share**2 * ((outcome - expit(z + 0.3))[:1] - d) ** 2).sum()))
        assert trust_in(one) == pytest.approx(1 - (se / d) ** 2)

    def test_one_outcome_is_an_error(self):
        rows = Judged(np.full((1, 9), 0.2), np.zeros((1, 9)), np.ones((1, 9)))
        with pytest.raises(DataError, match=r"the 9 rows are too few.*validation_share"):
            recalibration(rows, "auto", "rows")


def test_an_unknown_map_is_refused(data):
    with pytest.raises(ParameterError, match=r"recalibrate must be one of none, auto, shift, .*not 'line'"):
        us.Naive(recalibrate="line").fit(data.train)
