"""Every kind of propensity keeps the contract of all; what is a kind's own is tested beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB

import unskew as us
from contracts.propensity_contract import DATA, LOGS, PropensityContract, rows_in
from unskew.base.errors import UnskewError


def network(**options):
    return us.Propensity(
        **{"learner": us.MF(dim=4), "learning_rate": 0.03, "epochs": 10, "batch_size": 256, **options}
    )


class TestNetwork(PropensityContract):
    @classmethod
    def make(cls, **options):
        return network(**options)


class TestDeepEnsemble(PropensityContract):
    @classmethod
    def make(cls, **options):
        return network(uncertainty=us.DeepEnsemble(members=2), **options)


class TestTrees(PropensityContract):
    @classmethod
    def make(cls, **options):
        return us.Propensity(learner=us.Trees(max_trees=20), **options)


class TestBlend(PropensityContract):
    @classmethod
    def make(cls, **options):
        return us.Propensity(learner=us.Blend(second=us.Trees(max_trees=20)), **options)


class TestLinear(PropensityContract):
    @classmethod
    def make(cls, **options):
        return us.Propensity(learner=us.Linear(), **options)


class TestPopularity(PropensityContract):
    @classmethod
    def make(cls, **options):
        return us.PopularityPropensity(**options)


class TestNaiveBayes(PropensityContract):
    knows_pairs = False

    @pytest.fixture(scope="class")
    @classmethod
    def space(cls):
        return "matrix"

    @classmethod
    def make(cls, **options):
        return us.NaiveBayesPropensity(**options)

    @classmethod
    def fit(cls, propensity, log, **options):
        sample = DATA.test if log is DATA.train else log
        return propensity.fit(log, random_sample=sample, **options)


class TestPosition(PropensityContract):
    knows_pairs = False

    @pytest.fixture(scope="class")
    @classmethod
    def space(cls):
        return "impressions"

    @pytest.fixture(scope="class")
    @classmethod
    def log(cls, space):
        rows = len(LOGS[space])
        return replace(LOGS[space], columns={"position": np.random.default_rng(6).integers(3, size=rows)})

    @classmethod
    def make(cls, **options):
        return us.PositionPropensity(**options)

    def test_numbers_follow_from_ids(self, fitted, log):
        rows = np.random.default_rng(1).permutation(len(log))[::2]
        columns = {"position": log.columns["position"][rows]}
        other = us.Log.from_arrays(**rows_in(log, rows), space="impressions", columns=columns)
        np.testing.assert_allclose(fitted.predict_each(other), fitted.predict_each(log)[:, rows])


class TestClassifier(PropensityContract):
    @classmethod
    def make(cls, **options):
        return us.Propensity(learner=us.Classifier(estimator=GaussianNB()), **options)

    test_saved_and_loaded_it_is_the_same_to_the_last_bit = None

    def test_saving_is_refused_in_one_line_with_a_remedy(self, fitted, tmp_path):
        with pytest.raises(UnskewError, match=r"only a pickle could hold it.*To fix: save what"):
            fitted.save(tmp_path / "p")
        assert not (tmp_path / "p").exists()


def noise():
    """Clicks that depend on nothing, some pairs several times."""
    random = np.random.default_rng(0)
    user, item = random.integers(7, 67, size=1500), random.integers(25, size=1500)
    return {"user": user, "item": item, "click": (random.random(1500) < 0.35).astype(int)}


def test_noise_is_noise_for_every_copy_of_the_log_and_known_by_heart_on_average():
    """Before folds were by ids, an equal log had the average of all folds: clicks known by heart."""
    rows = noise()
    log = us.Log.from_arrays(**rows, space="impressions")
    propensity = network(
        learner=us.MF(dim=8), crossfit=3, epochs=15, patience=None, learning_rate=0.05, calibrator=None
    ).fit(log)
    for given in (log, log.take(np.arange(len(log))), us.Log.from_arrays(**rows, space="impressions")):
        assert roc_auc_score(given.click, propensity.predict(given)) < 0.55
    assert roc_auc_score(log.click, propensity.predict(log, average=True)) > 0.8
    pairs = propensity.predict_pairs_each(rows["user"], rows["item"], average=True)
    np.testing.assert_allclose(pairs[0], propensity.predict(log, average=True), rtol=1e-5)


def test_ids_that_a_csv_file_gives_as_text_share_the_folds_of_numbers(tmp_path):
    random = np.random.default_rng(3)
    user, item = random.integers(40, size=600), random.integers(30, size=600)
    click = (random.random(600) < 0.4).astype(int)
    numbers = us.Log.from_arrays(user=user, item=item, click=click, space="impressions")
    text = us.Log.from_arrays(user=user.astype(str), item=item.astype(str), click=click, space="impressions")
    options = {"crossfit": 3, "calibrator": None}
    by_number = us.Propensity(learner=us.Linear(), **options).fit(numbers)
    by_text = us.Propensity(learner=us.Linear(), **options).fit(text)
    np.testing.assert_allclose(by_text.predict(numbers), by_text.predict(text), rtol=1e-12)
    # The same folds, and so the same models but for the order in which their sums are taken.
    np.testing.assert_allclose(by_number.predict(numbers), by_text.predict(text), rtol=1e-2)


def test_a_fit_of_another_order_has_the_same_folds():
    rows = noise()
    order = np.random.default_rng(4).permutation(len(rows["user"]))
    log = us.Log.from_arrays(**rows, space="impressions")
    turned = us.Log.from_arrays(**{name: each[order] for name, each in rows.items()}, space="impressions")
    options = {"crossfit": 3, "calibrator": None}
    for make in (us.PopularityPropensity, lambda **k: us.Propensity(learner=us.Linear(), **k)):
        first, second = (make(**options).fit(each) for each in (log, turned))
        np.testing.assert_allclose(second.predict(log), first.predict(log), rtol=1e-2)
