"""AliExpress search (NL, ES, FR, US): rows of result pages with features, click and conversion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.base.errors import DataError
from unskew.base.estimator import require_choice
from unskew.base.registry import register
from unskew.data import Category, Feature, Number, Wanted
from unskew.data.datasets.dataset import Dataset, Protocol, find_files
from unskew.data.datasets.events import column_names_of, csv_blocks, event_dataset, own_features, require_rows

COUNTRIES = ("NL", "ES", "FR", "US")
FILES = ("train.csv", "test.csv")
SEARCH, CLICK, CONVERSION = "search_id", "click", "conversion"
CATEGORIES, NUMBERS = "categorical_", "numerical_"
REMEDY = "get the train.csv and test.csv made of AliExpress Searching System (Tianchi, dataset 74690) again"


@register(order=42)
def aliexpress(
    root: str | Path | None = None,
    *,
    protocol: Protocol = "honest",
    country: str = "NL",
    features: Wanted | bool | None = None,
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
        as numbers, but for those in ``ignore``. Otherwise they are columns of the log; False leaves them out.
    rows
        Only the first rows of each file; None reads all.
    """
    require_choice("country", country, COUNTRIES)
    require_rows(rows)
    folders = (country, f"AliExpress_{country}", ".")
    layouts = [[f"{folder}/{name}" for name in FILES] for folder in folders]
    files = find_files(root, "aliexpress", layouts, REMEDY)
    types = _types(files, features is not False)
    kinds: list[Feature] = [
        *(Category(name) for name in types if name.startswith(CATEGORIES)),
        *(Number(name) for name in types if name.startswith(NUMBERS)),
    ]
    wanted = own_features(features, kinds, ignore)
    tables = [_table(file, types, rows) for file in files]
    return event_dataset(
        "aliexpress",
        tables,
        files,
        user=SEARCH,
        item="place",
        click=CLICK,
        conversion=CONVERSION,
        keep=[kind.name for kind in kinds] if wanted is None else (),
        features=wanted,
        facts={
            "protocol": protocol,
            "country": country,
            "note": "no user or item ids: the user is the search, the item the place in it; the test log is"
            " of later days",
        },
    )


def _types(files: list[Path], features: bool) -> dict[str, Any]:
    """Return the types of the columns to read; both files must have the same."""
    headers = [column_names_of(file) for file in files]
    if set(headers[0]) != set(headers[1]):
        name = sorted(set(headers[0]) ^ set(headers[1]))[0]
        raise DataError(
            f"column '{name}' is in one of train.csv and test.csv alone",
            where=str(files[0].parent),
            remedy=REMEDY,
        )
    types: dict[str, Any] = {SEARCH: pa.string(), CLICK: pa.int8(), CONVERSION: pa.int8()}
    if features:
        kinds = {CATEGORIES: pa.int32(), NUMBERS: pa.float32()}
        found = {name: kind for name in headers[0] for start, kind in kinds.items() if name.startswith(start)}
        for start in kinds:
            if not any(name.startswith(start) for name in found):
                raise DataError(
                    f"there is no column {start}*; expected {SEARCH}, {CATEGORIES}*, {NUMBERS}*, {CLICK},"
                    f" {CONVERSION}",
                    where=str(files[0]),
                    remedy=REMEDY,
                )
        types |= found
    return types


def _table(file: Path, types: dict[str, Any], rows: int | None) -> Any:
    table = pa.Table.from_batches(list(csv_blocks(file, types, REMEDY, rows)))
    return table.append_column("place", pa.array(_places(table.column(SEARCH))))


def _places(search: Any) -> Any:
    """Number each row among those of its search, in the order of the file."""
    codes = search.combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(codes))[:-1]])
    places = np.empty(len(codes), dtype=np.int32)
    places[order] = np.arange(len(codes)) - np.repeat(starts, np.bincount(codes))
    return places
