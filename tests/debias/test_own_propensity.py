"""Whose p becomes a weight, which cells are held out from a click tower, and how it is judged."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import logit

import unskew as us
from contracts.click_world import CELLS, ITEMS, SEEDS, World, deep
from unskew import DDPO, ESMM, GPL, IPSV2, MF, MultiDR, MultiIPW
from unskew.base.errors import ParameterError
from unskew.debias import Setting
from unskew.debias.setting import Observed
from unskew.debias.towers import Tasks
from unskew.metrics import ece
from unskew.training.held_out import HeldOut
from unskew.training.inference import logits


def test_a_click_held_out_for_validation_never_counts_as_not_clicked():
    world = World(deep(ESMM))
    few = world.data.observed(world.positions(np.arange(5)))
    tasks = Tasks.read(world.setting, few, world.full, "prediction")
    np.testing.assert_array_equal(tasks.space["unclicked"].numpy(), np.tile(~world.click, (len(SEEDS), 1)))


def test_a_tenth_of_the_clicks_calibrates_and_another_evaluates_neither_trains():
    world = World(deep(ESMM))
    trains = world.setting.held_out.trains(world.full.rows).numpy()
    clicks = world.click.sum()
    seen = {}
    for part in ("calibration", "evaluation"):
        cells = getattr(world.setting.held_out, part)
        number = (cells.rows.user * ITEMS + cells.rows.item).numpy()
        for replica in range(len(SEEDS)):
            kept = number[replica][cells.weight[replica].numpy() > 0]
            assert not trains[replica, kept].any()
            assert abs(world.click[kept].sum() - clicks / 10) <= 3 * (0.09 * clicks) ** 0.5
            np.testing.assert_array_equal(
                cells.click[replica].numpy()[: len(kept)], world.click[kept].astype(float)
            )
            seen.setdefault(replica, []).extend(kept)
    for replica, numbers in seen.items():
        assert sorted(numbers) == CELLS[~trains[replica]].tolist()


def test_auto_takes_given_propensities_and_otherwise_calibrates_in_the_loop():
    for method, given, expected in (
        (MultiIPW(), True, "external"),
        (MultiIPW(), False, "in-loop"),
        (GPL(), True, "in-loop"),
        (ESMM(), True, "report-only"),
    ):
        setting = Setting(networks={}, density=0.1, clicks=None, given=given)
        assert method.source(setting) == expected


@pytest.fixture(scope="module")
def synthetic() -> us.datasets.Dataset:
    return us.load("synthetic", n_users=40, n_items=30, density=0.3, seed=1)


@pytest.mark.parametrize(
    ("source", "told"), [("external", {"raw"}), ("in-loop", {"raw", "calibrated"}), ("report-only", {"raw"})]
)
def test_after_training_the_tower_is_judged_on_cells_it_never_saw(synthetic, source, told):
    model = us.ESCM2IPS(learner=MF(dim=4), epochs=3, learning_rate=0.01, calibration=source)
    model.fit(synthetic.train, propensity=synthetic.truth.propensity, seeds=SEEDS)
    assert set(model.click_propensity_) == told
    log = synthetic.train
    population = Observed(log, None, SEEDS, torch.device("cpu")).population
    cells = HeldOut(population, SEEDS).evaluation
    z = logits(model.networks_["prediction"], cells.rows, tower="click") + logit(log.density)
    for replica in range(len(SEEDS)):
        kept = cells.weight[replica] > 0
        expected = ece(
            score=torch.sigmoid(z[replica][kept]).numpy(), outcome=cells.click[replica][kept].numpy()
        )
        assert model.click_propensity_["raw"]["per_seed"]["ece"][replica] == pytest.approx(expected, abs=1e-6)


def test_in_the_loop_a_tower_off_the_base_rate_is_brought_back(synthetic):
    model = IPSV2(learner=MF(dim=4), epochs=60, learning_rate=0.02, balance_weight=5.0, patience=None)
    figures = model.fit(synthetic.train, seeds=3).click_propensity_
    assert figures["calibrated"]["nll"] < figures["raw"]["nll"]
    assert abs(figures["calibrated"]["mean_over_base_rate"] - 1) < 0.15


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        (MultiIPW(calibration="external"), "multi-ipw with calibration='external' needs propensities"),
        (
            MultiIPW(calibration="platt"),
            "calibration must be 'auto', 'external', 'in-loop' or 'report-only', not 'platt'",
        ),
        (ESMM(calibration="in-loop"), "calibration must be 'auto' or 'report-only', not 'in-loop'"),
        (
            GPL(calibration="external"),
            "calibration must be 'auto', 'in-loop' or 'report-only'",
        ),
        (MultiDR(imputation_form="P4"), "imputation_form must be 'P1', 'P2' or 'P3'"),
        (ESMM(ratio=0.0), "ratio must be above 0"),
        (GPL(bias_share=1.2), "bias_share must be in"),
        (GPL(penalty=-1.0), "penalty must be at least 0"),
    ],
)
def test_what_cannot_be_is_refused(synthetic, method, problem):
    with pytest.raises(ParameterError, match=problem):
        method.fit(synthetic.train)


def test_ddpo_asks_for_propensities_on_every_pair(synthetic):
    rows = np.full(len(synthetic.train), 0.3)
    with pytest.raises(ParameterError, match="needs propensities on every pair"):
        DDPO(learner=MF(dim=2)).fit(synthetic.train, propensity=rows)
