"""Scores of any model, honest probabilities out: chunk by chunk, through a sketch of a few kilobytes."""

import numpy as np

import unskew as us
from unskew.calibration import make_calibrator
from unskew.metrics import ece, wce

random = np.random.default_rng(0)


def chunk(rows=200_000):
    logit = random.normal(-3, 1.5, rows)
    click = random.random(rows) < 1 / (1 + np.exp(-(0.6 * logit - 1)))
    return 1 / (1 + np.exp(-logit)), click  # an overconfident model's scores, and what happened


sketch = us.CalibrationSketch()
for _ in range(5):
    sketch.update(*chunk())
score, click = chunk()
for name in ("none", "platt", "isotonic"):
    honest = us.CalibrationSketch.of(score=make_calibrator(name).fit(sketch).predict(score), outcome=click)
    print(f"{name:9} ECE {ece(sketch=honest):.4f}, error of the weights 1/p {wce(sketch=honest):.4f}")
