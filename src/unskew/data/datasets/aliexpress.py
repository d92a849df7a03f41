"""AliExpress search (NL, ES, FR, US): rows of result pages with features, click and conversion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.base.estimator import require_choice
from unskew.base.registry import register
from unskew.data import Category, Number, Wanted
from unskew.data.datasets.dataset import (
    Dataset,
    Protocol,
    csv_blocks,
    event_dataset,
    find_files,
    own_features,
    require_rows,
)

COUNTRIES = ("NL", "ES", "FR", "US")
FILES = ("train.csv", "test.csv")
SEARCH, CLICK, CONVERSION = "search_id", "click", "conversion"
CATEGORIES = [f"categorical_{number}" for number in range(1, 17)]
NUMBERS = [f"numerical_{number}" for number in range(1, 64)]
REMEDY = "get the train.csv and test.csv made of AliExpress Searching System (Tianchi, dataset 74690) again"


@register(order=42)
def aliexpress(
    root: str | Path | None = None,
    *,
    protocol: Protocol = "honest",
    country: str = "NL",
    features: Wanted | None = None,
    ignore: Sequence[str] = (),
    rows: int | None = None,
) -> Dataset:
    """Read AliExpress search: o = click, r = conversion, over the rows of result pages.

    The files name neither users nor items: the user of a row is its search (``search_id``), and the item is
    its place among the rows of the search, so that ids alone know little, and features are what to learn
    from. Read block by block; the test log is of later days and as biased as training (``test_is="logged"``).

    Parameters
    ----------
    country
        ``"NL"``, ``"ES"``, ``"FR"`` or ``"US"``; the files lie in ``root``, in ``root/NL`` or in
        ``root/AliExpress_NL``.
    features, ignore
        What networks read beside the ids: ``"auto"`` is ``categorical_*`` as categories and ``numerical_*``
        as numbers, but for those in ``ignore``. Without it they are not read.
    rows
        Only the first rows of each file; None reads all.
    """
    require_choice("country", country, COUNTRIES)
    require_rows(rows)
    folders = (country, f"AliExpress_{country}", ".")
    layouts = [[f"{folder}/{name}" for name in FILES] for folder in folders]
    files = find_files(root, "aliexpress", layouts, REMEDY)
    types: dict[str, Any] = {SEARCH: pa.string(), CLICK: pa.int8(), CONVERSION: pa.int8()}
    if features is not None:
        types |= dict.fromkeys(CATEGORIES, pa.int32()) | dict.fromkeys(NUMBERS, pa.float32())
    kinds = [*map(Category, CATEGORIES), *map(Number, NUMBERS)]
    tables = [_table(file, types, rows) for file in files]
    return event_dataset(
        "aliexpress",
        tables,
        files,
        user=SEARCH,
        item="place",
        click=CLICK,
        conversion=CONVERSION,
        features=own_features(features, kinds, ignore),
        facts={
            "protocol": protocol,
            "country": country,
            "note": "no user or item ids: the user is the search, the item the place in it; the test log is"
            " of later days",
        },
    )


def _table(file: Path, types: dict[str, Any], rows: int | None) -> Any:
    """Return the rows of a file, and the place of each among those of its search."""
    table = pa.Table.from_batches(csv_blocks(file, types, REMEDY, rows))
    codes = table.column(SEARCH).combine_chunks().dictionary_encode().indices.to_numpy()
    count = np.bincount(codes)
    places = np.empty(len(codes), dtype=np.int32)
    places[np.argsort(codes, kind="stable")] = np.arange(len(codes)) - np.repeat(
        np.cumsum(count) - count, count
    )
    return table.append_column("place", pa.array(places))
