"""
Your own PyTorch loop, debiased
===============================

The model and the loop are yours; the loss is ``us.losses.dr``.

Clicks convert more often than other pairs, and the naive model predicts so for all of them.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import unskew as us

data = us.load("synthetic", n_users=200, n_items=150, density=0.1, bias=1.5, dimension=2)
propensity = us.Propensity(learner=us.Linear(), crossfit=3).fit(data.train)  # or any probabilities of a click
p = torch.tensor(propensity.predict_matrix_each()[0].ravel()).float().clamp(min=0.01)
user, item = np.indices(data.truth.labels.shape).reshape(2, -1)
x = torch.tensor(np.hstack([data.train.user_features.values[user], data.train.item_features.values[item]]))
click = torch.tensor(np.isin(np.arange(len(x)), data.train.cell))
bought = torch.where(click, torch.tensor(data.truth.labels.ravel()), torch.nan)  # known on clicks

tenths = np.array_split(np.argsort(data.truth.conversion.ravel()), 10)
for name in ("naive", "dr"):
    torch.manual_seed(0)
    model, imputer = (nn.Sequential(nn.Linear(x.shape[1], 16), nn.ReLU(), nn.Linear(16, 1)) for _ in range(2))
    optimiser = torch.optim.Adam([*model.parameters(), *imputer.parameters()], lr=0.01)
    for rows in torch.arange(len(x)).repeat(5)[torch.randperm(5 * len(x))].split(1024):
        r, a, b = bought[rows], model(x[rows])[:, 0], imputer(x[rows])[:, 0]
        loss = us.losses.naive(r, a, click=click[rows])
        if name == "dr":
            loss = us.losses.dr(r, a, p[rows], b, click=click[rows])
            loss += us.losses.dr_jl_imputation(r, b, a, p[rows], click=click[rows], loss="ce")
        optimiser.zero_grad(), loss.backward(), optimiser.step()
    predicted = model(x)[:, 0].sigmoid().detach().numpy()
    error = predicted - data.truth.conversion.ravel()
    means = [(data.truth.conversion.ravel()[rows].mean(), predicted[rows].mean()) for rows in tenths]
    plt.plot(*zip(*means, strict=True), "o-", label=name)
    print(f"{name:5} predicts {error.mean():+.3f} too much on average, off by {np.abs(error).mean():.3f}")

plt.axline((0, 0), slope=1, color="grey", label="right")
plt.xlabel("true conversion rate, by tenths of all pairs")
plt.ylabel("mean prediction")
plt.legend()
plt.show()
