"""Where the truth is known: the naive estimate is wrong, true propensities mend it, calibration helps.

One fixed predictor, the true conversion rate for every pair, is judged on ten worlds: what an estimate of
its loss is off by is selection alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import unskew as us
from unskew.theory import TruthReport, truth_report

SEEDS = range(10)
P_MIN = 0.01


@pytest.fixture(scope="module", autouse=True)
def _briefly() -> None:
    """Here trainings are not cut short."""


@dataclass(frozen=True)
class Judged:
    report: TruthReport
    figures: dict

    def off(self, name: str) -> float:
        estimate = self.report.naive if name == "naive" else self.report.ips[name]
        return estimate.estimate - self.report.ideal


@pytest.fixture(scope="module")
def worlds() -> list[Judged]:
    return [judged(seed) for seed in SEEDS]


def judged(seed: int) -> Judged:
    data = us.load("synthetic", n_users=120, n_items=80, seed=seed)
    log, truth = data.train, data.truth
    overfitted = us.Propensity(
        learner=us.MF(dim=16), crossfit=2, epochs=25, patience=None, learning_rate=0.01, batch_size=512
    ).fit(log, seeds=[seed])
    rate = truth.labels.mean()
    click = np.zeros(log.population_size)
    click[log.cell] = 1
    report = truth_report(
        propensity_true=truth.propensity,
        error=np.where(truth.labels == 1, -np.log(rate), -np.log1p(-rate)),
        click=click.reshape(truth.labels.shape),
        propensities={
            "raw": np.maximum(overfitted.predict_matrix_each(calibrated=False)[0], P_MIN),
            "calibrated": np.maximum(overfitted.predict_matrix_each()[0], P_MIN),
            "true": truth.propensity,
            "constant": np.full(truth.labels.shape, log.density),
        },
    )
    return Judged(report=report, figures=overfitted.diagnose(p_min=P_MIN))


def standard_errors_off(worlds, name: str) -> float:
    off = np.array([world.off(name) for world in worlds])
    return abs(off.mean()) / (off.std(ddof=1) / np.sqrt(len(off)))


def mean_distance(worlds, name: str) -> float:
    return float(np.mean([abs(world.off(name)) for world in worlds]))


def test_the_naive_estimate_is_off_by_at_least_five_standard_errors(worlds):
    assert standard_errors_off(worlds, "naive") >= 5


def test_ips_with_the_true_propensities_is_within_three(worlds):
    assert standard_errors_off(worlds, "true") <= 3
    assert mean_distance(worlds, "true") < 0.25 * mean_distance(worlds, "naive")


def test_the_raw_propensities_are_those_of_an_overfitted_model(worlds):
    raw, calibrated = (np.mean([w.figures[kind]["ece"] for w in worlds]) for kind in ("raw", "calibrated"))
    assert raw > 0.05
    assert calibrated < 0.02


def test_calibrated_propensities_are_nearer_to_the_truth_than_raw_ones(worlds):
    assert mean_distance(worlds, "calibrated") < 0.5 * mean_distance(worlds, "raw")
    nearer = [abs(world.off("calibrated")) < abs(world.off("raw")) for world in worlds]
    assert sum(nearer) == len(SEEDS)


def test_calibration_removes_its_part_of_the_bias_and_leaves_refinement(worlds):
    for world in worlds:
        raw, calibrated = (world.report.ips[kind].split for kind in ("raw", "calibrated"))
        assert abs(calibrated.calibration) < 0.2 * abs(raw.calibration)
    # What is left is refinement: even perfectly calibrated scores do not tell who clicks.
    refinement = np.mean([abs(world.report.ips["calibrated"].split.refinement) for world in worlds])
    assert refinement > 0.25 * mean_distance(worlds, "naive")


def test_constant_propensities_give_exactly_the_naive_estimate(worlds):
    for world in worlds:
        assert world.report.ips["constant"].estimate == pytest.approx(world.report.naive.estimate, rel=1e-13)
