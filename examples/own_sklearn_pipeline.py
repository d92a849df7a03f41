"""
A scikit-learn pipeline, debiased
=================================

It is trained on clicks and predicts for all rows: ``us.DebiasedClassifier``.

Clicks convert more often than other pairs, and the naive model predicts so for all of them.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import unskew as us

data = us.load("synthetic", n_users=200, n_items=150, density=0.1, bias=1.5, dimension=2)
user, item = np.indices(data.truth.labels.shape).reshape(2, -1)
features = [data.train.user_features, data.train.item_features]
columns = [name for each in features for name in each.names]
shown = pd.DataFrame(np.hstack([features[0].values[user], features[1].values[item]]), columns=columns)
shown = shown.assign(user=user, item=item)
click = np.isin(np.arange(len(shown)), data.train.cell)
bought = np.where(click, data.truth.labels.ravel(), np.nan)  # known on clicks

model = make_pipeline(make_column_transformer((StandardScaler(), columns)), LogisticRegression())
tenths = np.array_split(np.argsort(data.truth.conversion.ravel()), 10)
propensity = us.Propensity(learner=us.Linear(), crossfit=3).fit(data.train)
p = propensity.predict_matrix_each().mean(axis=0).ravel()  # one number for each row
for method in ("naive", "snips"):
    debiased = us.DebiasedClassifier(model, method=method)
    predicted = debiased.fit(shown, bought, click=click, propensity=p).predict_proba(shown)[:, 1]
    error = predicted - data.truth.conversion.ravel()
    means = [(data.truth.conversion.ravel()[rows].mean(), predicted[rows].mean()) for rows in tenths]
    plt.plot(*zip(*means, strict=True), "o-", label=method)
    print(f"{method:5} predicts {error.mean():+.3f} too much on average, off by {np.abs(error).mean():.3f}")

plt.axline((0, 0), slope=1, color="grey", label="right")
plt.xlabel("true conversion rate, by tenths of all pairs")
plt.ylabel("mean prediction")
plt.legend()
plt.show()
