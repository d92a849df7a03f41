"""Models with features against models of ids on impressions. ``python -m benchmarks.feature_models``

A log of impressions with known truth, and a random test set in which many users are new; models of ids score
them as the average user. Propensities read all fields, conversion models all but the position, which they
must not read. The table has the AUC over all test rows and over those of new users, the distance of the mean
cross-entropy to that of the true probabilities, and the level (mean prediction over the true rate).
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

import unskew as us
from unskew.base.errors import CollapseWarning

FIELDS = ["country", "age", "interests", "category", "brand", "price", "tags", "device", "discount"]
METHODS = {"naive": us.Naive, "ips": us.IPS, "dr-jl": us.DRJL, "mrdr": us.MRDR}


def judged(
    each: NDArray[Any], outcome: NDArray[Any], truth: NDArray[Any], new: NDArray[Any]
) -> dict[str, Any]:
    """Figures of each seed's predictions ``[seeds, n]``."""

    def loss(p: NDArray[Any]) -> float:
        p = np.clip(p, 1e-7, 1 - 1e-7)
        return float(-(truth * np.log(p) + (1 - truth) * np.log1p(-p)).mean())

    return {
        "AUC": [roc_auc_score(outcome, p) for p in each],
        "AUC, new users": [roc_auc_score(outcome[new], p[new]) for p in each],
        "loss above the truth's": [loss(p) - loss(truth) for p in each],
        "level": [p.mean() / truth.mean() for p in each],
    }


def study(options: argparse.Namespace, confounding: float) -> list[dict[str, Any]]:
    """Every method with ids and with features."""
    size = {"n_rows": options.rows, "n_users": options.users, "n_items": options.items}
    given = {**size, "test_rows": 20_000, "confounding": confounding}
    data = us.load("impressions", **given, features=[*FIELDS, "position"])
    with_fields, of_ids = (us.load("impressions", **given, features=each) for each in (FIELDS, None))
    assert data.test is not None
    truth = data.row_truth["test"]
    new = ~np.isin(data.test.users.ids[data.test.user], data.train.users.ids[np.unique(data.train.user)])
    propensity = us.Propensity(learner=us.DCN(), calibrator=us.Platt())
    p = propensity.fit(data.train, seeds=1, device=options.device).predict(data.train)
    rows = []
    for name, method in METHODS.items():
        for kind, learner, of, unseen in (
            ("ids", us.NeuMF(), of_ids, "average"),
            ("features", us.DCN(), with_fields, "other"),
        ):
            weights = {} if name == "naive" else {"propensity": p}
            model = method(learner=learner).fit(
                of.train, seeds=options.seeds, device=options.device, **weights
            )
            each = model.predict_each(of.test, unseen=unseen)
            found = judged(each, truth["would_convert"], truth["true_conversion"], new)
            means = {name: (np.mean(values), np.std(values, ddof=1)) for name, values in found.items()}
            rows.append({"method": name, "reads": kind, **means})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--confounding", type=float, nargs="*", default=[0.0, 1.0])
    options = parser.parse_args()
    warnings.simplefilter("ignore", CollapseWarning)
    for confounding in options.confounding:
        rows = study(options, confounding)
        print(f"\nhidden confounding {confounding:g}\n")
        names = list(rows[0])
        print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
        for row in rows:
            cells = [v if isinstance(v, str) else f"{v[0]:.4f} ± {v[1]:.4f}" for v in row.values()]
            print("| " + " | ".join(cells) + " |")
        print(json.dumps({"confounding": confounding, "rows": rows}))


if __name__ == "__main__":
    main()
