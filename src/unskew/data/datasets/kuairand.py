"""KuaiRand-Pure: 27,285 people, 7,583 videos; 1,436,609 rows by a recommender, 1,186,059 at random."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from unskew.base.errors import DataError
from unskew.base.estimator import require_at_least, require_choice, require_in
from unskew.base.registry import register
from unskew.data import Bag, Category, Feature, Number, Wanted
from unskew.data.datasets.dataset import (
    Dataset,
    Protocol,
    csv_blocks,
    find_files,
    logs_of,
    own_features,
    reading,
    without_leaked_cells,
)
from unskew.data.schema import Role

Version = Literal["pure", "1k"]

STANDARD = ("log_standard_4_08_to_4_21_{}.csv", "log_standard_4_22_to_5_08_{}.csv")
RANDOM = "log_random_4_22_to_5_08_{}.csv"
USER_FEATURES = "user_features_{}.csv"
VIDEO_FEATURES = "video_features_basic_{}.csv"
VIDEO_STATISTICS = "video_features_statistic_{}.csv"
OFFICIAL_ROWS = {"pure": (1_436_609, 1_186_059), "1k": (11_713_045, 43_028)}
"""Rows of both standard logs together, and of the random log."""

FOLDERS = (".", "data", "KuaiRand-Pure/data", "KuaiRand-1K/data")
LOG_TYPES = dict.fromkeys(("user_id", "video_id", "date", "time_ms", "is_click"), pa.int64())
TAGS = "tag"
LEFT_OUT = ("upload_dt",)
"""The day of the upload, as text: neither one of few values nor a number."""
CODES = re.compile(r"_id$|_type$|_status$|^is_|^onehot_feat")
"""Names of columns whose numbers are codes."""

REMEDY = "download KuaiRand-Pure or KuaiRand-1K again from https://kuairand.com and unpack all of it"


@register(order=40)
def kuairand(
    root: str | Path | None = None,
    *,
    protocol: Protocol = "honest",
    version: Version = "pure",
    standard: Literal["all", "first"] = "all",
    validation_share: float = 0.1,
    features: Wanted | None = None,
    ignore: Sequence[str] = (),
    statistics: bool = False,
    seed: int = 0,
) -> Dataset:
    """Read KuaiRand: o = 1[shown by the recommender], r = is_click.

    The standard logs are the biased training log. The random log is cut by pairs into validation
    (``validation_share``, 10 % as in the paper) and test; both are missing at random, while for Coat and
    Yahoo! R3 a biased validation set is cut from training. A pair that is listed several
    times counts once, clicked if it ever was. The population is every user with every video that occurs in
    any log; 32 official videos occur in the random log alone. What people did after the click (``is_like``,
    ``long_view``, ``play_time_ms``, …) gives it away and is not read.

    Parameters
    ----------
    version
        ``"pure"`` (27,285 people, 7,583 videos) or ``"1k"`` (1,000 people, 4.4 million videos): the end of
        the names of the files.
    standard
        ``"all"`` trains on both standard logs as in the paper; the second is from the days of the random log.
        ``"first"`` trains on the days before it.
    features, ignore
        What networks read beside the ids: ``"auto"`` is the features of users and videos but for those in
        ``ignore``, each as what it is (codes and text as categories, counts as numbers, ``tag`` as a bag).
    statistics
        Add the monthly statistics of the videos. They were taken over the days of the random log too, and so
        know something of the test set.
    seed
        Of the validation split.
    """
    require_choice("version", version, get_args(Version))
    require_choice("standard", standard, ("all", "first"))
    require_in("(0, 1)", validation_share=validation_share)
    require_at_least(0, seed=seed)
    standard_files = [name.format(version) for name in (STANDARD if standard == "all" else STANDARD[:1])]
    random_file = RANDOM.format(version)
    video_files = (VIDEO_FEATURES, VIDEO_STATISTICS) if statistics else (VIDEO_FEATURES,)
    feature_files = {"user_id": (USER_FEATURES,), "video_id": video_files}
    expected = [*standard_files, random_file]
    if features is not None:
        expected += [name.format(version) for names in feature_files.values() for name in names]
    layouts = [[str(Path(folder, name)) for name in expected] for folder in FOLDERS]
    folder = find_files(root, "kuairand", layouts, REMEDY)[0].parent

    shown, at_random = (
        pa.Table.from_batches(
            [block for name in names for block in csv_blocks(folder / name, LOG_TYPES, REMEDY)]
        )
        for names in (standard_files, [random_file])
    )
    tables, declared = [shown, at_random], []
    if features is not None:
        for key, names in feature_files.items():
            columns = _columns_by_id([folder / name.format(version) for name in names], key)
            declared += _declared(columns, key)
            tables = [_joined(table, columns, key) for table in tables]
    train, random_log = logs_of(
        tables,
        (" and ".join(standard_files), random_file),
        features=own_features(features, declared, ignore),
        user="user_id",
        item="video_id",
        conversion="is_click",
        keep=["time_ms"],
        duplicates="max",
    )

    order = np.random.default_rng(seed).permutation(len(random_log))
    n_validation = max(1, round(validation_share * len(random_log)))
    (validation, leak), (test, leak_of_test) = (
        without_leaked_cells(train, random_log.take(np.sort(rows)), protocol)
        for rows in (order[:n_validation], order[n_validation:])
    )
    # Dates are numbers such as 20220408, whose order is that of the days.
    days, random_days = (table.column("date").to_numpy() for table in (shown, at_random))
    facts = {
        "protocol": protocol,
        "version": version,
        "standard": standard,
        "seed": seed,
        **{count: leak[count] + leak_of_test[count] for count in leak if count != "protocol"},
        "repeated_rows_train": len(shown) - len(train),
        "repeated_rows_random": len(at_random) - len(random_log),
        "items_never_in_train": train.n_items - len(np.unique(train.item)),
        "has_official_size": standard == "all" and (len(shown), len(at_random)) == OFFICIAL_ROWS[version],
        "days_of_train": [int(days.min()), int(days.max())],
        "days_of_random_log": [int(random_days.min()), int(random_days.max())],
        "train_rows_from_days_of_random_log": int((days >= random_days.min()).sum()),
        "note": "validation and test are missing at random; train and test overlap in time unless"
        " standard='first'",
    }
    return Dataset(
        name="kuairand", train=train, test=test, validation=validation, facts=facts, test_is="random"
    )


def _columns_by_id(files: list[Path], key: str) -> dict[str, Any]:
    """Read columns of files with a row for each id, by the ids of the first; tags as lists."""
    columns: dict[str, Any] = {}
    for file in files:
        with reading(file, REMEDY):
            table = pa.csv.read_csv(file)
            if key not in table.column_names:
                raise DataError(f"column '{key}' is missing", remedy=REMEDY)
            ids = table.column(key).combine_chunks()
            if len(ids.unique()) < len(ids):
                raise DataError(f"a {key} is listed twice", remedy=REMEDY)
        at = pc.index_in(columns.setdefault(key, ids), value_set=ids)
        further = [name for name in table.column_names if name not in (key, *LEFT_OUT)]
        columns |= {name: table.column(name).combine_chunks().take(at) for name in further}
    if TAGS in columns:
        columns[TAGS] = pc.split_pattern(columns[TAGS].cast(pa.string()), ",")
    return columns


def _joined(table: Any, columns: dict[str, Any], key: str) -> Any:
    """Return a log with the columns of its users or videos."""
    at = pc.index_in(table.column(key).combine_chunks(), value_set=columns[key])
    for name, values in columns.items():
        table = table if name == key else table.append_column(name, values.take(at))
    return table


def _declared(columns: dict[str, Any], key: str) -> list[Feature]:
    """Declare each column as a bag, a category (text, codes, ids) or a number."""
    role: Role = "user" if key == "user_id" else "item"
    declared: list[Feature] = []
    for name, values in columns.items():
        is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
        kind = Bag if name == TAGS else Category if CODES.search(name) or not is_number else Number
        if name != key:
            declared.append(kind(name, role=role))
    return declared
