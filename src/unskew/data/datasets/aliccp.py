"""Ali-CCP: 84 million impressions of Taobao's recommender with clicks, conversions and features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.base.errors import DataError
from unskew.base.registry import register
from unskew.data import Category, Wanted
from unskew.data.datasets.dataset import (
    Dataset,
    Protocol,
    csv_blocks,
    event_dataset,
    find_files,
    own_features,
    require_rows,
)

SAMPLES, COMMON = "sample_skeleton_{0}.csv", "common_features_{0}.csv"
FOLDERS = ("", "sample_{0}/")
"""Where the archives ``sample_train.tar.gz`` and ``sample_test.tar.gz`` may be unpacked to."""

USER_ID, ITEM_ID = "101", "205"
OF_COMMON = ("121", "122", "124", "125", "126", "127", "128", "129")
"""Profile of the user, one value each."""
OF_SAMPLE = ("206", "207", "216", "301", "508", "509", "702", "853")
"""Category, shop and brand of the item, the scenario, and four matches of item and history."""
OFFICIAL_ROWS = (42_300_135, 43_016_840)

SAMPLE_TYPES = {
    "sample_id": pa.string(),
    "click": pa.int8(),
    "conversion": pa.int8(),
    "common_feature_index": pa.string(),
    "count": pa.int32(),
    "features": pa.string(),
}
COMMON_TYPES = {"common_feature_index": pa.string(), "count": pa.int32(), "features": pa.string()}
REMEDY = "download Ali-CCP again (Tianchi, dataset 408) and unpack sample_train and sample_test"


@register(order=41)
def aliccp(
    root: str | Path | None = None,
    *,
    protocol: Protocol = "honest",
    features: Wanted | None = None,
    ignore: Sequence[str] = (),
    rows: int | None = None,
) -> Dataset:
    """Read Ali-CCP: o = click, r = conversion, over the logged impressions; the test log is of later days.

    Users are field 101, items field 205. Both files are read block by block, and only the fields that are
    kept stay in memory; the histories 109_14, 110_14, 127_14 and 150_14 and the field 210, which have many
    values a row, are not read. A click and a conversion are 0 or 1; the few conversions without a click
    count as none. Test rows are as biased as training rows (``test_is="logged"``).

    Parameters
    ----------
    features, ignore
        What networks read beside the ids: ``"auto"`` is every field with one value a row (``field_121``, …)
        but those in ``ignore``, as categories. Without it no field is read.
    rows
        Only the first rows of each log; None reads all.
    """
    require_rows(rows)
    layouts = [
        [f"{folder}{name}".format(log) for log in ("train", "test") for name in (SAMPLES, COMMON)]
        for folder in FOLDERS
    ]
    paths = find_files(root, "aliccp", layouts, REMEDY)
    samples = paths[::2]
    tables = [_table(*files, features is not None, rows) for files in zip(samples, paths[1::2], strict=True)]
    fields = [name for name in tables[0].column_names if name.startswith("field_")]
    return event_dataset(
        "aliccp",
        tables,
        samples,
        user="user",
        item="item",
        click="click",
        conversion="conversion",
        features=own_features(features, [Category(name) for name in fields], ignore),
        facts={
            "protocol": protocol,
            "has_official_size": tuple(map(len, tables)) == OFFICIAL_ROWS,
            "note": "the test log is of later days and as biased as the training log",
        },
    )


def _table(samples: Path, common: Path, features: bool, rows: int | None) -> Any:
    """Read the rows of a log, joined with the features that several rows share."""
    of_common, of_sample = (OF_COMMON, OF_SAMPLE) if features else ((), ())
    index, shared, first = [], [], 0
    for block in csv_blocks(common, COMMON_TYPES, REMEDY, header=False):
        index.append(block.column("common_feature_index"))
        shared.append(pa.table(_fields(block, first, common, (USER_ID, *of_common))))
        first += block.num_rows
    known, profiles = pa.concat_arrays(index), pa.concat_tables(shared).combine_chunks()
    tables, first = [], 0
    for block in csv_blocks(samples, SAMPLE_TYPES, REMEDY, rows, header=False):
        own = _fields(block, first, samples, (ITEM_ID, *of_sample))
        names = block.column("common_feature_index")
        at = pc.index_in(names, value_set=known)
        problem = f"common_feature_index {{}} is not in {common.name}"
        _require(at.is_valid(), first, samples, problem, names)
        columns = {"click": block.column("click"), "conversion": block.column("conversion")}
        columns |= {"user": profiles.column(USER_ID).take(at), "item": own[ITEM_ID]}
        for role, field in (("user", USER_ID), ("item", ITEM_ID)):
            _require(columns[role].is_valid(), first, samples, f"the row has no field {field} (its {role})")
        columns |= {f"field_{name}": profiles.column(name).take(at) for name in of_common}
        columns |= {f"field_{name}": own[name] for name in of_sample}
        tables.append(pa.table(columns))
        first += block.num_rows
    return pa.concat_tables(tables)


def _require(right: Any, first: int, file: Path, problem: str, *values: Any) -> None:
    """Raise an error for the first row of a block that is not right; ``first`` rows stand before the block.

    Parameters
    ----------
    problem, values
        A text with a place for each value of the row.
    """
    if not (right := np.asarray(right)).all():
        row = int(np.argmin(right))
        said = problem.format(*(column[row] for column in values))
        raise DataError(said, where=f"{file}, line {first + row + 1}", remedy=REMEDY)


def _fields(block: Any, first: int, file: Path, wanted: tuple[str, ...]) -> dict[str, Any]:
    """Return one feature a row of some fields: null where a row has none, the first of several.

    A feature list is ``field \\x02 feature \\x03 value``, joined by ``\\x01``.
    """
    text, announced = block.column("features"), block.column("count")
    there = [pc.count_substring(text, mark) for mark in ("\x02", "\x03")]
    right = np.logical_and(*(np.asarray(count) == np.asarray(announced) for count in there))
    _require(right, first, file, "{} features are announced, and {} are there", announced, there[1])
    patterns = {name: f"(?:^|\x01){name}\x02(?P<feature>[0-9]+)\x03" for name in wanted}
    matches = {name: pc.extract_regex(text, pattern) for name, pattern in patterns.items()}
    return {name: pc.struct_field(feature, "feature").cast(pa.int64()) for name, feature in matches.items()}
