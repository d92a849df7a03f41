"""Tables trained by touched rows against dense Adam, paired seeds. ``python -m benchmarks.table_quality``

On a sparse synthetic world, and on Coat where its folder is given (``--coat DIR``).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import unskew as us
from benchmarks.common import tell
from unskew.data.datasets import load
from unskew.debias.evaluation import evaluate
from unskew.metrics.significance import paired_test
from unskew.training import adam

SEEDS = 10
BATCH = 64
"""Small, so that rows wait for many steps between their gradients."""
METRICS = ("auc", "nll")
MF, SMALL = us.MF(dim=16), us.NeuMF(dim=16, layers=(16, 8))
SHARED: dict[str, Any] = {"batch_size": BATCH, "epochs": 10}
METHODS: dict[str, Callable[[], us.Debiaser]] = {
    "ips, mf": lambda: us.IPS(learner=MF, **SHARED),
    "ips, mf, no weight decay": lambda: us.IPS(learner=MF, weight_decay=0.0, **SHARED),
    "dr-jl, mf": lambda: us.DRJL(learner=MF, **SHARED),
    "ips, neumf": lambda: us.IPS(learner=SMALL, **SHARED),
}


def figures(make: Callable[[], us.Debiaser], data: Any, device: str, *, lazy: bool) -> np.ndarray:
    """Metrics on the test log ``[seeds, metrics]``; tables by touched rows, or all dense."""
    adam.FEWEST_ROWS = adam.FEWEST_ROWS_ON_GPU = 0 if lazy else 1 << 40
    propensity = us.PopularityPropensity().fit(data.train)
    model = make()
    model = model.fit(data.train, propensity=propensity, seeds=SEEDS, device=device)
    found = evaluate(model, data.test)
    return np.array([found[metric] for metric in METRICS]).T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coat", default=None, help="the folder of Coat's files")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", default=None, help="also write the results to this file")
    options = parser.parse_args()
    worlds = {"synthetic, 0.4 % clicked": load("synthetic", n_users=2000, n_items=1000, density=0.004)}
    if options.coat:
        worlds["coat"] = load("coat", root=options.coat)
    rows = []
    for world, data in worlds.items():
        for name, make in METHODS.items():
            lazy = figures(make, data, options.device, lazy=True)
            dense = figures(make, data, options.device, lazy=False)
            for column, metric in enumerate(METRICS):
                test = paired_test(lazy[:, column], dense[:, column])
                error = dense[:, column].std(ddof=1) / np.sqrt(SEEDS)
                rows.append(
                    {
                        "data": world,
                        "method": name,
                        "metric": metric,
                        "touched rows": float(lazy[:, column].mean()),
                        "dense Adam": float(dense[:, column].mean()),
                        "difference, standard errors": float(test.difference / error),
                        "p": float(test.p_value),
                    }
                )
                print(rows[-1], flush=True)
    tell(f"{SEEDS} paired seeds, batches of {BATCH}", rows, options.device, options.json)


if __name__ == "__main__":
    main()
