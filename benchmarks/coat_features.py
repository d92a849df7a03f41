"""Coat with and without its features, in propensity and model. ``python -m benchmarks.coat_features``

``--root`` is the folder of Coat's files. Honest protocol: propensities cross-fitted and Platt-scaled, the
epoch chosen on clicks, test pairs that were clicked in training left out.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import unskew as us
from unskew.base.errors import CollapseWarning

METHODS = {"naive": us.Naive, "ips": us.IPS, "mrdr": us.MRDR}
SHOWN = ("auc", "dcg@4", "hits@6", "nll", "mean_over_rate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, default=None, help="fewer, to try the command")
    options = parser.parse_args()
    warnings.simplefilter("ignore", CollapseWarning)
    short = {} if options.epochs is None else {"epochs": options.epochs}
    training = {"seeds": options.seeds, "device": options.device}
    of = {
        "ids": us.load("coat", root=options.root),
        "features": us.load("coat", root=options.root, features="auto"),
    }
    networks = {
        "NeuMF, ids": ("ids", us.NeuMF()),
        "DCN, ids": ("ids", us.DCN()),
        "DCN, features": ("features", us.DCN()),
    }
    propensities = {}
    print("| propensity | ECE | NLL | AUC | Σ1/p ÷ size of D |\n|---|---|---|---|---|")
    for name, (kind, learner) in networks.items():
        p = us.Propensity(learner=learner, calibrator=us.Platt(), **short).fit(of[kind].train, **training)
        propensities[name] = p
        found = p.diagnose()["calibrated"]
        figures = [f"{found[figure]:.4f}" for figure in ("ece", "nll", "auc", "weight_check")]
        print(f"| {name} | " + " | ".join(figures) + " |")
    print("\n| method | propensity | model | " + " | ".join(SHOWN) + " |")
    print("|---|---|---|" + "---|" * len(SHOWN))
    for method, make in METHODS.items():
        for given, p in {"–": None}.items() if method == "naive" else propensities.items():
            for name, (kind, learner) in networks.items():
                weights = {} if p is None else {"propensity": p}
                model = make(learner=learner, **short).fit(of[kind].train, **weights, **training)
                result = us.evaluate(model, of[kind].test)
                cells = [f"{np.mean(result[k]):.4f} ± {np.std(result[k], ddof=1):.4f}" for k in SHOWN]
                print(f"| {method} | {given} | {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
