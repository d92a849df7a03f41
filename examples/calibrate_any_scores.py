"""
Honest probabilities from any scores
====================================

Chunk by chunk, through a sketch of a few kilobytes: the scores may come from any model and be of any number.

Scores are honest on the diagonal. Both axes are logarithmic: an error in a small score is one in a large
weight.
"""

import matplotlib.pyplot as plt
import numpy as np

import unskew as us
from unskew.calibration import make_calibrator
from unskew.metrics import ece, reliability_curve, wce

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
    curve = reliability_curve(honest, spacing="mass", bins=15)
    plt.plot(curve.score, curve.frequency, "o-", label=name)
    print(f"{name:9} ECE {ece(honest):.4f}, error of the weights 1/p {wce(honest):.4f}")

plt.axline((1e-3, 1e-3), (1, 1), color="grey")
plt.xscale("log")
plt.yscale("log")
plt.xlabel("score")
plt.ylabel("share that was clicked")
plt.legend()
plt.show()
