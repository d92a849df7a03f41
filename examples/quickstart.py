"""
From a log to a debiased model
==============================

Honest propensities, a doubly robust conversion model, and what both amount to on pairs shown at random.
"""

import matplotlib.pyplot as plt
import numpy as np

import unskew as us
from unskew.metrics import reliability_curve

data = us.load("synthetic", n_users=100, n_items=80)  # or us.read_log("clicks.parquet", user=…, item=…, …)

propensity = us.Propensity(learner=us.MF(), calibrator=us.Platt(), crossfit=3, learning_rate=0.01)
propensity.fit(data.train, seeds=3)
figures = propensity.diagnose()["calibrated"]
print(f"propensities: ECE {figures['ece']:.3f} (noise {figures['ece_floor']:.3f}), AUC {figures['auc']:.3f}")

model = us.MRDR(learner=us.MF(), p_min=0.05, learning_rate=0.01)
model.fit(data.train, propensity=propensity, seeds=3)
for metric, seeds in us.evaluate(model, data.test).items():
    print(f"{metric:9} {seeds.mean():.3f} ± {seeds.std(ddof=1):.3f}")

# %%
# Of pairs with a propensity p, a share p should have been clicked. The bars are 95 % intervals.

clicked = np.isin(np.arange(100 * 80), data.train.cell)
for name in ("raw", "calibrated"):
    score = propensity.predict_matrix_each(calibrated=name == "calibrated")[0].ravel()
    curve = reliability_curve(score=score, outcome=clicked, spacing="mass", bins=8)
    reach = np.abs(np.array([curve.low, curve.high]) - curve.frequency)
    plt.errorbar(curve.score, curve.frequency, reach, fmt="o-", capsize=3, label=name)
plt.axline((0, 0), slope=1, color="grey", label="honest")
plt.xlabel("propensity")
plt.ylabel("share that was clicked")
plt.legend()
plt.show()
