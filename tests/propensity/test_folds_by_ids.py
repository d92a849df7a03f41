"""Out of fold means out of fold: the model that never saw a pair is found by the pair's ids alone."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB

import unskew as us
from unskew.io.vocabulary import Vocabulary

ROWS = 1500


@pytest.fixture(scope="module", params=["numbers", "text"])
def rows(request):
    """Pure noise: clicks that depend on nothing, some pairs several times."""
    random = np.random.default_rng(0)
    user, item = random.integers(7, 67, size=ROWS), random.integers(25, size=ROWS)
    if request.param == "text":
        user, item = np.char.add("u", user.astype(str)), np.char.add("i", item.astype(str))
    return {"user": user, "item": item, "click": (random.random(ROWS) < 0.35).astype(int)}


SPACES = ("matrix", "impressions")


def log_of(rows, space, **options):
    if space == "matrix":
        rows = {name: values[rows["click"] == 1] for name, values in rows.items()}
        options |= {"duplicates": "max"}
    conversion = {"conversion": np.arange(len(rows["user"])) % 2} if space == "matrix" else {}
    return us.Log.from_arrays(**rows, **conversion, space=space, **options)


def network(**options):
    return us.Propensity(
        backbone=us.MF(dim=8), crossfit=3, epochs=15, patience=None, learning_rate=0.05, **options
    )


KINDS = {
    "network": network,
    "ensemble": lambda **options: network(uncertainty=us.DeepEnsemble(members=2), **options),
    "popularity": lambda **options: us.PopularityPropensity(crossfit=3, **options),
    "logistic": lambda **options: us.LogisticPropensity(crossfit=3, penalty=0.1, **options),
    "sklearn": lambda **options: us.SklearnPropensity(estimator=GaussianNB(), crossfit=3, **options),
    "naive_bayes": lambda **options: us.NaiveBayesPropensity(crossfit=3, **options),
}
PLACES = [
    (kind, space) for kind in KINDS for space in SPACES if (kind, space) != ("naive_bayes", "impressions")
]


@pytest.fixture(scope="module", params=PLACES, ids="-".join)
def fitted(request, rows):
    """A fitted propensity, its log, and the space."""
    kind, space = request.param
    log = log_of(rows, space)
    sample = {}
    if kind == "naive_bayes":
        ids = np.arange(len(log.users)), np.arange(len(log.users)) % len(log.items)
        shown = (log.users.ids[ids[0]], log.items.ids[ids[1]])
        sample["random_sample"] = us.Log.from_arrays(
            user=shown[0], item=shown[1], conversion=ids[0] % 2, users=log.users, items=log.items
        )
    return KINDS[kind]().fit(log, seeds=2, **sample), log, space


def by_ids(propensity, log):
    """``{(user id, item id, conversion): propensities}`` of a log's rows."""
    conversion = np.zeros(len(log)) if log.conversion is None else log.conversion
    keys = zip(map(str, log.users.ids[log.user]), map(str, log.items.ids[log.item]), conversion, strict=True)
    return dict(zip(keys, propensity.predict_each(log).T.tolist(), strict=True))


def same_numbers(propensity, log, other):
    expected, found = by_ids(propensity, log), by_ids(propensity, other)
    assert len(found) > 0.3 * len(expected)
    for key, value in found.items():
        assert value == pytest.approx(expected[key], rel=1e-5), key


class TestTheSameNumbersFor:
    def test_a_copy(self, fitted, rows):
        propensity, log, space = fitted
        same_numbers(propensity, log, log_of({name: np.array(each) for name, each in rows.items()}, space))

    def test_a_subset_with_vocabularies_of_its_own(self, fitted, rows):
        propensity, log, space = fitted
        if log.conversion is None:
            part = log_of({name: each[::2] for name, each in rows.items()}, space)
        else:
            half = log.take(np.arange(len(log)) % 2 == 0)
            part = us.Log.from_arrays(
                user=log.users.ids[half.user], item=log.items.ids[half.item], conversion=half.conversion
            )
        same_numbers(propensity, log, part)

    def test_a_subset_of_the_log_itself(self, fitted):
        propensity, log, _ = fitted
        same_numbers(propensity, log, log.take(np.arange(len(log)) % 3 == 0))

    def test_another_order_of_rows_and_other_codes(self, fitted):
        propensity, log, space = fitted
        order = np.random.default_rng(1).permutation(len(log))
        turned = us.Log.from_arrays(
            user=log.users.ids[log.user][order],
            item=log.items.ids[log.item][order],
            click=log.click[order],
            conversion=None if log.conversion is None else log.conversion[order],
            space=space,
            items=Vocabulary(ids=np.unique(np.append(log.items.ids, log.items.ids[-1:])), name="item"),
        )
        same_numbers(propensity, log, turned)

    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_a_file_that_is_read_again(self, fitted, kind, tmp_path):
        propensity, log, space = fitted
        told = {
            "user": log.users.ids[log.user].tolist(),
            "item": log.items.ids[log.item].tolist(),
            "click": log.click.astype(int),
        }
        if log.conversion is not None:
            told["conversion"] = log.conversion.astype(int)
        frame, path = pytest.importorskip("polars").DataFrame(told), tmp_path / f"log.{kind}"
        (frame.write_csv if kind == "csv" else frame.write_parquet)(path)
        columns = {name: name for name in told}
        same_numbers(propensity, log, us.read_log(path, **columns, space=space))

    def test_all_rows_of_a_pair(self, fitted):
        propensity, log, _ = fitted
        seen = {}
        conversion = np.zeros(len(log)) if log.conversion is None else log.conversion
        for user, item, r, p in zip(
            log.user, log.item, conversion, propensity.predict_each(log).T, strict=True
        ):
            np.testing.assert_allclose(seen.setdefault((user, item, r), p), p, rtol=1e-5)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "naive_bayes"])
def test_pairs_of_ids_have_the_numbers_of_their_rows(kind, space, rows):
    log = log_of(rows, space)
    propensity = KINDS[kind]().fit(log)
    pairs = propensity.predict_pairs_each(log.users.ids[log.user], log.items.ids[log.item])
    np.testing.assert_allclose(pairs, propensity.predict_each(log), rtol=1e-5)


@pytest.mark.parametrize("fold_by", ["cell", "user", "item"])
@pytest.mark.parametrize("space", SPACES)
def test_a_propensity_that_was_saved_and_loaded_has_the_same_numbers(space, fold_by, rows, tmp_path):
    log = log_of(rows, space)
    propensity = network(fold_by=fold_by).set_params(epochs=3).fit(log, seeds=2)
    propensity.save(tmp_path / "p")
    loaded = us.load_propensity(tmp_path / "p")
    again = log.take(np.arange(len(log)))
    np.testing.assert_array_equal(loaded.predict_each(again), propensity.predict_each(log))
    loaded.save(tmp_path / "q")
    np.testing.assert_array_equal(us.load_propensity(tmp_path / "q").predict(log), propensity.predict(log))


def test_noise_is_noise_for_every_copy_of_the_log_and_known_by_heart_on_average(rows):
    """Before folds were by ids, an equal log had the average of all folds: clicks known by heart."""
    log = log_of(rows, "impressions")
    propensity = network(calibrator=None).fit(log)
    for given in (log, log.take(np.arange(len(log))), log_of(rows, "impressions")):
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
    by_number = us.LogisticPropensity(**options).fit(numbers)
    by_text = us.LogisticPropensity(**options).fit(text)
    np.testing.assert_allclose(by_text.predict(numbers), by_text.predict(text), rtol=1e-12)
    # The same folds, and so the same models but for the order in which their sums are taken.
    np.testing.assert_allclose(by_number.predict(numbers), by_text.predict(text), rtol=1e-2)


def test_a_fit_of_another_order_has_the_same_folds(rows):
    log = log_of(rows, "impressions")
    order = np.random.default_rng(4).permutation(len(log))
    turned = log_of({name: each[order] for name, each in rows.items()}, "impressions")
    for make in (KINDS["popularity"], KINDS["logistic"]):
        first, second = make(calibrator=None).fit(log), make(calibrator=None).fit(turned)
        np.testing.assert_allclose(second.predict(log), first.predict(log), rtol=1e-2)
