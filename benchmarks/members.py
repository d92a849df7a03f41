"""Quality of an ensemble against its cost, by its members. ``python -m benchmarks.members``

Conversion models on synthetic worlds with true propensities: what the shipped ensemble reaches on random
pairs, what its members reach on average, and the time and size that it takes beside one network.
"""

from __future__ import annotations

import time
import warnings

import numpy as np

import unskew as us
from benchmarks.common import arguments, tell

MEMBERS = (1, 5)
WORLDS = (
    {"n_users": 200, "n_items": 150, "density": 0.06, "seed": 11},
    {"n_users": 400, "n_items": 300, "density": 0.06, "seed": 12},
    {"n_users": 800, "n_items": 500, "density": 0.01, "seed": 13},
)
METHODS = (us.Naive, us.IPS)
PREDICTIONS = 20
"""Of each model, for its time."""


def main() -> None:
    options = arguments(__doc__)
    warnings.simplefilter("ignore")
    rows = []
    for method in METHODS:
        one = None
        for members in MEMBERS:
            untrained = method(members=members)
            found = [_measured(untrained, world, options.device) for world in WORLDS]
            mean = {name: float(np.mean([each[name] for each in found])) for name in found[0]}
            one = one or mean
            rows.append(
                {
                    "method": method.name,
                    "members": members,
                    "auc": mean["auc"],
                    "of its members": mean["members"],
                    "dcg@6": mean["dcg@6"],
                    "nll": mean["nll"],
                    "train, times one": mean["train"] / one["train"],
                    "predict, times one": mean["predict"] / one["predict"],
                    "parameters, times one": mean["parameters"] / one["parameters"],
                }
            )
    tell("Quality of ensembles against their cost", rows, options.device, options.json)


def _measured(method: us.Debiaser, world: dict[str, float], device: str) -> dict[str, float]:
    """Of two repetitions; times are of this process on all its threads."""
    data = us.load("synthetic", test_per_user=20, **world)
    propensity = data.truth.propensity if method.needs_propensity else None
    start = time.process_time()
    model = method.fit(data.train, propensity=propensity, seeds=2, device=device)
    trained = time.process_time()
    figures = {name: float(values.mean()) for name, values in us.evaluate(model, data.test).items()}
    start_predicting = time.process_time()
    for _ in range(PREDICTIONS):
        model.predict(data.test)
    predicted = time.process_time()
    return {
        **{name: figures[name] for name in ("auc", "dcg@6", "nll")},
        "members": float(us.evaluate(model, data.test).members["auc"].mean()),
        "train": trained - start,
        "predict": predicted - start_predicting,
        "parameters": float(sum(p.numel() for p in model.networks_["prediction"].parameters())),
    }


if __name__ == "__main__":
    main()
