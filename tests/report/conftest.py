"""A run of the synthetic world with a made-up, overconfident propensity: inputs of every report test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

from unskew.calibration import make_calibrator
from unskew.data.datasets import load
from unskew.metrics import CalibrationSketch, auc, brier, ece, nll, noise_floor, wce, weight_diagnostics
from unskew.metrics.registry import metric as metric_of
from unskew.metrics.significance import holm, paired_test, summarise
from unskew.theory import truth_report

SEEDS = 10
P_MIN = 0.01
LEVELS = {
    "auc": (0.731, 0.004, {"ips_raw": 0.002, "ips": 0.014}),
    "user_auc": (0.684, 0.005, {"ips_raw": -0.003, "ips": 0.009}),
    "nll": (0.612, 0.006, {"ips_raw": -0.02, "ips": -0.04}),
    "mean_over_rate": (1.48, 0.05, {"ips_raw": -0.68, "ips": -0.39}),
    "dcg@2": (0.79, 0.015, {"ips_raw": -0.02, "ips": 0.02}),
    "dcg@4": (1.08, 0.015, {"ips_raw": -0.02, "ips": 0.025}),
    "dcg@6": (1.30, 0.015, {"ips_raw": -0.02, "ips": 0.028}),
    "hits@2": (0.93, 0.02, {"ips_raw": -0.02, "ips": 0.02}),
    "hits@4": (1.48, 0.02, {"ips_raw": -0.02, "ips": 0.03}),
    "hits@6": (2.01, 0.02, {"ips_raw": -0.02, "ips": 0.04}),
    "recall@2": (0.31, 0.008, {"ips_raw": -0.004, "ips": 0.008}),
    "ndcg@2": (0.55, 0.01, {"ips_raw": -0.004, "ips": 0.012}),
}
RANKED = [metric for metric in LEVELS if "auc" not in metric and not metric_of(metric).level]


def make_inputs() -> dict[str, Any]:
    """The arguments of ``render_run_report``."""
    random = np.random.default_rng(5)
    data = load("synthetic", seed=1)
    truth, log = data.truth, data.train
    assert truth is not None
    p = truth.propensity.ravel()
    click = np.zeros(p.size)
    click[log.cell] = 1.0
    raw = expit(0.6 + 1.55 * logit(p) + 0.5 * random.standard_normal(p.size))
    held = random.random(p.size) < 0.5
    platt = make_calibrator("platt").fit(raw[~held], click[~held])
    scores = {"raw": raw, "calibrated": platt.predict(raw)}
    sketches = {k: CalibrationSketch.of(score=s[held], outcome=click[held]) for k, s in scores.items()}
    clicked = {k: s[click == 1] for k, s in scores.items()}
    methods, comparison = _methods(random)
    rate = float(truth.labels.mean())
    error = np.where(truth.labels == 1, -np.log(rate), -np.log1p(-rate)).ravel()
    report = truth_report(
        propensity_true=p,
        error=error,
        click=click,
        propensities={
            "ips_raw": np.maximum(scores["raw"], P_MIN),
            "ips": np.maximum(scores["calibrated"], P_MIN),
            "ips_true": p,
            "ips_constant": np.full(p.size, click.mean()),
        },
    )
    rename = {"calibration": "calibration_part", "refinement": "refinement_part"}
    estimates = {
        name: {rename.get(key, key): value for key, value in each.to_dict().items()}
        for name, each in {"naive": report.naive, **report.ips}.items()
    }
    metrics = {
        "data": {
            "name": "synthetic",
            "space": "matrix",
            "users": log.n_users,
            "items": log.n_items,
            "rows": len(log),
            "clicks": log.n_clicks,
            "population": log.population_size,
            "density": log.density,
            "conversion_rate_of_clicks": float(log.known_conversion().mean()),
            "test_rows": len(data.test) if data.test is not None else 0,
            "test_is": "random",
            **data.facts,
        },
        "propensity": {k: _figures(sketches[k], clicked[k], p.size, random) for k in scores},
        "methods": methods,
        "comparison": comparison,
        "rails": {
            "random": {m: 0.5 * level[0] for m, level in LEVELS.items() if m in RANKED},
            "oracle": {m: 1.6 * level[0] for m, level in LEVELS.items() if m in RANKED},
        },
        "truth": {
            "predictor": f"the true conversion rate {rate:.4f} for every pair",
            "ideal_loss": report.ideal,
            "estimates": estimates,
        },
        "protocol": "honest",
        "p_min": P_MIN,
        "labels": [
            "propensities over all of D at the true base rate",
            "model and calibrator held out: 5-fold cross-fitted",
        ],
    }
    config = {"data": "synthetic", "calibrator": "platt", "method": "ips", "seeds": SEEDS, "p_min": P_MIN}
    histories = {name: _history(random, bottom) for name, bottom in _BOTTOMS.items()}
    return {
        "metrics": metrics,
        "config": config,
        "sketches": sketches,
        "histories": histories,
    }


_BOTTOMS = {"propensity": 0.26, "naive": 0.48, "ips_raw": 0.55, "ips": 0.53}


def _figures(sketch: CalibrationSketch, clicked: Any, size: int, random: Any) -> dict[str, Any]:
    weights = weight_diagnostics(propensity=clicked, p_min=P_MIN, population_size=size)
    figures: dict[str, Any] = {
        "ece": ece(sketch),
        "ece_floor": noise_floor(sketch),
        "wce": wce(sketch),
        "nll": nll(sketch),
        "brier": brier(sketch),
        "auc": auc(sketch),
        "mean_over_base_rate": sketch.mean_score / sketch.base_rate,
        "weight_check": weights.weight_check,
        "effective_sample_size": weights.effective_sample_size,
        "clipped": weights.clipped,
        "clipped_mass": weights.clipped_mass,
    }
    spread = {k: (v * (1 + 0.02 * random.standard_normal(SEEDS))).tolist() for k, v in figures.items()}
    return {**figures, "per_seed": spread}


def _methods(random: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    values: dict[str, dict[str, Any]] = {"naive": {}, "ips_raw": {}, "ips": {}}
    for metric, (level, spread, gains) in LEVELS.items():
        shared = level + spread * random.standard_normal(SEEDS)
        values["naive"][metric] = shared
        for method, gain in gains.items():
            values[method][metric] = shared + gain + 0.5 * spread * random.standard_normal(SEEDS)
    pairs = [(key, metric) for key in ("ips_raw", "ips") for metric in LEVELS]
    tests = [
        paired_test(*(metric_of(metric).compared_by(values[each][metric]) for each in (key, "naive")))
        for key, metric in pairs
    ]
    comparison: dict[str, Any] = {"ips_raw": {}, "ips": {}}
    for (key, metric), test, adjusted in zip(pairs, tests, holm([t.p_value for t in tests]), strict=True):
        comparison[key][metric] = {
            "difference": test.difference,
            "low": test.low,
            "high": test.high,
            "p_value": test.p_value,
            "p_holm": float(adjusted),
        }
    return {k: {m: summarise(v) for m, v in of.items()} for k, of in values.items()}, comparison


def _history(random: Any, bottom: float) -> dict[str, Any]:
    epoch = np.arange(40)[:, None]
    start = bottom + 0.02 * random.standard_normal(SEEDS)
    train = start * (0.75 + 0.6 * np.exp(-epoch / 8)) + 0.004 * random.standard_normal((40, SEEDS))
    valid = start * (1 + 0.4 * np.exp(-epoch / 6) + 0.00015 * (epoch - 14) ** 2 * (epoch > 14))
    valid = valid + 0.003 * random.standard_normal((40, SEEDS))
    return {
        "train": {"cross entropy": train.tolist()},
        "validation": valid.tolist(),
        "best_epoch": valid.argmin(axis=0).tolist(),
    }


@pytest.fixture(scope="session")
def inputs() -> dict[str, Any]:
    """The arguments of ``render_run_report``, shared: tests copy what they change."""
    return make_inputs()
