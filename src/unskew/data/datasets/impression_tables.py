"""Rows of the impression world as Arrow tables: what a log would hold, and apart from it the truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.data.datasets.impression_world import START, TOPICS, Columns, ImpressionWorld

COUNTRY = (
    *("us", "de", "fr", "gb", "es", "it", "pl", "nl", "br", "jp"),
    *("in", "mx", "ca", "au", "se", "ch", "at", "be", "pt", "dk"),
)
DEVICE = ("phone", "desktop", "tablet")
CATEGORY = tuple(f"category_{number:02d}" for number in range(24))

COLUMNS: Mapping[str, str] = {
    "user": "id of the user",
    "item": "id of the item",
    "session": "number of the session; negative for rows shown at random",
    "position": "place in the session, from 0",
    "time": "when the session was (UTC)",
    "click": "0 or 1; not in the random test set, whose conversions are all known",
    "conversion": "0 or 1, and 0 where there was no click",
    "conversion_time": "when the conversion was; null where there is none (it gives the conversion away)",
    "country": "of the user: 20 values",
    "age": "of the user: years; missing for 5 % of users",
    "interests": "of the user: 1 to 4 of 16 topics",
    "category": "of the item: 24 values",
    "brand": "of the item: a whole number that names it, one for about 25 items",
    "price": "of the item",
    "tags": "of the item: 0 to 4 of the 16 topics",
    "device": "of the session: phone, desktop or tablet",
    "discount": "of the row: a share of the price, 0 for most",
}
"""What the columns of the log are."""

TRUTH: Mapping[str, str] = {
    "true_examination": "the probability that the position is examined; a click needs it",
    "true_click": "P(click), the true propensity",
    "true_conversion": "P(conversion if clicked), whether clicked or not",
    "true_taste": "the hidden taste of the pair, standard normal; it acts with confounding above 0",
    "examined": "0 or 1: drawn",
    "would_convert": "0 or 1: the conversion that follows, or would have followed, a click",
}
"""What the columns of the truth are; a model must not see them."""

OUTCOMES = ("click", "conversion", "conversion_time")
USER_FEATURES = ("country", "age", "interests")
ROW_FEATURES = ("device", "discount", "position")


def log_table(world: ImpressionWorld, rows: Columns) -> Any:
    """Return the rows as a log has them, with the columns of :data:`COLUMNS`."""
    converted = (rows["click"] == 1) & (rows["label"] == 1)
    when = rows["time"] + rows["delay"]
    if world.censored:
        converted &= START + when.astype("timedelta64[ms]") < world.end
    columns = _shown(world, rows) | {
        "click": pa.array(rows["click"]),
        "conversion": pa.array(converted.view(np.uint8)),
        "conversion_time": _times(when, missing=~converted),
    }
    return pa.table({name: columns[name] for name in COLUMNS})


def test_table(world: ImpressionWorld, rows: Columns) -> Any:
    """Return rows shown at random: every conversion is known, whatever was clicked, so there is no click."""
    columns = _shown(world, rows) | {"conversion": pa.array(rows["label"])}
    return pa.table({name: columns[name] for name in COLUMNS if name in columns})


def truth_table(rows: Columns) -> Any:
    """Return what a real log never tells, with the columns of :data:`TRUTH`."""
    names = ("examination", "p_click", "p_conversion", "taste", "examined", "label")
    return pa.table({truth: rows[name] for truth, name in zip(TRUTH, names, strict=True)})


def _shown(world: ImpressionWorld, rows: Columns) -> dict[str, Any]:
    user, item = world.of_users(rows["user"]), world.of_items(rows["item"])
    return {
        **{name: pa.array(rows[name]) for name in ("user", "item", "session", "position", "discount")},
        "time": _times(rows["time"]),
        "country": _named(user["country"], COUNTRY),
        "age": pa.array(user["age"], mask=np.isnan(user["age"])),
        "interests": _bags(user["interests"]),
        "category": _named(item["category"], CATEGORY),
        "brand": pa.array(item["brand"]),
        "price": pa.array(item["price"]),
        "tags": _bags(item["tags"]),
        "device": _named(rows["device"], DEVICE),
    }


def _times(milliseconds: NDArray[np.int64], missing: NDArray[np.bool_] | None = None) -> Any:
    return pa.array(START + milliseconds.astype("timedelta64[ms]"), mask=missing)


def _named(codes: NDArray[np.int8], names: tuple[str, ...]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(names))


def _bags(masks: NDArray[np.uint16]) -> Any:
    """Return lists of topics from a bit for each topic."""
    bits = (masks[:, None] >> np.arange(TOPICS, dtype=np.uint16)) & 1
    offsets = np.concatenate([[0], np.cumsum(bits.sum(axis=1))]).astype(np.int32)
    topics = np.nonzero(bits)[1].astype(np.int8)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(topics))
