"""Conversion models and propensities that read features: from a table to a prediction for somebody new."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

import unskew as us
from contracts.feature_world import FEATURES, log_of, part, table
from unskew.base.errors import DataError, ParameterError

DCN = us.DCN(layers=(16,), crosses=1)
QUICK = {"epochs": 12, "learning_rate": 0.01}


@pytest.fixture(scope="module")
def known():
    return log_of(part(table(), known=True))


@pytest.fixture(scope="module")
def strangers():
    return log_of(part(table(), known=False))


@pytest.fixture(scope="module")
def propensity(known):
    return us.Propensity(learner=DCN, crossfit=2, **QUICK).fit(known, seeds=2)


@pytest.fixture(scope="module")
def model(known, propensity):
    return us.IPS(learner=DCN, **QUICK).fit(known, propensity=propensity, seeds=2)


def test_somebody_new_is_ranked_by_what_is_known_of_them(model, strangers):
    frame = part(table(), known=False)
    clicked = np.asarray(frame["click"]) == 1
    outcome = np.asarray(frame["bought"])[clicked]
    each = model.predict_each(strangers.take(clicked))
    assert each.shape == (2, int(clicked.sum()))
    ours = roc_auc_score(outcome, each.mean(axis=0))
    rates = part(table(), known=True).to_pandas()
    rates = rates[rates.click == 1].groupby("item").bought.mean()
    popularity = frame.to_pandas().item.map(rates).fillna(rates.mean())[clicked]
    assert ours > roc_auc_score(outcome, popularity) + 0.05


def test_what_is_unseen_is_an_error_or_nan_if_one_asks(model, strangers):
    with pytest.raises(DataError, match="was not seen in training"):
        model.predict_each(strangers, unseen="error")
    assert np.isnan(model.predict_each(strangers, unseen="nan")).all()
    with pytest.raises(ParameterError, match="unseen='average' is for models that read ids alone"):
        model.predict_each(strangers, unseen="average")


def test_the_propensity_reads_the_position_and_serves_somebody_new(propensity, strangers):
    p = propensity.predict(strangers)
    click = strangers.click
    assert roc_auc_score(click, p) > 0.6
    assert p.mean() == pytest.approx(click.mean(), rel=0.15)
    assert propensity.diagnose()["calibrated"]["auc"] > 0.6


def test_a_frame_a_log_and_another_order_give_the_same(model, propensity, strangers):
    frame = part(table(), known=False)
    for fitted in (model, propensity):
        each = fitted.predict_each(strangers)
        np.testing.assert_array_equal(fitted.predict_frame_each(frame), each)
        order = np.random.default_rng(0).permutation(len(frame))
        shuffled = frame.take(pa.array(order)).drop_columns(["click", "bought"])
        np.testing.assert_allclose(fitted.predict_frame_each(shuffled), each[:, order], rtol=1e-6)
        np.testing.assert_allclose(
            fitted.predict_frame_each(frame.to_pandas(), unseen="other"), each, rtol=1e-6
        )


@pytest.mark.parametrize("name", ["naive", "snips", "dr", "mrdr", "esmm", "escm2-ips", "multi-dr", "kb-ips"])
def test_every_family_of_methods_reads_features(name, known, propensity, strangers):
    from unskew.debias import make_method

    learner = us.MMoE(experts=2, expert_layers=(8,), layers=(8,))
    quick = make_method(name, learner=learner, epochs=1)
    given = propensity if quick.needs_propensity else None
    model = quick.fit(known, propensity=given)
    of_one_item = model.predict_each(strangers)[0, strangers.item == strangers.item[0]]
    assert len(np.unique(of_one_item)) > 1, "nobody is known, so only features tell one from another"


def test_in_the_matrix_features_of_users_and_items_are_looked_up(known):
    data = us.load("synthetic", n_users=60, n_items=40, density=0.2, features="auto")
    assert len(data.train.schema.features) == 20
    propensity = us.Propensity(learner=us.MLP(layers=(16,)), crossfit=2, epochs=3).fit(data.train)
    assert propensity.predict_matrix_each().shape == (1, 60, 40)
    model = us.DR(learner=us.MLP(layers=(16,)), epochs=2).fit(data.train, propensity=propensity)
    each = model.predict_each(data.test)
    pairs = data.test.users.ids[data.test.user], data.test.items.ids[data.test.item]
    np.testing.assert_allclose(model.predict_pairs_each(*pairs), each, rtol=1e-6)


def test_a_log_without_the_features_of_the_model_is_refused(model):
    with pytest.raises(DataError, match="reads 'position' of each row"):
        model.predict_each(log_of(part(table(), known=False), features=None))
    with pytest.raises(DataError, match="column 'tags' is missing, which the model reads"):
        model.predict_each(
            log_of(part(table(), known=False), features=[each for each in FEATURES if each.name != "tags"])
        )


@pytest.mark.parametrize("learner", [us.DCN, us.DeepFM, us.MLP, us.MMoE])
def test_predictions_start_at_the_rate_of_the_weighted_clicks(known, learner):
    """Else the level is learned through the random order that embeddings start with."""
    rare = np.where(np.arange(len(known)) % 5 == 0, known.conversion, np.minimum(known.conversion, 0))
    log = replace(known, conversion=rare.astype(np.float32))
    p = np.where(np.nan_to_num(rare) == 1, 0.9, 0.1)
    still = {"epochs": 1, "learning_rate": 1e-9, "validation_share": 0.0}
    naive = us.Naive(learner=learner(), **still).fit(log, seeds=3)
    weighted = us.IPS(learner=learner(), p_min=0.01, **still).fit(log, propensity=p, seeds=3)
    outcome, weight = rare[log.clicked], 1 / p[log.clicked]
    for model, rate in ((naive, outcome.mean()), (weighted, (outcome * weight).sum() / weight.sum())):
        each = model.predict_each(log).mean(axis=1)
        assert np.abs(np.log(each / rate)).max() < 0.4, "one half would be 1.6 and more away"
        assert rate < 0.1
