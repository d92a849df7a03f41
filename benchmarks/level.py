"""Predicted ÷ actual rate before and after recalibration by clicks. ``python -m benchmarks.level``

Naive and IPS models on synthetic worlds of several sizes and densities, with true propensities, those of a
logistic regression and those of a factorisation; the level is over all pairs, against their true rates.
``shift`` maps weighted held-out clicks, ``DR`` takes the mean prediction of all pairs and the weighted
residual of held-out clicks, ``auto`` moves as far as the clicks can be trusted.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

import unskew as us
from benchmarks.common import arguments, tell
from unskew.propensity.given import given_propensities

WORLDS = (
    {"n_users": 120, "n_items": 100, "density": 0.2},
    {"n_users": 300, "n_items": 200, "density": 0.09},
    {"n_users": 500, "n_items": 400, "density": 0.02},
    {"n_users": 1000, "n_items": 1000, "density": 0.002},
)
HIDDEN = {"n_users": 300, "n_items": 200, "density": 0.09, "confounding": 1.0}
SEEDS = (1, 2)
"""Of worlds; each model has two repetitions."""

FACTORISED_CELLS = 60_000
"""Pairs up to which propensities are factorised too, which takes long."""

PAIRS = 20_000
"""Of a world, at random, on which the level is looked at."""

STOPPED_PAIRS = 60_000
"""Pairs of the worlds in which a NeuMF is trained too: it stops before it has the level of its weights."""

FORMS = ("before", "shift", "DR", "auto")

Floats = NDArray[np.float64]


def main() -> None:
    options = arguments(__doc__)
    warnings.simplefilter("ignore")
    rows = _rows(WORLDS, options.device)
    tell("Predicted ÷ actual rate over all pairs", rows, options.device, options.json)
    tell("Its distance to 1, by propensities and method", _summaries(rows), options.device, None)
    tell("With hidden confounding", _rows((HIDDEN,), options.device), options.device, None)


def _rows(worlds: Sequence[dict[str, Any]], device: str) -> list[dict[str, Any]]:
    return [
        {**_described(world), "world": seed, **row}
        for world in worlds
        for seed in SEEDS
        for row in _levels(us.load("synthetic", seed=seed, **world), device)
    ]


def _summaries(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over worlds, and how often a distance grew by more than 0.02."""
    kinds = dict.fromkeys((row["propensity"], row["method"]) for row in rows)
    found = []
    for kind in kinds:
        own = [row for row in rows if (row["propensity"], row["method"]) == kind]
        off = {name: np.array([abs(row[name] - 1.0) for row in own]) for name in FORMS}
        grown = {f"{name} worse": int((off[name] > off["before"] + 0.02).sum()) for name in FORMS[1:]}
        means = {name: float(each.mean()) for name, each in off.items()}
        found.append({"propensity": kind[0], "method": kind[1], "worlds": len(own), **means, **grown})
    return found


def _described(world: dict[str, Any]) -> dict[str, Any]:
    return {"pairs": f"{world['n_users']} × {world['n_items']}", "density": world["density"]}


def _levels(data: us.Dataset, device: str) -> list[dict[str, Any]]:
    log = data.train
    cells = np.random.default_rng(0).choice(
        log.n_users * log.n_items, min(PAIRS, log.n_users * log.n_items), replace=False
    )
    users, items = np.divmod(cells, log.n_items)
    actual = data.truth.conversion[users, items].mean()
    network = {"learner": us.MF(dim=8), "learning_rate": 0.01, "patience": 5}
    sets: dict[str, Any] = {"true": data.truth.propensity}
    sets["linear"] = us.Propensity(learner=us.Linear(), crossfit=3).fit(log, device=device)
    if log.n_users * log.n_items <= FACTORISED_CELLS:
        sets["factorised"] = us.Propensity(**network, crossfit=2, epochs=30).fit(log, device=device)
    naive = us.Naive(**network).fit(log, seeds=2, device=device)
    found = []
    for name, propensity in sets.items():
        models = {"naive": naive, "ips": us.IPS(**network)}
        if log.n_users * log.n_items == STOPPED_PAIRS:
            models["ips, NeuMF"] = us.IPS()
        for called, model in models.items():
            if model is not naive:
                model.fit(log, propensity=propensity, seeds=2, device=device)
            model.recalibration_ = None

            def level(model: us.Debiaser = model) -> float:
                each = model.predict_pairs_each(log.users.ids[users], log.items.ids[items])
                return float(each.mean() / actual)

            row: dict[str, Any] = {"propensity": name, "method": called, "before": level()}
            everywhere = model.predict_pairs_each(log.users.ids[users], log.items.ids[items])
            row["DR"] = float(_doubly_robust(model, log, propensity, everywhere).mean() / actual)
            for kind in ("shift", "auto"):
                model.recalibrate_on(log, propensity=propensity, by=kind)
                row[kind] = level()
            found.append(row)
    return found


def _doubly_robust(model: us.Debiaser, log: us.Log, propensity: Any, everywhere: Floats) -> Floats:
    """Predictions of all pairs ``[seeds, n]``, shifted to their mean plus the weighted mean residual."""
    given = given_propensities(log, propensity, model.seeds_, model.p_min).clicked
    shifted = []
    for seed, rows in enumerate(model.validation_rows(log)):
        weight = 1.0 / given[seed % len(given), np.searchsorted(log.clicked, rows)]
        residual = log.conversion[rows] - model.predict_lines_each(log.take(rows))[seed]
        aim = np.clip(everywhere[seed].mean() + weight @ residual / weight.sum(), 1e-6, 1 - 1e-6)
        z = logit(np.clip(everywhere[seed], 1e-12, 1 - 1e-12))
        shifted.append(expit(z + brentq(lambda c, z=z, aim=aim: expit(z + c).mean() - aim, -30, 30)))
    return np.stack(shifted)


if __name__ == "__main__":
    main()
