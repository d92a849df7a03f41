"""Propensities from networks: what stops and judges them, their figures, their training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

import unskew as us
from unskew.base.errors import DataError, ParameterError
from unskew.propensity.crossfit import OUT, STOP

SEEDS = (4, 7)


def quick(**options):
    return us.Propensity(
        **{"learner": us.MF(dim=4), "crossfit": None, "learning_rate": 0.02, "epochs": 12, **options}
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
    cells = torch.arange(propensity.cells_.population.size)
    slots = propensity.cells_.population.slots(
        propensity.folds_.split_seeds, propensity.design_.slots, propensity.fold_by
    ).of(cells.unsqueeze(0))
    return cells, slots, propensity.cells_.population.click(cells).numpy()


def network_scores(propensity):
    """σ(logit) ``[seeds, replicas, n]`` of every cell by every replica."""
    population = propensity.cells_.population
    rows = population.rows(torch.arange(population.size)[None])
    with torch.no_grad():
        score = torch.sigmoid(propensity.network_.eval()(rows).double() + propensity.offset_).numpy()
    return score.reshape(len(propensity.seeds_), propensity.design_.replicas, -1)


class TestCrossFitting:
    def test_a_model_that_memorises_noise_knows_nothing_of_the_cells_it_holds_out(self):
        log = us.load("synthetic", n_users=60, n_items=50, density=0.2, bias=0.0, seed=3).train
        memorising = {"learner": us.MF(dim=16), "calibrator": None, "epochs": 40, "patience": None}
        clicks = np.zeros(log.population_size)
        clicks[log.cell] = 1
        out = quick(**memorising, crossfit=2).fit(log).predict_matrix_each().ravel()
        seen = quick(**memorising).fit(log).predict_matrix_each().ravel()
        assert roc_auc_score(clicks, out) < 0.55
        assert roc_auc_score(clicks, seen) > 0.75


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"label_smoothing": 1.0}, r"label_smoothing must be in \[0, 1\), not 1.0"),
        ({"learning_rate": -1.0}, "learning_rate must be above 0"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"learner": us.NeuMF(dropout=2.0)}, r"dropout must be in \[0, 1\)"),
    ],
)
def test_parameters_out_of_range_are_told(log, options, message):
    with pytest.raises(ParameterError, match=message):
        quick(**options).fit(log)


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


@pytest.fixture(scope="module")
def world():
    return us.load("synthetic", seed=2).train


def fitted(log, *, epochs=25, **options):
    """Trained to the end: while it is still learning, no model of the sample has its base rate."""
    training = {"learning_rate": 0.02, "epochs": epochs, "patience": None, "crossfit": None}
    return us.Propensity(learner=us.MF(dim=4), calibrator=None, **training, **options).fit(log)


@pytest.mark.parametrize("ratio", [1, 4])
def test_with_the_offset_sampled_negatives_recover_the_base_rate(world, ratio):
    mean = fitted(world, negatives=ratio).predict_matrix_each().mean()
    assert mean == pytest.approx(world.density, rel=0.1)
