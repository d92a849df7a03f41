"""``python -m compile_once``: what numba compiles for the tests, in one process before there are several.

Workers that begin at the same time would each compile the same functions, and where they compile one function
for different types, numba's index of the cache is of the one that wrote last.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import torch

import unskew as us
from unskew.errors import CollapseWarning
from unskew.metrics import CalibrationSketch, ece

ROWS = 64


def metrics() -> None:
    """Sketches and errors of rows of every type, with weights and without."""
    random = np.random.default_rng(0)
    p, weight = random.random(ROWS), random.random(ROWS)
    o = random.integers(2, size=ROWS)
    scores, outcomes = (np.float64, np.float32), (np.uint8, np.int64, np.float64, np.float32)
    for score, outcome in itertools.product(scores, outcomes):
        rows = {"score": p.astype(score), "outcome": o.astype(outcome)}
        CalibrationSketch.of(**rows)
        if score is np.float64:
            ece(**rows)
            CalibrationSketch.of(**rows, weight=weight)
    ece(score=p, outcome=o, weight=weight)
    for kind in (us.Isotonic, us.VennAbers):
        kind().fit(p, o).predict(p)


def training() -> None:
    """NeuMF with dropout."""
    log = us.load("synthetic", n_users=20, n_items=20, density=0.3).train
    us.Naive(backbone=us.NeuMF(dim=4, layers=(8, 4)), epochs=1).fit(log).predict(log)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", CollapseWarning)  # A step or two teach nothing.
    metrics()
    training()
    us.load("impressions", n_users=50, n_items=20, n_rows=500, test_rows=100)
