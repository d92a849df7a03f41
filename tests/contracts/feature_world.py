"""Impressions with features of every kind: text ids, categories, numbers, a bag, missing values."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

import unskew as us

USERS, ITEMS = 240, 60
COUNTRIES = np.array(["de", "fr", "us", None], dtype=object)


@cache
def table(rows: int = 6000, seed: int = 0) -> Any:
    """What converts follows from the country and the tags; what is clicked, from the position too."""
    random = np.random.default_rng(seed)
    user, item = random.integers(USERS, size=rows), random.integers(ITEMS, size=rows)
    position, noise = random.integers(5, size=rows), random.normal(size=rows)
    country, topic = user % 4, item % 4
    price = np.where(item % 7 == 0, np.nan, np.exp((item % 20) / 4))
    match = country == topic
    click = random.random(rows) < 1 / (1 + np.exp(1.0 - 0.8 * match + 0.5 * position))
    convert = random.random(rows) < 1 / (1 + np.exp(1.2 - 2.2 * match))
    return pa.table(
        {
            "user": [f"u{each}" for each in user],
            "item": item,
            "click": click.astype(int),
            "bought": (click & convert).astype(int),
            "country": pa.array(COUNTRIES[country]),
            "price": pa.array(price, from_pandas=True),
            "tags": pa.array([[f"topic{each}", "all"][: 1 + each % 2] for each in topic]),
            "position": position,
            "noise": noise,
            "match": match,
        }
    )


def part(of: Any, *, known: bool) -> Any:
    """The rows of three users in four, or of the others."""
    number = np.array([int(each[1:]) for each in of["user"].to_pylist()])
    return of.filter(pa.array((number % 16 < 12) == known))


FEATURES: tuple[Any, ...] = (
    us.Category("country"),
    us.Number("price"),
    us.Bag("tags"),
    us.Category("position"),
    us.Number("noise"),
)


def log_of(frame: Any, features: Any = FEATURES, **options: Any) -> us.Log:
    """A log of impressions."""
    given = {"click": "click", "conversion": "bought", "space": "impressions", "features": features}
    return us.Log.from_frame(frame, **{**given, **options})
