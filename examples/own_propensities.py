"""
Propensities of your own
========================

They are a column of your table of impressions, and are used as they are.

Impressions in the better place are clicked more often, and bought more often once clicked: the naive model
takes their rate for that of all. Weights undo it.
"""

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa

import unskew as us

random = np.random.default_rng(0)
on_top = random.random(20_000) < 0.25  # a better place: clicked and bought more often, whatever the item
p = np.where(on_top, 0.5, 0.1)  # what your own model says about each impression
clicked = (random.random(20_000) < p).astype(int)
user, item = random.integers(60, size=20_000), random.integers(40, size=20_000)
bought = random.random(20_000) < np.where(on_top, 0.6, 0.2) * (0.5 + item / 40)  # some items sell better
known = np.where(clicked == 1, bought, np.nan)  # known only where it was clicked
shown = pa.table(
    {"uid": user, "iid": item, "p": p, "clicked": clicked, "bought": known}
)  # or a data frame of yours

names = {"user": "uid", "item": "iid", "click": "clicked", "conversion": "bought"}
log = us.Log.from_frame(shown, **names, keep=("p",), space="impressions")
for method in (us.Naive(learner=us.MF(dim=4)), us.SNIPS(learner=us.MF(dim=4))):
    method.set_params(learning_rate=0.02).fit(log, propensity="p", seeds=3)
    plt.bar(method.name, method.predict(log).mean())
    print(f"{method.name:6} mean conversion {method.predict(log).mean():.3f} (true {bought.mean():.3f})")
print(f"Σ 1/p over clicks ÷ impressions = {method.clipping_[0].weight_check:.2f} (1 if p is honest)")

plt.axhline(bought.mean(), color="grey", label="true")
plt.ylabel("mean conversion")
plt.legend()
plt.show()
