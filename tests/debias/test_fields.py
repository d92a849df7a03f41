"""Propensities and conversion models read fields of their own: a position belongs to the first alone."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from contracts.feature_world import log_of, table
from unskew.errors import ParameterError


@pytest.fixture(scope="module")
def fitted():
    log = log_of(table())
    propensity = us.Propensity(backbone=us.MLP(), crossfit=2, epochs=2, fields=("position", "country"))
    propensity.fit(log)
    model = us.IPS(backbone=us.MLP(), epochs=2, fields=("-position",)).fit(log, propensity=propensity)
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


def test_what_is_not_read_changes_nothing(fitted):
    log, propensity, model = fitted
    moved = table().set_column(7, "position", [(table()["position"].to_numpy() + 1) % 5])
    other = log_of(moved)
    assert (model.predict(other) == model.predict(log)).all()
    assert (propensity.predict(other) != propensity.predict(log)).any()
    prices = table().set_column(5, "price", [np.ones(len(table()))])
    assert (propensity.predict(log_of(prices)) == propensity.predict(log)).all()


def test_a_saved_one_reads_the_same(fitted, tmp_path):
    log, propensity, model = fitted
    propensity.save(tmp_path / "p")
    model.save(tmp_path / "m")
    again = us.load_model(tmp_path / "m")
    assert again.fields == ("-position",)
    assert names(again) == names(model)
    assert (again.predict_each(log) == model.predict_each(log)).all()
    loaded = us.load_propensity(tmp_path / "p")
    assert names(loaded) == names(propensity)
    assert (loaded.predict(log) == propensity.predict(log)).all()


def test_no_fields_are_the_ids_and_somebody_new_still_has_an_answer(fitted):
    log = fitted[0]
    model = us.Naive(backbone=us.MLP(), epochs=1, fields=()).fit(log)
    new = table().slice(0, 3).set_column(0, "user", [["new", "new", "u1"]])
    assert np.isfinite(model.predict_frame_each(new)).all()
    assert names(model) == []


@pytest.mark.parametrize(
    "make", [lambda fields: us.Naive(fields=fields), lambda fields: us.Propensity(fields=fields)]
)
def test_fields_of_a_network_of_ids_are_refused(make):
    with pytest.raises(ParameterError, match="neumf reads the ids alone"):
        make(("price",)).fit(log_of(table()))


def test_an_unknown_field_is_refused_before_training():
    with pytest.raises(ParameterError, match="there is no feature 'colour'"):
        us.Naive(backbone=us.MLP(), fields=("colour",)).fit(log_of(table()))
