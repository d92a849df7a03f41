"""Learners without a network: logistic regression, boosted trees, and their mean logit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

import unskew as us
from contracts.learner_contract import LearnerContract, log_loss, world
from unskew.base.errors import ParameterError
from unskew.learners.blend import Blend
from unskew.learners.linear import Linear
from unskew.learners.table import EncodedTable, Examples
from unskew.learners.target_encoding import FOLDS, Encoding
from unskew.learners.trees import Trees


class TestLinear(LearnerContract):
    def make(self) -> Any:
        return Linear()


class TestTrees(LearnerContract):
    def make(self) -> Any:
        return Trees(min_leaf=20)


class TestBlend(LearnerContract):
    def make(self) -> Any:
        return Blend(second=Trees(min_leaf=20))


def test_linear_is_the_logistic_regression_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    examples, _ = world()
    model = Linear(ridge=2.0, bins=0).fit(examples)
    rows = examples.rows
    one_hot = [np.eye(field.size)[codes[:, 0]] for field, codes in rows.coded if field.width == 1]
    bag = rows.coded[3].codes
    shares = sum(np.eye(6)[np.maximum(bag[:, slot], 0)] * (bag[:, slot] >= 0)[:, None] for slot in range(3))
    shares /= (bag >= 0).sum(axis=1, keepdims=True)
    price = (rows.numbers - rows.numbers.mean()) / rows.numbers.astype(float).std()
    design = np.hstack([*one_hot, shares, price])
    oracle = LogisticRegression(C=0.5, tol=1e-8, max_iter=2000).fit(design, examples.target)
    np.testing.assert_allclose(model.predict(rows), oracle.predict_proba(design)[:, 1], atol=0.003)


def test_the_ridge_is_chosen_on_held_out_rows():
    examples, _ = world(400)
    held_out = world(2000, seed=1)[0]
    chosen = Linear().fit(examples, validation=held_out)
    losses = [Linear(ridge=r).fit(examples, validation=held_out).validation_loss_ for r in (100.0, 0.3)]
    assert chosen.validation_loss_ <= min(losses) + 1e-4


def test_bins_fit_what_is_no_line():
    random = np.random.default_rng(0)
    examples, _ = world(6000)
    price = random.normal(size=(6000, 1)).astype(np.float32)
    truth = expit(2.0 * np.cos(2.0 * price[:, 0]))
    rows = EncodedTable(examples.rows.schema, examples.rows.codes, price, examples.rows.key)
    examples = Examples(rows, (random.random(6000) < truth).astype(float), np.ones(6000))
    binned, line = (log_loss(truth, Linear(bins=bins).fit(examples).predict(rows)) for bins in (16, 0))
    assert binned < line - 0.1


def test_an_encoding_of_training_counts_the_other_folds_alone():
    random = np.random.default_rng(0)
    code, fold = random.integers(7, size=300), random.integers(FOLDS, size=300)
    target, weight = random.random(300), random.uniform(0.5, 2.0, 300)
    encoding = Encoding.fit(code, 7, target, weight, fold)
    encoded = encoding.cross_fitted(code, fold, 0.4)
    for row in range(0, 300, 37):
        other = (code == code[row]) & (fold != fold[row])
        expected = (weight[other] @ target[other] + encoding.smoothing * 0.4) / (
            weight[other].sum() + encoding.smoothing
        )
        assert encoded[row] == pytest.approx(expected)
    assert encoding.known(np.array([-1]), 0.4) == pytest.approx([0.4])


def test_codes_that_differ_are_smoothed_less_than_codes_that_do_not():
    random = np.random.default_rng(0)
    code, fold, weight = (
        random.integers(200, size=20_000),
        random.integers(FOLDS, size=20_000),
        np.ones(20_000),
    )
    smoothing = [
        Encoding.fit(code, 200, (random.random(20_000) < p).astype(float), weight, fold).smoothing
        for p in (random.uniform(0.1, 0.5, 200)[code], 0.3)
    ]
    # σ²/τ² = .21 / (.4²/12) ≈ 15.
    assert smoothing[0] == pytest.approx(15.7, rel=0.35)
    assert smoothing[1] > 200


def test_ids_of_pure_noise_do_no_harm():
    random = np.random.default_rng(0)
    examples, _ = world(6000)
    noise = (random.random(6000) < 0.3).astype(float)
    codes = examples.rows.codes.copy()
    codes[:, 0] = random.integers(40, size=6000)
    rows = EncodedTable(
        examples.rows.schema,
        codes,
        examples.rows.numbers,
        random.integers(1 << 60, size=6000).astype(np.uint64),
    )
    examples, held_out = Examples(rows, noise, np.ones(6000)), np.arange(6000) % 5 == 0
    model = Trees().fit(examples.take(~held_out), validation=examples.take(held_out))
    assert model.validation_loss_ < log_loss(np.array([0.3]), np.array([0.3])) + 0.02


def test_pairs_are_encoded_where_they_interact_and_not_where_effects_add_up():
    (crossed, truth), (added, _) = world(20_000, interaction=1.0), world(20_000)
    names = [field.name for field, _ in crossed.rows.coded]
    with_pairs, without = Trees().fit(crossed), Trees(pairs=0).fit(crossed)
    found = [{names[pair.first], names[pair.second]} for pair in with_pairs.pairs_]
    assert {"city", "item"} in found
    assert not Trees().fit(added).pairs_
    loss = [log_loss(truth, model.predict(crossed.rows)) for model in (with_pairs, without)]
    assert loss[0] < loss[1]


def test_a_prediction_rises_in_what_it_may_only_rise_in():
    examples, _ = world(3000)
    model = Trees(increasing=("price",), min_leaf=10).fit(examples)
    one = examples.rows.take(np.zeros(50, dtype=int))
    prices = np.linspace(-1, 1, 50, dtype=np.float32)[:, None]
    predicted = model.predict(EncodedTable(one.schema, one.codes, prices, one.key))
    assert (np.diff(predicted) >= 0).all()
    assert predicted[-1] > predicted[0]


def test_a_blend_is_the_mean_logit():
    examples, held_out = world()[0], world(1000, seed=1)[0]
    parts = [learner.fit(examples, validation=held_out) for learner in (Linear(), Trees())]
    blend = Blend().fit(examples, validation=held_out)
    expected = expit(np.mean([logit(part.predict(held_out.rows)) for part in parts], axis=0))
    np.testing.assert_allclose(blend.predict(held_out.rows), expected, rtol=1e-12)
    assert blend.validation_loss_ < max(part.validation_loss_ for part in parts)


@pytest.mark.parametrize(
    "wrong",
    [
        Linear(ridge=-1.0),
        Linear(bins=-1),
        Trees(leaves=1),
        Trees(learning_rate=0.0),
        Trees(pairs=-1),
        Blend(first=Linear(ridge=-1.0)),
    ],
)
def test_wrong_parameters_are_one_line(wrong):
    with pytest.raises(ParameterError, match="To fix"):
        wrong.fit(world(100)[0])


def test_exported_trees_answer_as_predict_does_also_at_their_thresholds(tmp_path):
    pd, onnxruntime = map(pytest.importorskip, ("pandas", "onnxruntime"))
    from serve.conftest import raw_inputs

    random, rows = np.random.default_rng(0), 3000
    # Thresholds of a number with few values are half-way between two of them.
    shown = pd.DataFrame({name: random.integers(100, size=rows) / 8 for name in ("x", "y")})
    shown["user"], shown["item"] = random.integers(50, size=(2, rows))
    shown["click"] = random.random(rows) < 1 / (1 + np.exp(1 - shown.x / 6 * np.cos(shown.y)))
    shown["conversion"] = shown.click & (random.random(rows) < 0.5)
    log = us.read_log(shown, space="impressions", features=["x", "y"])
    p = us.Propensity(learner=us.Trees(max_trees=40), crossfit=None, calibrator=None).fit(log)
    us.export_onnx(p, tmp_path / "trees.onnx")
    asked = pd.DataFrame({name: random.integers(200, size=100_000) / 16 for name in ("x", "y")})
    asked["user"], asked["item"] = random.integers(50, size=(2, len(asked)))
    session = onnxruntime.InferenceSession(tmp_path / "trees.onnx", providers=["CPUExecutionProvider"])
    described = json.loads(session.get_modelmeta().custom_metadata_map["inputs"])
    (answer, *_) = session.run(None, raw_inputs(described, asked))
    expected = p.predict_frame_each(asked)[0]
    np.testing.assert_allclose(answer, expected, rtol=0, atol=1e-7)
    assert expected.std() > 0.05
