"""Quality of an ensemble against its cost, by members. ``python -m benchmarks.members``

Conversion models on synthetic worlds with true propensities: what the shipped ensemble reaches on random
pairs, what its members reach on average, and the time and size that it takes beside one network.
"""

from __future__ import annotations

import time
import warnings

import numpy as np

import unskew as us
from benchmarks.common import arguments, tell

MEMBERS = (1, 2, 5, 10)
WORLDS = (1, 2)
METHODS = (us.Naive, us.IPS)


def main() -> None:
    options = arguments(__doc__)
    warnings.simplefilter("ignore")
    rows = []
    for method in METHODS:
        one = None
        for members in MEMBERS:
            found = [_measured(method, members, world, options.device) for world in WORLDS]
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


def _measured(method: type[us.Debiaser], members: int, world: int, device: str) -> dict[str, float]:
    """Of two repetitions."""
    data = us.load("synthetic", n_users=200, n_items=150, density=0.06, test_per_user=20, seed=world)
    propensity = data.truth.propensity if method.needs_propensity else None
    start = time.perf_counter()
    model = method(members=members).fit(data.train, propensity=propensity, seeds=2, device=device)
    trained = time.perf_counter()
    figures = {name: float(values.mean()) for name, values in us.evaluate(model, data.test).items()}
    start_predicting = time.perf_counter()
    model.predict(data.test)
    predicted = time.perf_counter()
    return {
        **{name: figures[name] for name in ("auc", "dcg@6", "nll")},
        "members": float(us.evaluate_members(model, data.test)["auc"].mean()),
        "train": trained - start,
        "predict": predicted - start_predicting,
        "parameters": float(sum(p.numel() for p in model.networks_["prediction"].parameters())),
    }


if __name__ == "__main__":
    main()
