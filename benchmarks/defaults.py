"""Every method at its defaults on synthetic worlds from 20 % to 0.2 % density, with true propensities.

    python -m benchmarks.defaults [--worlds sparse-0.2 …] [--methods ips …] [--seeds 2] [--json FILE]

For each world and method: AUC on pairs drawn uniformly from D, the mean squared error of the predicted rates
(1 is the best constant's), the level (mean prediction ÷ true rate), and whether the collapse guard found a
network that learned nothing. Worlds are trained in processes of their own.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

WORLDS: dict[str, dict[str, Any]] = {
    "dense-20": {"n_users": 200, "n_items": 100, "density": 0.2},
    "coat-like-8": {"n_users": 290, "n_items": 300, "density": 0.08},
    "sparse-2": {"n_users": 8000, "n_items": 1000, "density": 0.02, "bias": 1.5, "conversion_rate": 0.1},
    "sparse-1": {"n_users": 2000, "n_items": 1000, "density": 0.01},
    "sparse-0.2": {"n_users": 6000, "n_items": 3000, "density": 0.002, "conversion_rate": 0.2},
    "impressions-1:500": {"n_users": 4000, "n_items": 500, "density": 0.1, "conversion_rate": 0.02},
}
IMPRESSIONS = 400_000
PAIRS = 200_000


def measure(world: str, methods: list[str], seeds: int, device: str) -> Iterator[dict[str, Any]]:
    """One row for each method."""
    from sklearn.metrics import roc_auc_score

    from unskew import load
    from unskew.debias import METHODS

    data = load("synthetic", **WORLDS[world])
    log, propensity = data.train, data.truth.propensity
    if world.startswith("impressions"):
        log, propensity = _impressions(data), "p"
    random = np.random.default_rng(5)
    n_users, n_items = data.truth.conversion.shape
    user, item = random.integers(n_users, size=PAIRS), random.integers(n_items, size=PAIRS)
    rate = data.truth.conversion[user, item]
    label = random.random(PAIRS) < rate
    for name in methods:
        kind = METHODS[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind().fit(
                log, propensity=propensity if kind.needs_propensity else None, seeds=seeds, device=device
            )
        each = model.predict_pairs_each(user, item)
        yield {
            "world": world,
            "method": name,
            "auc": float(np.mean([roc_auc_score(label, line) for line in each])),
            "error": float(((each - rate) ** 2).mean() / rate.var()),
            "level": float(each.mean() / rate.mean()),
            "collapsed": sorted({network.network for network in model.collapsed_}),
        }


def _impressions(data: Any) -> Any:
    from unskew import Log

    random = np.random.default_rng(77)
    n_users, n_items = data.truth.conversion.shape
    user, item = random.integers(n_users, size=IMPRESSIONS), random.integers(n_items, size=IMPRESSIONS)
    p = data.truth.propensity[user, item]
    click = random.random(IMPRESSIONS) < p
    converts = random.random(IMPRESSIONS) < data.truth.conversion[user, item]
    return Log.from_arrays(
        user=user,
        item=item,
        click=click.astype(int),
        conversion=np.where(click, converts, np.nan),
        space="impressions",
        columns={"p": p},
        users=data.train.users,
        items=data.train.items,
    )


def _job(job: tuple[str, list[str], int, str]) -> list[dict[str, Any]]:
    return list(measure(*job))


def main() -> None:
    from unskew.debias import METHODS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS), choices=WORLDS)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    jobs = [
        (world, given.methods[start::3], given.seeds, given.device)
        for world in given.worlds
        for start in range(min(3, len(given.methods)))
    ]
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        rows = [row for part in pool.map(_job, jobs) for row in part]
    found = {(row["method"], row["world"]): row for row in rows}
    print("| method | " + " | ".join(given.worlds) + " |")
    print("|---" * (len(given.worlds) + 1) + "|")
    for method in given.methods:
        cells = (found[method, world] for world in given.worlds)
        print(
            f"| {method} | "
            + " | ".join(
                f"{row['auc']:.3f} · {row['error']:.2f} · {row['level']:.2f}"
                + (" ⚠" if row["collapsed"] else "")
                for row in cells
            )
            + " |"
        )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
