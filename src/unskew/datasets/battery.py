"""Worlds of known truth that every method must stand: twins of real logs, and hard cases; a battery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unskew.datasets.dataset import Dataset, Protocol, with_unbiased_share
from unskew.datasets.impressions import impressions
from unskew.datasets.synthetic import synthetic
from unskew.errors import ParameterError
from unskew.estimator import require_choice
from unskew.registry import register

Scale = Literal["full", "small"]

UNBIASED_SHARE = 0.05
"""Of the random log: what may be looked at to choose a model."""


@dataclass(frozen=True)
class World:
    """One world of the battery: its loader, what it is, and its options at both scales."""

    loader: Any
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


@register(order=47)
def battery(
    root: str | Path | None = None,
    *,
    protocol: Protocol = "honest",
    world: str = "coat",
    scale: Scale = "full",
    unbiased_share: float = UNBIASED_SHARE,
    seed: int = 0,
) -> Dataset:
    """Draw one world of the battery: a biased log, a random sample, and a random test log.

    Sizes and rates are those of public logs as their papers describe them; nothing was fitted to any log, and
    no method was looked at.

    Parameters
    ----------
    world
        ``"coat"``, ``"sparse"``, ``"impressions"``, ``"random"``, ``"hidden"`` or ``"tiny"``.
    scale
        ``"small"`` is for tests: seconds on a processor.
    unbiased_share
        Of the random pairs, those that become ``unbiased``; the others are the test.
    seed
        Of the world.

    Examples
    --------
    >>> data = battery(world="tiny", scale="small")
    >>> data.test_is, len(data.unbiased) < len(data.test)
    ('random', True)
    """
    if root is not None:
        raise ParameterError("the battery is drawn, not read", remedy="leave out root (--root)")
    require_choice("world", world, tuple(WORLDS))
    require_choice("scale", scale, ("full", "small"))
    described = WORLDS[world]
    options = described.full if scale == "full" else described.small
    # Pairs that were clicked in training are left out here, once it is known which of them are in the test.
    drawn = described.loader(protocol="paper", seed=seed, **options)
    facts = {**drawn.facts, "world": world, "scale": scale, "about": described.about}
    data = with_unbiased_share(replace(drawn, name="battery", facts=facts), unbiased_share, seed)
    return _without_leaks(data, protocol)


def _without_leaks(data: Dataset, protocol: Protocol) -> Dataset:
    """A sample without pairs that were clicked in training; under the honest protocol, such a test too."""
    assert data.unbiased is not None
    assert data.test is not None
    clicked = data.train.cell[data.train.clicked]
    seen, leaked = (np.isin(log.cell, clicked) for log in (data.unbiased, data.test))
    kept = ~leaked if protocol == "honest" else np.ones(len(leaked), dtype=bool)
    truth = {name: dict(of) for name, of in data.row_truth.items()}
    if "test" in truth:
        truth["test"] = {name: values[kept] for name, values in truth["test"].items()}
    counts = {
        "protocol": protocol,
        "leaked_cells_found": int(leaked.sum()),
        "leaked_cells_dropped": int((~kept).sum()),
        "unbiased_rows": int((~seen).sum()),
    }
    return replace(
        data,
        unbiased=data.unbiased.take(~seen),
        test=data.test.take(kept),
        row_truth=truth,
        facts={**data.facts, **counts},
    )
