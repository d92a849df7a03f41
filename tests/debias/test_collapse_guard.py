"""Networks that learned nothing are found, told of and remembered; those that learned are left in peace."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.base.errors import CollapseWarning

WORLD = us.load("synthetic", n_users=150, n_items=100, density=0.15, seed=2)
TRUTH = WORLD.truth.propensity
SMALL = {"learner": us.MF(dim=4), "learning_rate": 0.02, "batch_size": 256, "epochs": 30, "patience": 5}
HEAVY = {**SMALL, "weight_decay": 10.0, "epochs": 4}
SEEDS = (0, 5)


def names(model):
    return {each.network for each in model.collapsed_}


def test_a_model_that_learned_nothing_says_so_with_the_remedy():
    with pytest.warns(CollapseWarning, match="prediction.*nothing in 2 of 2 seeds.*lower weight_decay"):
        model = us.Naive(**HEAVY).fit(WORLD.train, seeds=SEEDS)
    assert [(each.network, each.seed, each.reason) for each in model.collapsed_] == [
        ("prediction", 0, "flat"),
        ("prediction", 5, "flat"),
    ]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", [us.Naive, us.IPS, us.SNIPS, us.DR])
def test_a_model_that_learned_raises_no_alarm(method):
    model = method(**SMALL).fit(WORLD.train, propensity=TRUTH, seeds=SEEDS)
    assert model.collapsed_ == ()
    assert model.predict(WORLD.test).std() > 0.05


def test_an_imputer_that_learned_nothing_is_found_beside_a_prediction_that_learned():
    with pytest.warns(CollapseWarning, match="'imputation' learned nothing"):
        model = us.DRJL(**SMALL, weight_decay=1e-4, imputation_weight_decay=10.0, p_min=0.05).fit(
            WORLD.train, propensity=TRUTH, seeds=SEEDS
        )
    assert names(model) == {"imputation"}


def test_a_click_tower_that_learned_nothing_is_found():
    with pytest.warns(CollapseWarning, match="'click' learned nothing"):
        model = us.GPL(**SMALL, weight_decay=10.0).fit(WORLD.train, seeds=SEEDS)
    assert "click" in names(model)


def test_conversions_that_are_noise_are_not_called_a_defect():
    noise = np.random.default_rng(0).random(WORLD.train.n_clicks) < 0.3
    log = us.Log.from_arrays(user=WORLD.train.user, item=WORLD.train.item, conversion=noise, space="matrix")
    with pytest.warns(CollapseWarning, match="If there is something to learn"):
        model = us.Naive(**{**SMALL, "patience": None, "epochs": 40, "weight_decay": 0.0}).fit(
            log, seeds=SEEDS
        )
    assert names(model) == {"prediction"}


def test_each_set_of_propensities_and_a_saved_model_remember(tmp_path):
    fitted = us.IPS(**HEAVY).fit_many(WORLD.train, propensities={"a": TRUTH, "b": 0.15}, seeds=SEEDS)
    alone = us.IPS(**HEAVY).fit(WORLD.train, propensity=TRUTH, seeds=SEEDS)
    assert fitted["a"].collapsed_ == alone.collapsed_ != ()
    alone.save(tmp_path / "model")
    assert us.load_model(tmp_path / "model").collapsed_ == alone.collapsed_


def test_without_held_out_rows_the_spread_alone_is_judged():
    assert us.Naive(**{**SMALL, "validation_share": 0.0, "patience": None}).fit(WORLD.train).collapsed_ == ()
    assert us.Naive(**{**HEAVY, "validation_share": 0.0}).fit(WORLD.train).collapsed_[0].reason == "flat"


def test_a_propensity_tells_which_folds_learned_nothing():
    options = {"learner": us.MF(dim=4), "learning_rate": 0.02, "crossfit": 2}
    with pytest.warns(CollapseWarning, match="'propensity' learned nothing in 2 of 2 seeds"):
        heavy = us.Propensity(**options, weight_decay=10.0, epochs=3).fit(WORLD.train, seeds=SEEDS)
    assert {(each.network, each.seed) for each in heavy.collapsed_} == {
        (f"propensity, fold {fold}", seed) for fold in (0, 1) for seed in SEEDS
    }
    assert heavy.diagnose()["raw"]["collapsed"] == 2
    learned = us.Propensity(**options, epochs=20).fit(WORLD.train, seeds=SEEDS)
    assert learned.collapsed_ == ()
    assert learned.diagnose()["calibrated"]["collapsed"] == 0
