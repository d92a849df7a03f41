"""Three worlds with known truth that every method must cope with at its defaults, and how it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

import unskew as us

PAIRS = 60_000
"""Pairs drawn uniformly from all of D, on which models are judged."""


@dataclass(frozen=True)
class World:
    """A log, its true propensities, and uniform pairs with their true conversion rates."""

    log: us.Log
    propensity: Any
    user: NDArray[np.int64]
    item: NDArray[np.int64]
    rate: NDArray[np.float64]
    label: NDArray[np.int64]

    def auc(self, model: us.Debiaser) -> float:
        """On pairs as if shown at random."""
        return float(roc_auc_score(self.label, self.predicted(model)))

    def error(self, model: us.Debiaser) -> float:
        """Mean squared error of the rates, 1 for the best constant."""
        return float(((self.predicted(model) - self.rate) ** 2).mean() / self.rate.var())

    def predicted(self, model: us.Debiaser) -> NDArray[np.float64]:
        """Of the pairs, the mean over seeds."""
        return np.asarray(model.predict_pairs_each(self.user, self.item).mean(axis=0))


@cache
def coat_like() -> World:
    """290 × 300 at 8 %."""
    return _matrix(n_users=290, n_items=300, density=0.08, conversion_rate=0.3)


@cache
def sparse() -> World:
    """1,000 × 700 at 1 %: some 7 clicks a user."""
    return _matrix(n_users=1000, n_items=700, density=0.01, conversion_rate=0.3)


@cache
def impressions() -> World:
    """Impressions of which one in 130 converts: 25 % are clicked, 3 % of those convert, some 300.

    Conversions are what a model learns from here, clicks what makes an epoch long: a rarer click costs
    time and shows nothing more.
    """
    n_users, n_items, rows = 400, 100, 40_000
    world = us.load("synthetic", n_users=n_users, n_items=n_items, density=0.25, conversion_rate=0.03)
    random = np.random.default_rng(7)
    user, item = random.integers(n_users, size=rows), random.integers(n_items, size=rows)
    p = world.truth.propensity[user, item]
    click = (random.random(rows) < p).astype(int)
    converts = random.random(rows) < world.truth.conversion[user, item]
    log = us.Log.from_arrays(
        user=user,
        item=item,
        click=click,
        conversion=np.where(click == 1, converts, np.nan),
        space="impressions",
        columns={"p": p},
        users=world.train.users,
        items=world.train.items,
    )
    return _judged(log, "p", world.truth.conversion)


def _matrix(**options: Any) -> World:
    world = us.load("synthetic", bias=1.0, **options)
    return _judged(world.train, world.truth.propensity, world.truth.conversion)


def _judged(log: us.Log, propensity: Any, conversion: NDArray[np.float64]) -> World:
    random = np.random.default_rng(5)
    n_users, n_items = conversion.shape
    user, item = random.integers(n_users, size=PAIRS), random.integers(n_items, size=PAIRS)
    rate = conversion[user, item]
    return World(log, propensity, user, item, rate, (random.random(PAIRS) < rate).astype(int))


WORLDS = {"coat-like": coat_like, "sparse": sparse, "impressions": impressions}
