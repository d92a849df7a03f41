"""Worlds of known truth that every method must stand: twins of real logs, and hard cases; a battery.

Sizes and rates are those of public logs as their papers describe them; nothing was fitted to any log, and no
method was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unskew.data.datasets import Dataset
from unskew.data.datasets.dataset import with_unbiased_share
from unskew.data.datasets.impressions import impressions
from unskew.data.datasets.synthetic import synthetic

UNBIASED_SHARE = 0.05
"""Of the random log: what may be looked at to choose a model."""


@dataclass(frozen=True)
class World:
    """One world of the battery: its loader, what it is, and its options at both scales."""

    loader: Callable[..., Dataset]
    about: str
    full: Mapping[str, Any]
    small: Mapping[str, Any]


WORLDS: dict[str, World] = {
    "coat": World(
        synthetic,
        "twin of Coat: 290 × 300, 8 % clicked, people choose what they like",
        {
            "n_users": 290,
            "n_items": 300,
            "density": 0.08,
            "bias": 1.2,
            "conversion_rate": 0.2,
            "test_per_user": 160,
        },
        {"n_users": 60, "n_items": 50, "density": 0.15, "bias": 1.2, "test_per_user": 25},
    ),
    "sparse": World(
        synthetic,
        "twin of a sparse rating log: 15,400 × 1,000, 2 % clicked, strong choice, few conversions",
        {
            "n_users": 15_400,
            "n_items": 1_000,
            "density": 0.02,
            "bias": 2.0,
            "conversion_rate": 0.1,
            "test_per_user": 10,
        },
        {
            "n_users": 120,
            "n_items": 60,
            "density": 0.06,
            "bias": 2.0,
            "conversion_rate": 0.1,
            "test_per_user": 20,
        },
    ),
    "thin": World(
        synthetic,
        "a sparse rating log of middle size: 3,000 × 600, 1 % clicked, strong choice",
        {
            "n_users": 3_000,
            "n_items": 600,
            "density": 0.01,
            "bias": 1.5,
            "conversion_rate": 0.15,
            "test_per_user": 10,
        },
        {"n_users": 150, "n_items": 80, "density": 0.04, "bias": 1.5, "test_per_user": 20},
    ),
    "impressions": World(
        impressions,
        "impressions with features, positions and rare conversions (2 % of all rows)",
        {
            "n_rows": 200_000,
            "n_users": 5_000,
            "n_items": 1_000,
            "test_rows": 100_000,
            "click_rate": 0.1,
            "conversion_rate": 0.02,
            "features": "auto",
        },
        {
            "n_rows": 4_000,
            "n_users": 200,
            "n_items": 60,
            "test_rows": 3_000,
            "click_rate": 0.2,
            "conversion_rate": 0.1,
            "features": "auto",
        },
    ),
    "random": World(
        synthetic,
        "a random log: clicks do not depend on anything, so that there is nothing to debias",
        {
            "n_users": 1_000,
            "n_items": 300,
            "density": 0.05,
            "bias": 0.0,
            "conversion_rate": 0.2,
            "test_per_user": 60,
        },
        {"n_users": 60, "n_items": 50, "density": 0.15, "bias": 0.0, "test_per_user": 25},
    ),
    "hidden": World(
        synthetic,
        "hidden confounding: a taste that no field holds drives click and conversion",
        {
            "n_users": 1_000,
            "n_items": 300,
            "density": 0.05,
            "bias": 1.0,
            "confounding": 1.5,
            "conversion_rate": 0.2,
            "test_per_user": 60,
        },
        {
            "n_users": 60,
            "n_items": 50,
            "density": 0.15,
            "confounding": 1.5,
            "test_per_user": 25,
        },
    ),
    "tiny": World(
        synthetic,
        "60 × 40, some 500 clicks",
        {"n_users": 60, "n_items": 40, "density": 0.2, "conversion_rate": 0.3, "test_per_user": 20},
        {"n_users": 40, "n_items": 30, "density": 0.2, "conversion_rate": 0.3, "test_per_user": 15},
    ),
}
"""By name, in the order of tables."""


def draw(
    world: str, *, small: bool = False, unbiased_share: float = UNBIASED_SHARE, seed: int = 0
) -> Dataset:
    """Draw a biased log, and a random sample and test log without pairs clicked in training."""
    described = WORLDS[world]
    # Pairs that were clicked in training are left out here, once it is known which of them are in the test.
    drawn = described.loader(protocol="paper", seed=seed, **(described.small if small else described.full))
    data = with_unbiased_share(drawn, unbiased_share, seed)
    assert data.unbiased is not None
    assert data.test is not None
    clicked = data.train.cell[data.train.clicked]
    seen, leaked = (np.isin(log.cell, clicked) for log in (data.unbiased, data.test))
    return replace(
        data, name=world, unbiased=data.unbiased.take(~seen), test=data.test.take(~leaked), row_truth={}
    )
