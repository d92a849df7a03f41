"""Propensities without a network: folds and face of the networks', and each model against its formula."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

import unskew as us
from unskew.errors import DataError, NotFittedError, ParameterError
from unskew.propensity import logistic
from unskew.propensity.design import OUT, STOP

SEEDS = (3, 8)
FOLDS = 3


@pytest.fixture(scope="module")
def data():
    return us.load("synthetic", n_users=80, n_items=60, density=0.12, seed=1)


@pytest.fixture(scope="module")
def log(data):
    return data.train


@pytest.fixture(scope="module")
def impressions():
    random = np.random.default_rng(0)
    user, item = random.integers(50, size=4000), random.integers(20, size=4000)
    click = (random.random(4000) < 0.05 + 0.4 * (user < 20)).astype(int)
    return us.Log.from_arrays(user=user, item=item, click=click, space="impressions")


KINDS = {
    "popularity": lambda **options: us.PopularityPropensity(**options),
    "logistic": lambda **options: us.LogisticPropensity(**options),
    "sklearn": lambda **options: us.SklearnPropensity(estimator=GaussianNB(), **options),
}


@pytest.fixture(scope="module", params=KINDS)
def crossfitted(request, log):
    return KINDS[request.param](crossfit=FOLDS).fit(log, seeds=SEEDS)


def clicks_of(log):
    clicks = np.zeros(log.population_size)
    clicks[log.cell[log.clicked]] = 1
    return clicks


def folds_of(propensity, seed):
    return folds_of_cells(propensity, seed, np.arange(propensity.cells_.size))


def folds_of_cells(propensity, seed, cells):
    user, item = np.divmod(cells, len(propensity.items_))
    return propensity.cells_.fold(seed, us.propensity.cells.Pairs(user, item))


class TestEveryKind:
    def test_holds_out_the_cells_that_a_network_with_the_same_seed_would(self, crossfitted, log):
        network = us.Propensity(backbone=us.MF(dim=2), crossfit=FOLDS, epochs=1).fit(log, seeds=SEEDS)
        expected = network.fold_of_pairs_each(*np.divmod(np.arange(log.population_size), log.n_items))
        for seed in range(len(SEEDS)):
            np.testing.assert_array_equal(folds_of(crossfitted, seed), expected[seed])

    def test_a_cell_is_scored_by_the_model_and_the_calibrator_that_hold_it_out(self, crossfitted, log):
        pairs = np.divmod(np.arange(log.population_size), log.n_items)
        raw = crossfitted.predict_matrix_each(calibrated=False).reshape(len(SEEDS), -1)
        mapped = crossfitted.predict_matrix_each().reshape(len(SEEDS), -1)
        for seed in range(len(SEEDS)):
            fold = folds_of(crossfitted, seed)
            for k in range(FOLDS):
                number, mine = seed * FOLDS + k, fold == k
                own = crossfitted.scorers_[number](us.propensity.cells.Pairs(pairs[0][mine], pairs[1][mine]))
                np.testing.assert_allclose(raw[seed, mine], own, rtol=1e-12)
                np.testing.assert_allclose(mapped[seed, mine], crossfitted.calibrators_[number].predict(own))

    def test_the_calibrator_of_a_fold_is_fitted_on_the_other_folds(self, crossfitted, log):
        raw = crossfitted.predict_matrix_each(calibrated=False).reshape(len(SEEDS), -1)
        click, grid = clicks_of(log), np.linspace(0.02, 0.5, 20)
        for seed in range(len(SEEDS)):
            fold = folds_of(crossfitted, seed)
            for k in range(FOLDS):
                expected = us.Platt().fit(raw[seed, fold != k], click[fold != k]).predict(grid)
                found = crossfitted.calibrators_[seed * FOLDS + k].predict(grid)
                np.testing.assert_allclose(found, expected, rtol=2e-3)

    def test_all_cells_are_judged_out_of_fold(self, crossfitted, log):
        for calibrated in (False, True):
            sketches = crossfitted.held_out_sketches(calibrated=calibrated)
            assert [sketch.rows for sketch in sketches] == [log.population_size] * len(SEEDS)
            assert [sketch.positives for sketch in sketches] == [log.n_clicks] * len(SEEDS)
            matrix = crossfitted.predict_matrix_each(calibrated=calibrated)
            for sketch, line in zip(sketches, matrix, strict=True):
                assert sketch.mean_score == pytest.approx(line.mean(), rel=1e-9)

    def test_rows_of_a_log_get_the_propensities_of_their_cells(self, crossfitted, log):
        matrix = crossfitted.predict_matrix_each()
        np.testing.assert_allclose(crossfitted.predict_each(log), matrix[:, log.user, log.item])
        np.testing.assert_allclose(crossfitted.predict(log), matrix[:, log.user, log.item].mean(0))
        some = us.Log.from_arrays(user=[5, 7], item=[3, 50], click=[1, 0])
        np.testing.assert_allclose(crossfitted.predict_each(some), matrix[:, [5, 7], [3, 50]])
        by_id = crossfitted.predict_pairs_each([5, 999], [3, 50], unseen="nan")
        np.testing.assert_allclose(by_id, np.stack([matrix[:, 5, 3], [np.nan] * 2], axis=1))

    def test_a_seed_gives_the_same_alone_and_beside_others(self, crossfitted, log):
        alone = clone(crossfitted).fit(log, seeds=[SEEDS[1]])
        np.testing.assert_allclose(alone.predict_each(log)[0], crossfitted.predict_each(log)[1], rtol=1e-12)

    def test_figures_stand_beside_each_other_and_calibration_keeps_the_base_rate(self, crossfitted):
        figures = crossfitted.diagnose()
        assert figures["calibrated"]["mean_over_base_rate"] == pytest.approx(1, abs=0.01)
        assert figures["calibrated"]["nll"] <= figures["raw"]["nll"] + 1e-3
        assert figures["calibrated"]["auc"] > 0.55
        assert len(figures["raw"]["per_seed"]["ece"]) == len(SEEDS)

    def test_debiasers_take_it_with_seeds_paired(self, crossfitted, log):
        for method in (us.IPS, us.IPSV2):
            model = method(backbone=us.MF(dim=2), epochs=1).fit(log, propensity=crossfitted, seeds=SEEDS)
            assert np.isfinite(model.predict_each(log)).all()
        weights = 1 / crossfitted.predict_each(log)[:, log.clicked]
        check = [each.weight_check for each in model.clipping_]
        assert check == pytest.approx(list(weights.sum(axis=1) / log.population_size), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
class TestSplitsAndSpaces:
    def test_without_folds_a_tenth_calibrates_and_a_tenth_judges(self, kind, log):
        propensity = KINDS[kind](crossfit=None).fit(log)
        cell, click = np.arange(log.population_size), clicks_of(log)
        role = propensity.cells_.role(0, cell)
        (sketch,) = propensity.held_out_sketches(calibrated=False)
        assert sketch.rows == (role == OUT).sum() == pytest.approx(0.1 * log.population_size, rel=0.15)
        raw = propensity.predict_matrix_each(calibrated=False).ravel()
        grid = np.linspace(0.02, 0.5, 20)
        expected = us.Platt().fit(raw[role == STOP], click[role == STOP]).predict(grid)
        np.testing.assert_allclose(propensity.calibrators_[0].predict(grid), expected, rtol=2e-3)

    def test_impressions_are_out_of_fold_and_averaged_on_request(self, kind, impressions):
        propensity = KINDS[kind](crossfit=FOLDS, calibrator=None).fit(impressions)
        own = propensity.predict(impressions)
        assert roc_auc_score(impressions.click, own) > 0.7
        (sketch,) = propensity.held_out_sketches(calibrated=False)
        assert sketch.mean_score == pytest.approx(own.mean(), rel=1e-9)
        pairs = us.propensity.cells.Pairs(impressions.user.astype(int), impressions.item.astype(int))
        each = np.stack([score(pairs) for score in propensity.scorers_])
        fold = propensity.cells_.fold(0, pairs)
        np.testing.assert_allclose(own, each[fold, np.arange(len(fold))], rtol=1e-12)
        averaged = propensity.predict(impressions, average=True)
        np.testing.assert_allclose(averaged, each.mean(axis=0), rtol=1e-12)
        with pytest.raises(ParameterError, match="only the space 'matrix'"):
            propensity.predict_matrix_each()

    def test_folds_by_user_hold_users_out_together(self, kind, log):
        propensity = KINDS[kind](crossfit=2, fold_by="user").fit(log)
        fold = folds_of(propensity, 0).reshape(log.n_users, log.n_items)
        assert (fold == fold[:, :1]).all()
        assert np.isfinite(propensity.predict_matrix_each()).all()

    def test_errors_say_what_to_do(self, kind, log):
        with pytest.raises(NotFittedError, match="call fit first"):
            KINDS[kind]().predict(log)
        with pytest.raises(ParameterError, match="fold_by must be 'cell', 'user' or 'item'"):
            KINDS[kind](fold_by="week").fit(log)
        few = us.Log.from_arrays(user=[0, 1, 2], item=[0, 1, 2])
        with pytest.raises(DataError, match=r"too few clicks \(3\).*fewer folds"):
            KINDS[kind](crossfit=5).fit(few)


@pytest.mark.parametrize("fold_by", ["cell", "user"])
@pytest.mark.parametrize("kind", ["logistic", "sklearn"])
def test_sampled_negatives_are_corrected_to_the_population(kind, fold_by):
    log = us.load("synthetic", n_users=200, n_items=150, density=0.05, seed=4).train
    options = {"calibrator": None, "crossfit": 2, "fold_by": fold_by}
    if kind == "logistic":
        make = us.LogisticPropensity
        options["penalty"] = 30.0
    else:
        make = us.SklearnPropensity
        options["estimator"] = LogisticRegression()
    full = make(**options).fit(log, seeds=4).predict_matrix_each().mean(0)
    sampled = make(**options, negatives=2).fit(log, seeds=4).predict_matrix_each().mean(0)
    assert sampled.mean() == pytest.approx(log.density, rel=0.04)
    assert np.corrcoef(logit(full.ravel()), logit(sampled.ravel()))[0, 1] > 0.95
    assert (logit(sampled) - logit(full)).mean() == pytest.approx(0, abs=0.1)


def test_a_classifier_that_memorises_noise_knows_nothing_of_the_cells_it_holds_out():
    log = us.load("synthetic", n_users=60, n_items=50, density=0.2, bias=0.0, seed=3).train
    memorising = {"estimator": KNeighborsClassifier(1), "inputs": ("ids",), "calibrator": None}
    click = clicks_of(log)
    out = us.SklearnPropensity(**memorising, crossfit=2).fit(log).predict_matrix_each().ravel()
    seen = us.SklearnPropensity(**memorising, crossfit=None).fit(log).predict_matrix_each().ravel()
    assert roc_auc_score(click, out) < 0.55
    assert roc_auc_score(click, seen) > 0.85


class TestPopularity:
    def test_is_the_product_of_relative_click_rates_of_the_other_folds(self, log):
        propensity = us.PopularityPropensity(
            user_power=0.5, item_power=2.0, smoothing=3.0, crossfit=2, calibrator=None
        ).fit(log)
        fold = folds_of(propensity, 0).reshape(log.n_users, log.n_items)
        click = clicks_of(log).reshape(log.n_users, log.n_items)
        found = propensity.predict_matrix_each()[0]
        for k in range(2):
            train = fold != k
            density = click[train].mean()
            f_user = ((click * train).sum(1) + 3) / (density * train.sum(1) + 3)
            f_item = ((click * train).sum(0) + 3) / (density * train.sum(0) + 3)
            product = f_user[:, None] ** 0.5 * f_item**2
            expected = np.minimum(density * product / product.mean(), 1 - 1e-6)
            np.testing.assert_allclose(found[~train], expected[~train], rtol=1e-9)

    def test_powers_of_zero_leave_the_base_rate(self, log):
        flat = us.PopularityPropensity(user_power=0, item_power=0, crossfit=2, calibrator=None).fit(log)
        np.testing.assert_allclose(flat.predict_matrix_each(), log.density, rtol=0.1)

    def test_no_user_without_clicks_has_an_infinite_weight(self, log):
        assert us.PopularityPropensity(crossfit=2).fit(log).predict_matrix_each().min() > 1e-4
        with pytest.raises(ParameterError, match="smoothing must be above 0"):
            us.PopularityPropensity(smoothing=0).fit(log)


class TestLogistic:
    def test_is_scikit_learns_optimum_on_the_written_out_design(self, log, monkeypatch):
        monkeypatch.setattr(logistic, "GRADIENT_TOLERANCE", 1e-7)
        propensity = us.LogisticPropensity(crossfit=2, calibrator=None, penalty=2.0).fit(log)
        fold = folds_of(propensity, 0)
        user, item = np.divmod(np.arange(log.population_size), log.n_items)
        x, y = (f.values / np.abs(f.values).max(0) for f in (log.user_features, log.item_features))
        products = (x[user][:, :, None] * y[item][:, None, :]).reshape(len(user), -1)
        design = np.hstack([np.eye(log.n_users)[user], np.eye(log.n_items)[item], x[user], y[item], products])
        click, found = clicks_of(log), propensity.predict_matrix_each().ravel()
        for k in range(2):
            oracle = LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-10).fit(
                design[fold != k], click[fold != k]
            )
            expected = oracle.predict_proba(design[fold == k])[:, 1]
            np.testing.assert_allclose(found[fold == k], expected, rtol=1e-5)

    def test_the_usual_tolerance_is_far_inside_the_statistical_error(self, log, monkeypatch):
        usual = us.LogisticPropensity(calibrator=None, crossfit=None).fit(log).predict_matrix_each()
        monkeypatch.setattr(logistic, "GRADIENT_TOLERANCE", 1e-7)
        exact = us.LogisticPropensity(calibrator=None, crossfit=None).fit(log).predict_matrix_each()
        np.testing.assert_allclose(usual, exact, rtol=0.01)

    def test_pairs_beyond_the_grid_are_scored_alike(self, log, monkeypatch):
        grid = us.LogisticPropensity(crossfit=2).fit(log).predict_matrix_each()
        monkeypatch.setattr(logistic, "GRID_CELLS", 0)
        np.testing.assert_allclose(
            us.LogisticPropensity(crossfit=2).fit(log).predict_matrix_each(), grid, rtol=1e-3
        )

    def test_finds_the_propensities_of_a_world_it_can_express(self):
        random = np.random.default_rng(2)
        z = -2 + random.normal(0, 1, (200, 1)) + random.normal(0, 0.7, (1, 150))
        user, item = np.nonzero(random.random(z.shape) < expit(z))
        world = us.Log.from_arrays(user=user, item=item, users=us.Vocabulary.range(200, name="user"))
        p = us.LogisticPropensity(crossfit=2).fit(world).predict_matrix_each()[0]
        assert np.corrcoef(logit(p).ravel(), z.ravel())[0, 1] > 0.9
        assert np.polyfit(logit(p).ravel(), z.ravel(), 1)[0] == pytest.approx(1, abs=0.1)

    def test_products_of_features_tell_what_ids_cannot(self):
        world = us.load("synthetic").train
        nll = {
            products: us.LogisticPropensity(interactions=products, penalty=5.0, crossfit=2)
            .fit(world)
            .diagnose()["calibrated"]["nll"]
            for products in (False, True)
        }
        assert nll[True] < nll[False] - 1e-3

    def test_bad_parameters_and_a_log_without_features(self, log, impressions):
        with pytest.raises(ParameterError, match="penalty must be above 0"):
            us.LogisticPropensity(penalty=0).fit(log)
        with pytest.raises(ParameterError, match="cannot both be left out"):
            us.LogisticPropensity(ids=False, features=False).fit(log)
        with pytest.raises(DataError, match=r"no features of users or items.*ids=True"):
            us.LogisticPropensity(ids=False).fit(impressions)


class TestNaiveBayes:
    def test_is_bayes_rule_on_the_counts_of_the_other_folds(self, data, log):
        propensity = us.NaiveBayesPropensity(crossfit=2, calibrator=None).fit(log, random_sample=data.test)
        r, found = log.known_conversion(), propensity.predict_each(log)[0]
        fold, of_test = folds_of_cells(propensity, 0, log.cell), folds_of_cells(propensity, 0, data.test.cell)
        for k in range(2):
            positive = [
                (rates[chosen != k].sum() + 1) / ((chosen != k).sum() + 2)
                for rates, chosen in ((data.test.known_conversion(), of_test), (r, fold))
            ]
            for conversion in (0, 1):
                given = [rate if conversion else 1 - rate for rate in positive]
                joint = log.density * given[1]
                expected = joint / (joint + (1 - log.density) * given[0])
                np.testing.assert_allclose(found[(fold == k) & (r == conversion)], expected, rtol=1e-6)

    def test_comes_close_to_the_truth_of_a_world(self):
        world = us.load("synthetic", n_users=300, n_items=200, test_per_user=40)
        propensity = us.NaiveBayesPropensity(calibrator=None, crossfit=None).fit(
            world.train, random_sample=world.test
        )
        found, r = propensity.predict(world.train), world.train.known_conversion()
        for conversion in (0, 1):
            truth = world.truth.propensity[world.truth.labels == conversion].mean()
            assert found[r == conversion][0] == pytest.approx(truth, rel=0.06)
        assert propensity.diagnose()["raw"]["weight_check"] == pytest.approx(1, abs=0.05)

    def test_the_same_with_or_without_the_clicked_pairs_of_the_sample(self, data, log):
        shown = us.load("synthetic", n_users=80, n_items=60, density=0.12, seed=1, protocol="paper").test
        assert len(shown) > len(data.test)
        with_them = us.NaiveBayesPropensity(crossfit=2).fit(log, random_sample=shown)
        without = us.NaiveBayesPropensity(crossfit=2).fit(log, random_sample=data.test)
        np.testing.assert_allclose(with_them.predict_each(log), without.predict_each(log), rtol=1e-9)

    def test_says_what_it_saw_and_keeps_the_rest_for_the_test(self, data, log):
        propensity = us.NaiveBayesPropensity(sample_share=0.25, crossfit=2).fit(log, random_sample=data.test)
        seen = round(0.25 * len(data.test))
        assert f"saw the conversions of {seen} pairs" in propensity.message_
        assert len(propensity.unseen_) == len(data.test) - seen
        judged = set(propensity._cell) - set(log.cell)
        assert judged.isdisjoint(propensity.unseen_.cell)
        assert us.NaiveBayesPropensity(crossfit=2).fit(log, random_sample=data.test).unseen_ is None

    def test_held_out_cells_stand_for_all_of_the_population(self, data, log):
        propensity = us.NaiveBayesPropensity(crossfit=2).fit(log, random_sample=data.test)
        (sketch,) = propensity.held_out_sketches(calibrated=True)
        assert sketch.total == pytest.approx(log.population_size, rel=1e-9)
        assert sketch.base_rate == pytest.approx(log.density, rel=1e-9)

    def test_ips_takes_it_and_methods_over_all_pairs_are_told(self, data, log):
        propensity = us.NaiveBayesPropensity(crossfit=2).fit(log, random_sample=data.test)
        us.IPS(backbone=us.MF(dim=2), epochs=1).fit(log, propensity=propensity)
        everywhere = next(m for m in us.METHODS.values() if m.needs_propensity_everywhere)
        with pytest.raises(ParameterError, match="not of all of D"):
            everywhere(backbone=us.MF(dim=2), epochs=1).fit(log, propensity=propensity)
        np.testing.assert_allclose(propensity.predict_pairs_each([3], [4]), log.density, rtol=0.2)

    def test_bad_input_is_told(self, data, log, impressions):
        with pytest.raises(ParameterError, match=r"needs pairs shown at random.*random_sample"):
            us.NaiveBayesPropensity().fit(log)
        with pytest.raises(ParameterError, match="space 'matrix'"):
            us.NaiveBayesPropensity().fit(impressions, random_sample=data.test)
        other = us.Log.from_arrays(user=[0, 1], item=[0, 1], conversion=[0, 1])
        with pytest.raises(DataError, match="other users or items"):
            us.NaiveBayesPropensity().fit(log, random_sample=other)
        with pytest.raises(ParameterError, match="sample_share must be in"):
            us.NaiveBayesPropensity(sample_share=0).fit(log, random_sample=data.test)


class TestSklearn:
    def test_a_classifier_without_probabilities_is_calibrated(self, log):
        propensity = us.SklearnPropensity(estimator=RidgeClassifier(), crossfit=FOLDS).fit(log)
        figures = propensity.diagnose()
        assert figures["raw"]["mean_over_base_rate"] > 2
        assert figures["calibrated"]["mean_over_base_rate"] == pytest.approx(1, abs=0.02)
        assert figures["calibrated"]["auc"] > 0.6

    def test_certainty_is_limited_by_the_rows_seen_and_clones_differ_by_seed(self, log):
        forest = RandomForestClassifier(5)
        propensity = us.SklearnPropensity(estimator=forest, crossfit=2, calibrator=None).fit(log, seeds=2)
        p = propensity.predict_matrix_each()
        assert 0.4 / log.population_size < p.min() < 2 / log.population_size
        assert not hasattr(forest, "classes_")
        again = clone(propensity).fit(log, seeds=2)
        np.testing.assert_array_equal(again.predict_matrix_each(), p)

    def test_no_click_tells_on_itself_through_the_rates(self):
        log = us.load("synthetic", n_users=60, n_items=50, density=0.2, bias=0.0, seed=3).train
        deep = us.SklearnPropensity(estimator=RandomForestClassifier(30), crossfit=2, calibrator=None)
        assert 0.45 < roc_auc_score(clicks_of(log), deep.fit(log).predict_matrix_each().ravel()) < 0.55
        rates = us.propensity.popularity.ClickRates.of(
            deep.cells_.blocks(next(deep.cells_.replicas("x"))), users=60, items=50, smoothing=1.0, parts=4
        )
        cells = deep.cells_.training(next(deep.cells_.replicas("x")), None)
        tells = np.corrcoef(rates.users(cells.user, cells.slot), cells.click)[0, 1]
        told = np.corrcoef(rates.users(cells.user), cells.click)[0, 1]
        assert abs(tells) < 0.1 < told

    def test_ids_and_features_side_by_side(self, log):
        inputs = ("popularity", "features", "ids")
        propensity = us.SklearnPropensity(
            estimator=LogisticRegression(max_iter=500), inputs=inputs, crossfit=None
        ).fit(log)
        assert propensity.diagnose()["calibrated"]["auc"] > 0.6

    def test_bad_estimators_and_inputs_are_told(self, log, impressions):
        with pytest.raises(ParameterError, match="is not a scikit-learn classifier"):
            us.SklearnPropensity(estimator="forest").fit(log)
        with pytest.raises(ParameterError, match="inputs must be some of"):
            us.SklearnPropensity(estimator=GaussianNB(), inputs=("age",)).fit(log)
        with pytest.raises(DataError, match="no features of users or items"):
            us.SklearnPropensity(estimator=GaussianNB(), inputs=("features",)).fit(impressions)
