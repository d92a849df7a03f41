"""Which fields a model predicts by, and for which values it is off."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import log_loss, roc_auc_score

import unskew as us
from contracts.feature_world import log_of, part, table
from unskew.base.errors import ParameterError
from unskew.run.fields import auc_and_influence, nll_and_influence

DCN = us.DCN(layers=(16,), crosses=1)
QUICK = {"epochs": 12, "learning_rate": 0.01}
ROWS = 16_000


@pytest.fixture(scope="module")
def known():
    return log_of(part(table(ROWS), known=True))


@pytest.fixture(scope="module")
def strangers():
    return log_of(part(table(ROWS), known=False))


@pytest.fixture(scope="module")
def propensity(known):
    return us.Propensity(learner=DCN, crossfit=2, **QUICK).fit(known, seeds=4)


@pytest.fixture(scope="module")
def model(known):
    return us.Naive(learner=DCN, **QUICK).fit(known, seeds=4)


def of(found, name):
    return next(each for each in found.fields if each.field == name)


class TestImportance:
    def test_what_conversions_follow_from_matters_and_noise_does_not(self, model, strangers):
        found = us.field_importance(model, strangers)
        assert {each.field for each in found.fields} == {
            "user", "item", "country", "price", "tags", "position", "noise",
        }  # fmt: skip
        assert found.fields[0].field in ("country", "tags")
        for name in ("country", "tags"):
            assert of(found, name).auc.low > 0
            assert of(found, name).nll.low > 0
        assert of(found, "noise").auc.mean < 0.2 * of(found, "country").auc.mean
        # Strangers all have one code: to permute it changes nothing at all.
        user = of(found, "user").auc
        assert (user.mean, user.low, user.high, user.seeds) == (0, 0, 0, (0, 0, 0, 0))

    def test_what_is_not_permuted_is_what_is_predicted(self, model, strangers):
        found = us.field_importance(model, strangers, repetitions=1)
        outcome = strangers.known_conversion()
        each = model.predict_each(strangers.take(strangers.clicked))
        assert found.auc == pytest.approx(np.mean([roc_auc_score(outcome, line) for line in each]), abs=1e-6)
        assert found.nll == pytest.approx(np.mean([log_loss(outcome, line) for line in each]), rel=1e-5)
        assert (found.rows, found.positives) == (len(outcome), int(outcome.sum()))

    def test_clicks_follow_from_the_position_and_are_judged_out_of_fold(self, propensity, known):
        found = us.field_importance(propensity, known)
        assert found.outcome == "click"
        assert found.fields[0].field == "position"
        assert found.fields[0].auc.low > 0
        assert found.auc == pytest.approx(propensity.diagnose()["calibrated"]["auc"], abs=0.01)

    def test_the_same_seed_gives_the_same_and_another_does_not(self, model, strangers):
        one, two, other = (us.field_importance(model, strangers, repetitions=1, seed=s) for s in (0, 0, 1))
        assert one == two
        assert of(one, "country") != of(other, "country")

    def test_a_sample_of_rows_tells_about_the_same(self, propensity, known):
        every, some = (
            us.field_importance(propensity, known, most_rows=most, repetitions=1) for most in (10**6, 1500)
        )
        assert (every.rows, some.rows) == (len(known), 1500)
        assert (every.is_sample, some.is_sample) == (False, True)
        a, b = of(every, "position").auc, of(some, "position").auc
        assert b.low < a.mean < b.high
        assert some.nll == pytest.approx(every.nll, rel=0.1)

    def test_rows_by_seed_and_weights_are_those_of_the_evaluation(self, model, known):
        rows = model.validation_rows(known)
        weight = np.where(known.click == 1, 2.0 + (np.arange(len(known)) % 3), 1.0)
        found = us.field_importance(model, known, rows=rows, weight=weight, repetitions=1)
        each = [
            roc_auc_score(
                known.conversion[line],
                model.predict_each(known.take(line))[place],
                sample_weight=weight[line],
            )
            for place, line in enumerate(rows)
        ]
        assert found.auc == pytest.approx(np.mean(each), abs=1e-6)

    def test_rows_of_members_are_asked_of_each_and_rows_of_a_seed_of_the_ensemble(self, known):
        model = us.Naive(learner=us.MLP(layers=(8,)), epochs=1, members=2, validation_by="pair").fit(
            known, seeds=2
        )
        rows = model.validation_rows(known)
        assert len(rows) == 4
        lines = model.predict_lines_each(known)
        each = [roc_auc_score(known.conversion[own], lines[k][own]) for k, own in enumerate(rows)]
        found = us.field_importance(model, known, rows=rows, repetitions=1)
        assert found.auc == pytest.approx(np.mean(each), abs=1e-6)
        some = known.clicked[:600]
        whole = [roc_auc_score(known.conversion[some], line[some]) for line in model.predict_each(known)]
        for given in (some, some[None], np.stack([some, some])):
            found = us.field_importance(model, known, rows=given, repetitions=1)
            assert found.auc == pytest.approx(np.mean(whole), abs=1e-6)
            assert all(each.predicted <= 1 for each in us.field_calibration(model, known, rows=given))
        with pytest.raises(ParameterError, match="3 lines of rows do not fit 2 seeds"):
            us.field_importance(model, known, rows=rows[:3])

    def test_too_few_rows_tell_nothing(self, model, strangers):
        found = us.field_importance(model, strangers.take(strangers.clicked[:12]))
        assert found.fields == ()
        assert math.isnan(found.auc)

    def test_in_the_matrix_unclicked_pairs_are_drawn(self):
        data = us.load("synthetic", n_users=60, n_items=40, density=0.1, features="auto")
        p = us.Propensity(learner=us.MLP(layers=(16,)), crossfit=2, epochs=8, learning_rate=0.01).fit(
            data.train
        )
        found = us.field_importance(p, data.train, repetitions=1)
        figures = p.diagnose()["calibrated"]
        assert found.auc == pytest.approx(figures["auc"], abs=0.03)
        assert found.nll == pytest.approx(figures["nll"], rel=0.1)

    @pytest.mark.parametrize("wrong", [{"repetitions": 0}, {"most_rows": 5}])
    def test_wrong_numbers_are_refused(self, model, strangers, wrong):
        with pytest.raises(ParameterError, match="at least 1 repetition and 20 rows"):
            us.field_importance(model, strangers, **wrong)

    def test_what_is_no_model_is_refused(self, strangers):
        with pytest.raises(ParameterError, match="str is no trained model"):
            us.field_importance("dcn", strangers)


class TestInfluences:
    def test_values_are_those_of_scikit_learn_and_influences_those_of_weights(self):
        random = np.random.default_rng(0)
        score = random.integers(1, 20, size=300) / 20
        outcome = (random.random(300) < score).astype(float)
        weight = random.random(300) + 0.5
        step = 1e-6
        for function, oracle in ((auc_and_influence, roc_auc_score), (nll_and_influence, log_loss)):
            value, influence = function(score, outcome, weight)
            assert value == pytest.approx(oracle(outcome, score, sample_weight=weight))
            assert influence.sum() == pytest.approx(0, abs=1e-9)
            more = weight * (1 + step * (np.arange(300) == 7))
            slope = (function(score, outcome, more)[0] - value) / step
            assert influence[7] == pytest.approx(slope, abs=1e-6)


class TestCalibrationByValue:
    def test_values_for_which_a_model_is_off_come_first(self, known):
        """A model that was trained with half of one country's conversions wiped out predicts half of them."""
        frame = part(table(ROWS), known=True)
        wiped = np.asarray(frame["bought"]) * (
            (np.asarray(frame["country"].fill_null("")) != "de") | (np.arange(len(frame)) % 2 == 0)
        )
        place = frame.column_names.index("bought")
        model = us.Naive(learner=DCN, **QUICK).fit(log_of(frame.set_column(place, "bought", pa.array(wiped))))
        worst, *rest = us.field_calibration(model, known)
        assert (worst.field, worst.value, worst.off) == ("country", "de", True)
        assert worst.level < 0.75
        assert worst.low < worst.level < worst.high < 1
        assert worst.excess == pytest.approx(worst.rows * abs(worst.predicted - worst.actual))
        off = [each.off for each in rest if each.q_value is not None]
        assert off == sorted(off, reverse=True)

    def test_values_that_are_off_by_a_few_per_cent_beyond_chance_are_not_marked(self, propensity, known):
        """Reports had 109 red marks at 1.01."""
        many = known.take(np.arange(60 * len(known)) % len(known))
        drawn = np.random.default_rng(3).random(len(many)) < 0.95 * propensity.predict(many)
        found = us.field_calibration(propensity, replace(many, click=drawn.astype(np.int8), conversion=None))
        assert any(each.q_value is not None and each.q_value < 1e-6 for each in found)
        assert not any(each.off for each in found if 0.95 < each.level < 1.1)

    def test_an_honest_propensity_is_off_for_no_value(self, propensity, known):
        """Clicks that are drawn from the propensities make these honest."""
        drawn = np.random.default_rng(3).random(len(known)) < propensity.predict(known)
        found = us.field_calibration(propensity, replace(known, click=drawn.astype(np.int8), conversion=None))
        assert {each.field for each in found} == {"country", "price", "tags", "position", "noise"}
        assert not any(each.off for each in found)
        rows = {name: sum(each.rows for each in found if each.field == name) for name in ("country", "noise")}
        assert set(rows.values()) == {len(known)}
        assert "(missing)" in {each.value for each in found if each.field == "country"}
        assert len([each for each in found if each.field == "noise"]) == 10

    def test_the_rate_of_a_value_is_its_own(self, propensity, known):
        found = {(each.field, each.value): each for each in us.field_calibration(propensity, known)}
        mine = np.asarray(part(table(ROWS), known=True)["position"]) == 3
        assert found["position", "3"].rows == mine.sum()
        assert found["position", "3"].actual == pytest.approx(known.click[mine].mean())
        assert found["position", "3"].predicted == pytest.approx(propensity.predict(known)[mine].mean())

    def test_without_features_there_are_no_values(self, known):
        log = known.with_features(None)
        model = us.Naive(learner=us.MF(dim=2), epochs=1).fit(log)
        assert us.field_calibration(model, log) == []
