"""Ali-CCP: 84 million impressions of Taobao's recommender with clicks, conversions and features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.datasets.dataset import Dataset, Protocol, missing_files, require_root
from unskew.datasets.events import blocks_without_header, event_logs, own_features, require_rows
from unskew.errors import DataError
from unskew.log import Category, Wanted
from unskew.registry import register

SAMPLES, COMMON = "sample_skeleton_{}.csv", "common_features_{}.csv"
FOLDERS = ("sample_{}", ".")
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
    features: Wanted | bool | None = None,
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
        What networks read beside the ids: ``"auto"`` is every field with one value a row but those in
        ``ignore``, as categories. Otherwise the fields are columns of the log, ``field_121``, …, with NaN for
        a missing value; False leaves them out.
    rows
        Only the first rows of each log; None reads all.
    """
    require_rows(rows)
    top = require_root(root, "aliccp")
    names = [name.format(part) for part in ("train", "test") for name in (SAMPLES, COMMON)]
    found = {name: path for name in names if (path := _find(top, name))}
    missing = [name for name in names if name not in found]
    if missing:
        raise missing_files(top, names, missing, REMEDY)
    tables = [
        _table(found[SAMPLES.format(part)], found[COMMON.format(part)], features is not False, rows)
        for part in ("train", "test")
    ]
    fields = [name for name in tables[0].column_names if name.startswith("field_")]
    wanted = own_features(features, [Category(name) for name in fields], ignore)
    sizes = tuple(len(table) for table in tables)
    train, test, facts = event_logs(
        tables,
        [found[SAMPLES.format(part)] for part in ("train", "test")],
        user="user",
        item="item",
        click="click",
        conversion="conversion",
        keep=fields if wanted is None else (),
        features=wanted,
    )
    return Dataset(
        name="aliccp",
        train=train,
        test=test,
        facts={
            "protocol": protocol,
            **facts,
            "has_official_size": sizes == OFFICIAL_ROWS,
            "note": "the test log is of later days and as biased as the training log",
        },
    )


def _find(top: Path, name: str) -> Path | None:
    part = "train" if "train" in name else "test"
    places = (top / folder.format(part) / name for folder in FOLDERS)
    return next((path for path in places if path.is_file()), None)


def _table(samples: Path, common: Path, features: bool, rows: int | None) -> Any:
    """The rows of a log, joined with the features that several rows share."""
    index, shared = _common(common, OF_COMMON if features else ())
    parts = []
    for block, first in _numbered(blocks_without_header(samples, SAMPLE_TYPES, REMEDY, rows)):
        where = f"{samples}, line {{}}"
        fields = _fields(block, first, where, (ITEM_ID, *(OF_SAMPLE if features else ())))
        at = pc.index_in(block.column("common_feature_index"), value_set=index)
        if at.null_count:
            row = int(np.flatnonzero(at.is_null())[0])
            raise DataError(
                f"common_feature_index {block.column('common_feature_index')[row]} is not in {common.name}",
                where=where.format(first + row + 1),
                remedy=REMEDY,
            )
        columns = {"click": block.column("click"), "conversion": block.column("conversion")}
        columns |= {"user": shared[USER_ID].take(at), "item": fields.pop(ITEM_ID)}
        _require_ids(columns, where, first)
        columns |= {f"field_{name}": shared[name].take(at) for name in (OF_COMMON if features else ())}
        columns |= {f"field_{name}": values for name, values in fields.items()}
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def _common(file: Path, wanted: tuple[str, ...]) -> tuple[Any, dict[str, Any]]:
    """Indices and their features, a row for each index."""
    index, fields = [], []
    for block, first in _numbered(blocks_without_header(file, COMMON_TYPES, REMEDY)):
        index.append(block.column("common_feature_index"))
        fields.append(_fields(block, first, f"{file}, line {{}}", (USER_ID, *wanted)))
    joined = {name: pa.concat_arrays([each[name] for each in fields]) for name in fields[0]}
    return pa.concat_arrays(index), joined


def _numbered(blocks: Iterator[Any]) -> Iterator[tuple[Any, int]]:
    first = 0
    for block in blocks:
        yield block, first
        first += block.num_rows


def _fields(block: Any, first: int, where: str, wanted: tuple[str, ...]) -> dict[str, Any]:
    """Ids of features of some fields, one for each row: null where the row has none, the first of several.

    A feature list is ``field \\x02 feature \\x03 value``, joined by ``\\x01``.
    """
    lists = pc.split_pattern(block.column("features"), "\x01")
    announced, there = block.column("count").to_numpy(), pc.list_value_length(lists).to_numpy()
    _require_all(announced, there, first, where)
    # A regular expression for both separators takes several times as long.
    triple = pc.split_pattern(pc.replace_substring(pc.list_flatten(lists), "\x03", "\x02"), "\x02")
    row = pc.list_parent_indices(lists).to_numpy()
    if not (lengths := pc.list_value_length(triple).to_numpy() == 3).all():
        line = first + int(row[np.flatnonzero(~lengths)[0]]) + 1
        raise DataError(
            "a feature is not field, feature and value between \\x02 and \\x03",
            where=where.format(line),
            remedy=REMEDY,
        )
    field = pc.dictionary_encode(pc.list_element(triple, 0))
    codes = field.indices.to_numpy()
    known = field.dictionary.to_pylist()
    feature = pc.list_element(triple, 1)
    found: dict[str, Any] = {}
    for name in wanted:
        ids = np.zeros(block.num_rows, dtype=np.int64)
        missing = np.ones(block.num_rows, dtype=bool)
        if name in known:
            # From the last to the first, so that of several the first stays.
            places = np.flatnonzero(codes == known.index(name))[::-1]
            ids[row[places]] = pc.cast(feature.take(pa.array(places)), pa.int64()).to_numpy()
            missing[row[places]] = False
        found[name] = pa.array(ids, mask=missing)
    return found


def _require_all(announced: Any, there: Any, first: int, where: str) -> None:
    """An error for a line that was cut: it says how many features it has."""
    wrong = announced != there
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"{announced[row]} features are announced, and {there[row]} are there",
            where=where.format(first + row + 1),
            remedy=REMEDY,
        )


def _require_ids(columns: dict[str, Any], where: str, first: int) -> None:
    for role, field in (("user", USER_ID), ("item", ITEM_ID)):
        if columns[role].null_count:
            row = int(np.flatnonzero(columns[role].is_null())[0])
            raise DataError(
                f"the row has no field {field} (its {role})",
                where=where.format(first + row + 1),
                remedy=REMEDY,
            )
