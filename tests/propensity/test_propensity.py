"""The propensity estimator: held out is held out, calibrated is calibrated, saved is the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

import unskew as us
from unskew.errors import DataError, NotFittedError, ParameterError
from unskew.propensity.design import OUT, STOP
from unskew.propensity.storage import save_propensity

FIGURES = {
    "ece",
    "ece_floor",
    "wce",
    "nll",
    "brier",
    "auc",
    "auc_of_chance",
    "mean_over_base_rate",
    "weight_check",
    "effective_sample_size",
    "clipped",
    "clipped_mass",
    "p_min",
}
SEEDS = (4, 7)


def quick(**options):
    return us.Propensity(
        **{"backbone": us.MF(dim=4), "crossfit": None, "learning_rate": 0.02, "epochs": 12, **options}
    )


@pytest.fixture(scope="module")
def log():
    return us.load("synthetic", n_users=100, n_items=60, density=0.12, seed=1).train


@pytest.fixture(scope="module")
def crossfitted(log):
    return quick(crossfit=3).fit(log, seeds=SEEDS)


@pytest.fixture(scope="module")
def split(log):
    return quick().fit(log, seeds=SEEDS)


@pytest.fixture(scope="module")
def impressions():
    random = np.random.default_rng(0)
    user, item = random.integers(50, size=4000), random.integers(20, size=4000)
    click = (random.random(4000) < 0.05 + 0.4 * (user < 20)).astype(int)
    return us.Log.from_arrays(user=user, item=item, click=click, space="impressions")


def all_cells(propensity):
    """Every cell of D, its slot for each seed ``[seeds, n]``, and its click."""
    cells = torch.arange(propensity.population_.size)
    slots = propensity.population_.slots(
        propensity.split_seeds(), propensity.design_.slots, propensity.fold_by
    ).of(cells.unsqueeze(0))
    return cells, slots, propensity.population_.click(cells).numpy()


def network_scores(propensity):
    """σ(logit) ``[seeds, replicas, n]`` of every cell by every replica."""
    cells = torch.arange(propensity.population_.size)
    rows = propensity.population_.rows(cells[None])
    with torch.no_grad():
        score = torch.sigmoid(propensity.network_.eval()(rows).double() + propensity.offset_).numpy()
    return score.reshape(len(propensity.seeds_), propensity.design_.replicas, -1)


class TestCrossFitting:
    def test_each_cell_is_predicted_by_the_replica_and_calibrator_that_hold_it_out(self, crossfitted):
        _, slots, _ = all_cells(crossfitted)
        scores = network_scores(crossfitted)
        predicted = crossfitted.predict_matrix_each().reshape(len(SEEDS), -1)
        raw = crossfitted.predict_matrix_each(calibrated=False).reshape(len(SEEDS), -1)
        roles = crossfitted.design_.roles
        for seed in range(len(SEEDS)):
            for replica in range(3):
                mine = (roles[replica, slots[seed]] == OUT).numpy()
                own = scores[seed, replica, mine]
                np.testing.assert_allclose(raw[seed, mine], own, atol=1e-6)
                calibrator = crossfitted.calibrators_[seed * 3 + replica]
                np.testing.assert_allclose(predicted[seed, mine], calibrator.predict(own), atol=1e-6)

    def test_the_calibrator_of_a_fold_is_fitted_on_the_other_folds(self, crossfitted):
        _, slots, click = all_cells(crossfitted)
        raw = crossfitted.predict_matrix_each(calibrated=False).reshape(len(SEEDS), -1)
        grid = np.linspace(0.02, 0.5, 20)
        for seed in range(len(SEEDS)):
            fold = crossfitted.design_.fold_of(slots[seed]).numpy()
            for replica in range(3):
                others = fold != replica
                expected = us.Platt().fit(raw[seed, others], click[others]).predict(grid)
                fitted = crossfitted.calibrators_[seed * 3 + replica].predict(grid)
                np.testing.assert_allclose(fitted, expected, rtol=2e-3)

    def test_a_model_that_memorises_noise_knows_nothing_of_the_cells_it_holds_out(self):
        log = us.load("synthetic", n_users=60, n_items=50, density=0.2, bias=0.0, seed=3).train
        memorising = {"backbone": us.MF(dim=16), "calibrator": None, "epochs": 40, "patience": None}
        clicks = np.zeros(log.population_size)
        clicks[log.cell] = 1
        out = quick(**memorising, crossfit=2).fit(log).predict_matrix_each().ravel()
        seen = quick(**memorising).fit(log).predict_matrix_each().ravel()
        assert roc_auc_score(clicks, out) < 0.55
        assert roc_auc_score(clicks, seen) > 0.75

    def test_rows_of_the_log_get_the_propensities_of_their_cells(self, crossfitted, log):
        matrix = crossfitted.predict_matrix_each()
        np.testing.assert_allclose(crossfitted.predict_each(log), matrix[:, log.user, log.item], atol=1e-6)
        np.testing.assert_allclose(crossfitted.predict(log), matrix[:, log.user, log.item].mean(0), atol=1e-6)

    def test_out_of_fold_scores_of_all_cells_are_what_is_judged(self, crossfitted, log):
        sketches = crossfitted.held_out_sketches(calibrated=False)
        assert [sketch.rows for sketch in sketches] == [log.population_size] * len(SEEDS)
        assert [sketch.positives for sketch in sketches] == [log.n_clicks] * len(SEEDS)

    def test_folds_by_user_hold_users_out_together(self, log):
        propensity = quick(crossfit=2, fold_by="user", epochs=2).fit(log)
        _, slots, _ = all_cells(propensity)
        fold = propensity.design_.fold_of(slots[0]).reshape(log.n_users, log.n_items)
        assert (fold == fold[:, :1]).all()
        assert len(fold[:, 0].unique()) == 2


class TestOneSplit:
    def test_calibration_and_evaluation_cells_are_a_tenth_each_and_apart(self, split, log):
        _, slots, click = all_cells(split)
        roles = split.design_.roles[0]
        for seed, sketch in enumerate(split.held_out_sketches(calibrated=False)):
            judged = (roles[slots[seed]] == OUT).numpy()
            assert sketch.rows == judged.sum()
            assert sketch.positives == click[judged].sum()
            assert judged.mean() == pytest.approx(0.1, abs=0.02)
            assert click[judged].sum() == pytest.approx(
                0.1 * log.n_clicks, abs=3 * (0.09 * log.n_clicks) ** 0.5
            )

    def test_the_calibrator_is_fitted_on_the_calibration_cells_alone(self, split):
        _, slots, click = all_cells(split)
        scores = network_scores(split)
        grid = np.linspace(0.02, 0.5, 20)
        for seed in range(len(SEEDS)):
            cells = (split.design_.roles[0, slots[seed]] == STOP).numpy()
            expected = us.Platt().fit(scores[seed, 0, cells], click[cells]).predict(grid)
            np.testing.assert_allclose(split.calibrators_[seed].predict(grid), expected, rtol=1e-2)

    @pytest.mark.parametrize("negatives", [None, 2.0])
    def test_early_stopping_watches_the_calibration_cells_at_the_true_base_rate(self, log, negatives):
        split = quick(negatives=negatives).fit(log, seeds=SEEDS)
        _, slots, click = all_cells(split)
        scores = network_scores(split)
        for seed in range(len(SEEDS)):
            cells = (split.design_.roles[0, slots[seed]] == STOP).numpy()
            watched = [losses[seed] for losses in split.history_.validation]
            best = split.history_.best_epoch[seed]
            assert best == int(np.argmin(watched))
            assert log_loss(click[cells], scores[seed, 0, cells]) == pytest.approx(watched[best], rel=1e-5)


class TestDiagnosis:
    @pytest.mark.parametrize("which", ["crossfitted", "split"])
    def test_it_has_all_figures_raw_and_calibrated_and_for_each_seed(self, which, request):
        told = request.getfixturevalue(which).diagnose()
        assert set(told) == {"raw", "calibrated"}
        for figures in told.values():
            assert set(figures) == FIGURES | {"per_seed", "collapsed"}
            assert set(figures["per_seed"]) == FIGURES
            for name in FIGURES:
                values = figures["per_seed"][name]
                assert len(values) == len(SEEDS)
                assert figures[name] == pytest.approx(np.mean(values))
                assert np.isfinite(values).all(), name

    def test_figures_are_those_of_scikit_learn(self, crossfitted, log):
        _, _, click = all_cells(crossfitted)
        for kind, calibrated in (("raw", False), ("calibrated", True)):
            p = crossfitted.predict_matrix_each(calibrated=calibrated).reshape(len(SEEDS), -1)
            told = crossfitted.diagnose(p_min=0.05)[kind]["per_seed"]
            for seed, line in enumerate(p):
                assert told["nll"][seed] == pytest.approx(log_loss(click, line), rel=1e-3)
                assert told["brier"][seed] == pytest.approx(brier_score_loss(click, line), rel=1e-3)
                assert told["auc"][seed] == pytest.approx(roc_auc_score(click, line), abs=2e-3)
                assert told["mean_over_base_rate"][seed] == pytest.approx(line.mean() / log.density, rel=1e-3)
                on_clicks = line[log.cell]
                assert told["weight_check"][seed] == pytest.approx(
                    (1 / on_clicks).sum() / log.population_size, rel=1e-6
                )
                assert told["clipped"][seed] == pytest.approx((on_clicks < 0.05).mean())
                lost = 1 / on_clicks - 1 / np.maximum(on_clicks, 0.05)
                assert told["clipped_mass"][seed] == pytest.approx(lost.sum() / (1 / on_clicks).sum())

    def test_calibrated_propensities_have_the_base_rate_and_honest_weights(self, crossfitted):
        told = crossfitted.diagnose()["calibrated"]
        assert told["mean_over_base_rate"] == pytest.approx(1, abs=0.02)
        assert told["weight_check"] == pytest.approx(1, abs=0.15)
        assert told["ece"] < 2 * told["ece_floor"]

    def test_without_a_calibrator_raw_and_calibrated_are_the_same(self, log):
        propensity = quick(calibrator=None, epochs=2).fit(log)
        told = propensity.diagnose()
        assert told["raw"] == told["calibrated"]
        np.testing.assert_array_equal(propensity.predict(log), propensity.predict(log, calibrated=False))

    def test_another_log_brings_its_own_clicks(self, crossfitted, log):
        half = log.take(np.arange(len(log)) % 2 == 0)
        told = crossfitted.diagnose(half)["raw"]
        assert told["weight_check"] < 0.7 * crossfitted.diagnose()["raw"]["weight_check"]
        assert told["auc"] == crossfitted.diagnose()["raw"]["auc"]


class TestCalibrationOnTrainingCells:
    """What published code does, behind its own switch."""

    def test_nothing_is_held_out_and_clicks_stand_one_to_one_with_fresh_negatives(self, log):
        propensity = quick(
            calibrate_on="training", negatives=1, population="sampled", patience=None, epochs=5
        )
        sketch = propensity.fit(log).held_out_sketches(calibrated=True)[0]
        assert sketch.positives == log.n_clicks
        assert sketch.base_rate == pytest.approx(0.5)
        assert propensity.history_.validation == []

    def test_cross_fitting_is_refused_with_it(self, log):
        with pytest.raises(ParameterError, match="exclude each other"):
            quick(calibrate_on="training", crossfit=2).fit(log)


class TestImpressions:
    def test_rows_are_the_population(self, impressions):
        propensity = quick(crossfit=2, epochs=25).fit(impressions)
        p = propensity.predict(impressions)
        assert p.mean() == pytest.approx(impressions.density, rel=0.05)
        assert propensity.held_out_sketches(calibrated=True)[0].rows == len(impressions)
        assert propensity.diagnose()["calibrated"]["auc"] > 0.65

    def test_rows_of_the_training_log_are_predicted_out_of_fold(self, impressions):
        propensity = quick(crossfit=2, calibrator=None, epochs=2).fit(impressions)
        _, slots, _ = all_cells(propensity)
        fold = propensity.design_.fold_of(slots[0])
        each = network_scores(propensity)[0]
        expected = np.where(fold == 0, each[0], each[1])
        np.testing.assert_allclose(propensity.predict(impressions), expected, atol=1e-6)
        np.testing.assert_allclose(
            propensity.predict(impressions, average=True), each.mean(axis=0), atol=1e-6
        )

    def test_there_is_no_matrix_of_propensities(self, impressions):
        with pytest.raises(ParameterError, match="only the space 'matrix'"):
            quick(epochs=1).fit(impressions).predict_matrix_each()


class TestIds:
    def test_pairs_of_ids_get_the_propensities_of_their_cells(self, crossfitted, log):
        matrix = crossfitted.predict_matrix_each()
        pairs = crossfitted.predict_pairs_each([3, 99, 0], [59, 1, 0])
        np.testing.assert_allclose(pairs, matrix[:, [3, 99, 0], [59, 1, 0]], atol=1e-6)

    def test_unseen_ids_are_an_error_that_names_the_row(self, crossfitted):
        with pytest.raises(DataError, match=r"column 'user', row 1: user 100 was not seen in training"):
            crossfitted.predict_pairs_each([3, 100], [0, 0])
        with pytest.raises(DataError, match=r"column 'item', row 0: item 60 was not seen"):
            crossfitted.predict_pairs_each([3, 4], [60, 0])

    def test_unseen_ids_are_nan_on_request_and_the_others_are_predicted(self, crossfitted):
        some = crossfitted.predict_pairs_each([3, 100, 5], [0, 0, 60], unseen="nan")
        assert np.isnan(some).tolist() == [[False, True, True]] * 2
        np.testing.assert_allclose(some[:, 0], crossfitted.predict_pairs_each([3], [0])[:, 0], atol=1e-6)

    def test_pairs_of_two_lengths_and_an_unknown_answer_are_told(self, crossfitted):
        with pytest.raises(DataError, match="column 'item' has 1 rows where the others have 2"):
            crossfitted.predict_pairs_each([3, 4], [0])
        with pytest.raises(ParameterError, match="unseen must be 'error' or 'nan', not 'x'"):
            crossfitted.predict_pairs_each([3], [0], unseen="x")

    def test_what_is_no_log_is_told(self, crossfitted):
        for ask in (crossfitted.predict, crossfitted.predict_each, crossfitted.predict_spread_each):
            with pytest.raises(ParameterError, match="what to predict is a list, not a Log"):
                ask([3])

    def test_a_log_with_other_vocabularies_is_read_by_its_ids(self, crossfitted, log):
        part = us.Log.from_arrays(user=[50, 7, 50], item=[9, 9, 3], click=[1, 0, 0])
        np.testing.assert_allclose(
            crossfitted.predict_each(part), crossfitted.predict_pairs_each([50, 7, 50], [9, 9, 3])
        )


class TestSeeds:
    def test_a_seed_alone_is_the_seed_in_a_stack(self, crossfitted, log):
        alone = quick(crossfit=3).fit(log, seeds=[7]).predict_each(log)
        np.testing.assert_allclose(alone[0], crossfitted.predict_each(log)[1], atol=1e-5)

    def test_fitting_twice_gives_the_same_bit_for_bit(self, log):
        first, second = (quick(epochs=3, backbone=us.NeuMF(dim=4)).fit(log).predict(log) for _ in range(2))
        np.testing.assert_array_equal(first, second)

    def test_seeds_differ(self, crossfitted, log):
        first, second = crossfitted.predict_each(log)
        assert np.abs(first - second).max() > 1e-3


def test_label_smoothing_moves_propensities_toward_one_half(log):
    plain, smoothed = (
        quick(label_smoothing=smoothing, calibrator=None, patience=None, epochs=40)
        .fit(log)
        .predict_matrix_each()
        .mean()
        for smoothing in (0.0, 0.2)
    )
    assert plain == pytest.approx(log.density, rel=0.1)
    assert smoothed == pytest.approx(0.8 * log.density + 0.1, rel=0.1)


class TestFiles:
    @pytest.fixture(params=["crossfitted", "split"])
    def saved(self, request, tmp_path):
        propensity = request.getfixturevalue(request.param)
        return propensity, self.write(propensity, tmp_path)

    def write(self, propensity, folder):
        save_propensity(propensity, folder / "p")
        return folder / "p"

    def test_a_loaded_propensity_predicts_the_same_out_of_fold(self, saved, log):
        propensity, folder = saved
        loaded = us.load_propensity(folder)
        assert loaded.get_params()["backbone__dim"] == 4
        for calibrated in (False, True):
            np.testing.assert_array_equal(
                loaded.predict_each(log, calibrated=calibrated),
                propensity.predict_each(log, calibrated=calibrated),
            )
        np.testing.assert_array_equal(loaded.predict_matrix_each(), propensity.predict_matrix_each())

    def test_there_is_no_pickle(self, saved):
        _, folder = saved
        assert {path.suffix for path in folder.iterdir()} == {".toml", ".safetensors", ".json", ".parquet"}

    def test_a_loaded_propensity_has_nothing_to_diagnose(self, saved, log):
        loaded = us.load_propensity(saved[1])
        for ask in (loaded.diagnose, lambda: loaded.diagnose(log)):
            with pytest.raises(NotFittedError, match="keeps no data to diagnose"):
                ask()

    def test_impressions_and_no_calibrator_load_too(self, impressions, tmp_path):
        propensity = quick(epochs=1, calibrator=None, negatives=2).fit(impressions)
        loaded = us.load_propensity(self.write(propensity, tmp_path))
        np.testing.assert_array_equal(loaded.predict(impressions), propensity.predict(impressions))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"label_smoothing": 1.0}, r"label_smoothing must be in \[0, 1\), not 1.0"),
        ({"population": "O"}, "population must be 'D' or 'sampled', not 'O'"),
        ({"fold_by": "day"}, "fold_by must be 'cell', 'user' or 'item', not 'day'"),
        ({"calibrate_on": "test"}, "calibrate_on must be 'held-out' or 'training', not 'test'"),
        ({"crossfit": 1}, "crossfit must be None or from 2 to 100 folds, not 1"),
        ({"negatives": -1}, "negatives must be None, 'auto' or a positive ratio"),
        ({"learning_rate": -1.0}, "learning_rate must be positive"),
        ({"patience": 0}, "patience must be None or at least 1 epoch"),
        ({"backbone": us.NeuMF(dropout=2.0)}, r"dropout must be in \[0, 1\)"),
    ],
)
def test_parameters_out_of_range_are_told(log, options, message):
    with pytest.raises(ParameterError, match=message):
        quick(**options).fit(log)


@pytest.mark.parametrize("seeds", [0, -1, [], [1, 1], [-2]])
def test_seeds_that_are_none_are_told(log, seeds):
    with pytest.raises(ParameterError, match=r"seeds must be (a positive count or distinct|from 1 to)"):
        quick().fit(log, seeds=seeds)


@pytest.mark.parametrize(("crossfit", "clicks"), [(None, 2), (5, 4)])
def test_too_few_clicks_to_hold_some_out_are_told(crossfit, clicks):
    log = us.Log.from_arrays(user=range(clicks), item=range(clicks))
    with pytest.raises(DataError, match=rf"too few clicks \({clicks}\).*fewer folds"):
        quick(crossfit=crossfit).fit(log)


@pytest.mark.parametrize("crossfit", [None, 5])
@pytest.mark.parametrize("space", ["matrix", "impressions"])
def test_a_hundred_rows_are_enough_though_folds_are_not_even(crossfit, space):
    random = np.random.default_rng(5)
    rows = {"user": np.arange(100) % 25, "item": np.arange(100) % 19, "click": np.arange(100) % 5 == 0}
    order = random.permutation(100)
    log = us.Log.from_arrays(**{name: values[order] for name, values in rows.items()}, space=space)
    propensity = quick(crossfit=crossfit, epochs=2).fit(log, seeds=20)
    p = propensity.predict_each(log)
    assert p.shape == (20, 100)
    assert ((p > 0) & (p < 1)).all()


def test_too_few_users_to_fold_by_are_told_instead_of_training_on_nothing_for_ever():
    log = us.Log.from_arrays(user=[0, 0, 1, 1], item=[0, 1, 1, 2])
    seed_that_holds_both_users_out = 57
    with pytest.raises(DataError, match="too few clicks"):
        quick(fold_by="user").fit(log, seeds=[seed_that_holds_both_users_out])


def test_asking_before_fitting_is_told(log):
    for ask in ("predict", "predict_each", "diagnose"):
        with pytest.raises(NotFittedError, match="this Propensity is not fitted yet"):
            getattr(us.Propensity(), ask)(log)


def test_parameters_are_kept_read_set_and_cloned():
    propensity = us.Propensity(backbone=us.MF(dim=3), crossfit=4)
    assert propensity.get_params()["backbone__dim"] == 3
    copy = clone(propensity).set_params(backbone__dim=9, epochs=2)
    assert (copy.backbone.dim, copy.epochs, copy.crossfit) == (9, 2, 4)
    assert propensity.backbone.dim == 3
    with pytest.raises(ParameterError, match=r"Propensity has no parameter 'folds'.*crossfit"):
        propensity.set_params(folds=3)
    with pytest.raises(ParameterError, match="has no parameter 'dim'"):
        propensity.set_params(crossfit__dim=3)
