"""Every calibrator on one propensity, beside a constant: ``python -m benchmarks.calibrator_comparison``

``--data coat --root DIR`` reads a log. The raw propensity is trained once, cross-fitted. Each calibrator is
fitted K times, on the out-of-fold scores of K − 1 folds, and judged on all cells of D: neither model nor
calibrator saw the cell it is judged on. A constant has a perfect ECE and debiases nothing: read NLL and AUC.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.common import markdown
from unskew.calibration import CALIBRATORS, make_calibrator
from unskew.data import Log
from unskew.data.datasets import load
from unskew.metrics.registry import SHOWN_PROPENSITY
from unskew.propensity import Propensity
from unskew.propensity.propensity import BasePropensity
from unskew.run.propensities import given_everywhere

SHOWN = tuple(each for each in SHOWN_PROPENSITY if each.name not in ("brier", "clipped_mass"))


def study(log: Log, raw: BasePropensity) -> list[tuple[str, ...]]:
    """Return a row for each calibrator of a fitted propensity, and one for the constant."""
    found = {}
    for name in CALIBRATORS:
        used = None if name == "none" else make_calibrator(name)
        found[name] = raw.reread(calibrator=used).diagnose(log)["calibrated"]
    constant = np.full(log.population_size, log.density)
    found["constant"] = dict(given_everywhere(log, constant, "auto").figures)
    return [(name, *(each.text(row[each.name]) for each in SHOWN)) for name, row in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default="synthetic")
    parser.add_argument("--root", default=None, help="the folder of the dataset's files")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    log = load(options.data, options.root).train
    raw = Propensity(calibrator=None, crossfit=5).fit(log, seeds=options.seeds, device=options.device)
    print(markdown(("calibrator", *(each.label for each in SHOWN)), study(log, raw)))


if __name__ == "__main__":
    main()
