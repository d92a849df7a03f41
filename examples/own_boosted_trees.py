"""
Boosted trees, debiased by sample weights
=========================================

LightGBM, or scikit-learn's boosted trees where it is not installed, with ``us.sample_weight``.

Errors over all pairs, clicked or not: those of the naive model are too large on one side.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

import unskew as us

try:
    from lightgbm import LGBMClassifier
except ImportError:
    print("lightgbm is not installed: HistGradientBoostingClassifier in its place")
    model = HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=7)
else:
    model = LGBMClassifier(n_estimators=40, num_leaves=7, verbose=-1)

data = us.load("synthetic", n_users=200, n_items=150, density=0.1, bias=1.5, dimension=2)
p = us.Propensity(learner=us.Linear(), crossfit=3).fit(data.train)  # or a column of your own
user, item = np.indices(data.truth.labels.shape).reshape(2, -1)
x = np.hstack([data.train.user_features.values[user], data.train.item_features.values[item]])
clicked, bought = x[data.train.cell], data.train.conversion.astype(int)
for method in ("naive", "snips"):
    weight = us.sample_weight(None, p.predict(data.train), method=method)  # None: every row is a click
    predicted = model.fit(clicked, bought, sample_weight=weight).predict_proba(x)[:, 1]
    error = predicted - data.truth.conversion.ravel()
    plt.hist(error, bins=60, histtype="step", linewidth=2, label=method)
    print(f"{method:5} predicts {error.mean():+.3f} too much on average, off by {np.abs(error).mean():.3f}")

plt.axvline(0, color="grey")
plt.xlabel("prediction minus true conversion rate")
plt.ylabel("pairs")
plt.legend()
plt.show()
