"""Stacked seeds against the same seeds alone, and TF32 against float32. ``python -m benchmarks.quality``"""

from __future__ import annotations

import numpy as np

from benchmarks.common import arguments, tell
from unskew.data.datasets import load
from unskew.metrics import auc, nll
from unskew.metrics.significance import paired_test
from unskew.propensity import Propensity
from unskew.training import loop

SEEDS = 20
EPOCHS = 12


def figures(seeds: list[int], device: str) -> np.ndarray:
    """Held-out NLL and AUC ``[seeds, 2]`` of propensities on a synthetic world of Coat's size."""
    log = load("synthetic", n_users=290, n_items=300, density=0.08).train
    propensity = Propensity(calibrator=None, crossfit=None, epochs=EPOCHS, patience=None).fit(
        log, seeds=seeds, device=device
    )
    sketches = propensity.held_out_sketches(calibrated=False)
    return np.array([[nll(s), auc(s)] for s in sketches])


def main() -> None:
    options = arguments(__doc__)
    seeds = list(range(SEEDS))
    stacked = figures(seeds, options.device)
    comparisons = {"trained alone": np.concatenate([figures([seed], options.device) for seed in seeds])}
    if options.device.startswith("cuda"):
        loop.ALLOW_TF32 = False
        comparisons["in float32 instead of TF32"] = figures(seeds, options.device)
        loop.ALLOW_TF32 = True
    rows = []
    for name, other in comparisons.items():
        for column, metric in enumerate(("nll", "auc")):
            test = paired_test(stacked[:, column], other[:, column])
            error = stacked[:, column].std(ddof=1) / np.sqrt(SEEDS)
            rows.append(
                {
                    "stacked against": name,
                    "metric": metric,
                    "stacked": float(stacked[:, column].mean()),
                    "other": float(other[:, column].mean()),
                    "difference, standard errors": float(test.difference / error),
                    "p": float(test.p_value),
                }
            )
    tell(f"Held-out quality over {SEEDS} paired seeds", rows, options.device, options.json)


if __name__ == "__main__":
    main()
