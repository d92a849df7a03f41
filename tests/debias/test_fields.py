"""Propensities and conversion models read fields of their own: a position belongs to the first alone."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from contracts.feature_world import log_of, table
from unskew.base.errors import ParameterError


@pytest.fixture(scope="module")
def fitted():
    log = log_of(table())
    propensity = us.Propensity(learner=us.MLP(), crossfit=2, epochs=2, fields=("position", "country"))
    propensity.fit(log)
    model = us.IPS(learner=us.MLP(), epochs=2, fields=("-position",)).fit(log, propensity=propensity)
    return log, propensity, model


def names(estimator):
    return [each.name for each in estimator.reader().encoders.schema.features]


def test_each_reads_its_own(fitted):
    _, propensity, model = fitted
    assert names(propensity) == ["country", "position"]
    assert names(model) == ["country", "price", "tags", "noise"]


def test_a_model_needs_no_column_that_it_does_not_read(fitted):
    log, propensity, model = fitted
    without = table().drop_columns(["position"])
    assert (model.predict_frame_each(without) == model.predict_each(log)).all()
    with pytest.raises(us.UnskewError, match="'position' is missing"):
        propensity.predict_frame_each(without)


def test_no_fields_are_the_ids_and_somebody_new_still_has_an_answer(fitted):
    log = fitted[0]
    model = us.Naive(learner=us.MLP(), epochs=1, fields=()).fit(log)
    new = table().slice(0, 3).set_column(0, "user", [["new", "new", "u1"]])
    assert np.isfinite(model.predict_frame_each(new)).all()
    assert names(model) == []


@pytest.mark.parametrize("kind", [us.Naive, us.Propensity, us.PopularityPropensity])
def test_fields_of_what_reads_ids_alone_are_refused(kind):
    with pytest.raises(ParameterError, match=r"fields are chosen, and .* reads (the ids alone|no features)"):
        kind(fields=("price",)).fit(log_of(table()))


def test_an_unknown_field_is_refused_before_training():
    with pytest.raises(ParameterError, match="there is no feature 'colour'"):
        us.Naive(learner=us.MLP(), fields=("colour",)).fit(log_of(table()))


def test_a_position_belongs_into_the_propensity_and_not_into_the_model():
    """Positions decide what is examined; nobody converts because of them. A model that reads them takes for
    preference what is the policy's order, and a propensity that does not takes for dislike what nobody saw.
    """
    world = {"n_rows": 40_000, "n_users": 1000, "n_items": 200, "position_bias": 1.5, "conversion_rate": 0.3}
    names = ["position", "device", "country", "age", "category", "brand", "price", "discount"]
    data = us.load("impressions", test_rows=10_000, features=names, **world)
    truth = {"click": data.row_truth["train"]["true_click"]}
    truth["conversion"] = data.row_truth["test"]["true_conversion"]

    def propensity(fields):
        short = {"epochs": 5, "learning_rate": 3e-3}
        return us.Propensity(learner=us.MLP(), crossfit=2, fields=fields, **short).fit(data.train)

    def model(fields, given):
        short = {"epochs": 12, "learning_rate": 3e-3, "batch_size": 512}
        return us.IPS(learner=us.MLP(), fields=fields, **short).fit(data.train, propensity=given, seeds=2)

    def error(fitted):
        return np.sqrt(np.mean((fitted.predict(data.test) - truth["conversion"]) ** 2))

    def auc(fitted):
        return us.evaluate(fitted, data.test)["auc"].mean()

    def level(fitted):
        return us.evaluate(fitted, data.test)["mean_over_rate"].mean()

    with_position, without = propensity(None), propensity(("-position",))
    off = [np.std(np.log(each.predict(data.train) / truth["click"])) for each in (with_position, without)]
    assert off[0] < 0.8 * off[1]
    right = model(("-position",), with_position)
    both = model(None, with_position)
    assert auc(right) > auc(both)
    assert error(right) < error(both)
    assert abs(level(right) - 1) < abs(level(model(("-position",), without)) - 1)
