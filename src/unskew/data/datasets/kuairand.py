"""KuaiRand-Pure: 27,285 people, 7,583 videos; 1,436,609 rows by a recommender, 1,186,059 at random."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.estimator import require_at_least, require_choice, require_in
from unskew.base.registry import register
from unskew.base.tables import Table, concatenate, read_file
from unskew.data import Bag, Category, Feature, Features, Log, Number, Wanted
from unskew.data.datasets.dataset import (
    Dataset,
    Protocol,
    errors_name,
    find_files,
    without_leaked_cells,
)
from unskew.data.datasets.events import own_features
from unskew.data.schema import Role
from unskew.data.vocabulary import UNSEEN_CODE, Vocabulary

Version = Literal["pure", "1k"]

FIRST_STANDARD = "log_standard_4_08_to_4_21_{}.csv"
STANDARD = (FIRST_STANDARD, "log_standard_4_22_to_5_08_{}.csv")
RANDOM = "log_random_4_22_to_5_08_{}.csv"
USER_FEATURES = "user_features_{}.csv"
VIDEO_FEATURES = "video_features_basic_{}.csv"
VIDEO_STATISTICS = "video_features_statistic_{}.csv"
OFFICIAL_ROWS = {"pure": (1_436_609, 1_186_059), "1k": (11_713_045, 43_028)}
"""Rows of both standard logs together, and of the random log."""

FOLDERS = (".", "data", "KuaiRand-Pure/data", "KuaiRand-1K/data")
LOG_COLUMNS = ("user_id", "video_id", "date", "time_ms", "is_click")
IDS_AS_FEATURES = ("author_id", "music_id")
"""Numbers that are names: coded by their order, since single precision cannot tell large ids apart."""

TAGS = "tag"
LEFT_OUT = ("upload_dt",)
"""The day of the upload, as text: neither one of few values nor a number."""
CODES = re.compile(r"_id$|_type$|_status$|^is_|^onehot_feat")
"""Names of columns whose numbers are codes."""

MISSING_FEATURE = -1.0
"""Stands for a missing value; the official features have none below 0."""

REMEDY = "download KuaiRand-Pure or KuaiRand-1K again from https://kuairand.com and unpack all of it"


@register(order=40)
def kuairand(
    root: str | Path | None = None,
    *,
    protocol: Protocol = "honest",
    version: Version = "pure",
    standard: Literal["all", "first"] = "all",
    validation_share: float = 0.1,
    features: Wanted | bool | None = None,
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
        Otherwise they are matrices of numbers (``user_features``, ``item_features``): text as the position of
        its value in alphabetical order, missing as −1; False leaves them out.
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
    standard_files = [name.format(version) for name in (STANDARD if standard == "all" else (FIRST_STANDARD,))]
    random_file, user_file = RANDOM.format(version), USER_FEATURES.format(version)
    video_files = [
        name.format(version)
        for name in ((VIDEO_FEATURES, VIDEO_STATISTICS) if statistics else (VIDEO_FEATURES,))
    ]
    feature_files = () if features is False else (user_file, *video_files)
    expected = [*standard_files, random_file, *feature_files]
    layouts = [[str(Path(folder, name)) for name in expected] for folder in FOLDERS]
    folder = find_files(root, "kuairand", layouts, REMEDY)[0].parent

    shown = _read_logs([folder / name for name in standard_files])
    at_random = _read_logs([folder / random_file])
    users, items = (
        Vocabulary.of(np.concatenate([_column(shown, name), _column(at_random, name)]), name=name)
        for name in ("user_id", "video_id")
    )
    shared: dict[str, Any] = {"users": users, "items": items}
    facts: dict[str, Any] = {
        "protocol": protocol,
        "version": version,
        "standard": standard,
        "seed": seed,
    }
    tables = {"user_id": [folder / user_file], "video_id": [folder / name for name in video_files]}
    wanted, columns = None, {}
    if features is not None and not isinstance(features, bool):
        columns = {name: _column_by_id(tables[name], name) for name in tables}
        wanted = own_features(features, _declared(columns), ignore)
    elif features is not False:
        shared["user_features"], facts["users_without_features"] = _features(tables["user_id"], users)
        shared["item_features"], facts["items_without_features"] = _features(tables["video_id"], items)
    train = _log(shown, " and ".join(standard_files), shared, columns, wanted)
    declared = None if train.features is None else train.features.declared
    random_log = _log(at_random, random_file, shared, columns, declared)

    order = np.random.default_rng(seed).permutation(len(random_log))
    n_validation = max(1, round(validation_share * len(random_log)))
    (validation, leak), (test, leak_of_test) = (
        without_leaked_cells(train, random_log.take(np.sort(rows)), protocol)
        for rows in (order[:n_validation], order[n_validation:])
    )
    for count in ("leaked_cells_found", "leaked_cells_dropped"):
        facts[count] = leak[count] + leak_of_test[count]
    # Dates are numbers such as 20220408, whose order is that of the days.
    days, random_days = _column(shown, "date"), _column(at_random, "date")
    facts |= {
        "repeated_rows_train": len(shown) - len(train),
        "repeated_rows_random": len(at_random) - len(random_log),
        "items_never_in_train": int(len(items) - len(np.unique(train.item))),
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


def _read_logs(files: list[Path]) -> Table:
    tables = []
    for file in files:
        table = read_file(file, LOG_COLUMNS, numbers=None)
        if len(table) == 0:
            raise DataError("the file has a header and no rows", where=str(file), remedy=REMEDY)
        for name in LOG_COLUMNS:
            if not pa.types.is_integer(table.schema.field(name).type):
                values = table.column(name).to_pylist()
                row = next((row for row, value in enumerate(values) if not _is_whole(value)), 0)
                raise DataError(
                    f"value {values[row]!r} is not a whole number",
                    where=f"{file}, column '{name}', row {row}",
                    remedy=REMEDY,
                )
        tables.append(table)
    return concatenate(files, tables)


def _is_whole(value: Any) -> bool:
    try:
        return float(value).is_integer()
    except (TypeError, ValueError):
        return False


def _column(table: Table, name: str) -> NDArray[np.int64]:
    return np.asarray(table.column(name).to_numpy())


def _log(
    table: Table,
    place: str,
    shared: dict[str, Any],
    columns: Mapping[str, Mapping[str, Any]],
    features: Sequence[Feature | str] | None,
) -> Log:
    """Make a log; ``columns`` are those of users and of videos by their ids, for features of its rows."""
    sources = {
        name: values.take(at)
        for role, by_id in columns.items()
        for at in [pc.index_in(table.column(role).combine_chunks(), value_set=by_id[role])]
        for name, values in by_id.items()
        if name != role
    }
    with errors_name(place):
        return Log.from_arrays(
            user=_column(table, "user_id"),
            item=_column(table, "video_id"),
            conversion=_column(table, "is_click"),
            columns={"time_ms": _column(table, "time_ms")},
            duplicates="max",
            names={"user": "user_id", "item": "video_id", "conversion": "is_click"},
            features=features,
            sources=sources,
            **shared,
        )


def _column_by_id(files: list[Path], name: str) -> dict[str, Any]:
    """Read columns of files with a row for each id, by the ids of the first; tags as lists."""
    columns: dict[str, Any] = {}
    for file in files:
        table = read_file(file, numbers=None)
        if name not in table.column_names:
            raise DataError(f"column '{name}' is missing", where=str(file), remedy=REMEDY)
        ids = table.column(name).combine_chunks()
        if len(ids.unique()) < len(ids):
            raise DataError(f"a {name} is listed twice", where=str(file), remedy=REMEDY)
        at = pc.index_in(columns.setdefault(name, ids), value_set=ids)
        for each in table.column_names:
            if each not in (name, *LEFT_OUT):
                columns[each] = table.column(each).combine_chunks().take(at)
    if TAGS in columns:
        columns[TAGS] = pc.split_pattern(columns[TAGS].cast(pa.string()), ",")
    return columns


def _declared(columns: Mapping[str, Mapping[str, Any]]) -> list[Feature]:
    """Declare each column as a bag, a category (text, codes, ids) or a number."""
    roles: dict[str, Role] = {"user_id": "user", "video_id": "item"}
    declared: list[Feature] = []
    for key, by_id in columns.items():
        for name, values in by_id.items():
            if name == key:
                continue
            is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
            kind = Bag if name == TAGS else Category if CODES.search(name) or not is_number else Number
            declared.append(kind(name, role=roles[key]))
    return declared


def _features(files: list[Path], vocabulary: Vocabulary) -> tuple[Features, int]:
    """Return features in the order of the vocabulary, and how many of its ids no file knows."""
    names: list[str] = []
    blocks: list[NDArray[np.float64]] = []
    without = np.zeros(len(vocabulary), dtype=bool)
    for file in files:
        table = read_file(file, numbers=None)
        with errors_name(file):
            if vocabulary.name not in table.column_names:
                raise DataError(f"column '{vocabulary.name}' is missing", remedy=REMEDY)
            code = vocabulary.encode(table.column(vocabulary.name).to_numpy(), unseen="nan")
            known = np.flatnonzero(code != UNSEEN_CODE)
            if len(np.unique(code[known])) < len(known):
                raise DataError(f"a {vocabulary.name} is listed twice", remedy=REMEDY)
        columns = [name for name in table.column_names if name != vocabulary.name]
        block = np.full((len(vocabulary), len(columns)), MISSING_FEATURE)
        block[code[known]] = np.column_stack([_feature(table, name) for name in columns])[known]
        without |= ~np.isin(np.arange(len(vocabulary)), code)
        names += columns
        blocks.append(block)
    return Features(tuple(names), np.hstack(blocks).astype(np.float32)), int(without.sum())


def _feature(table: Table, name: str) -> NDArray[np.float64]:
    column = table.column(name)
    if name in IDS_AS_FEATURES or not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        text = np.array([None if value is None else str(value) for value in column.to_pylist()], dtype=object)
        present = np.array([value is not None for value in text], dtype=bool)
        coded = np.full(len(text), MISSING_FEATURE)
        coded[present] = np.unique(text[present].astype(str), return_inverse=True)[1]
        return coded
    number = column.cast(pa.float64()).to_numpy().astype(np.float64)
    return np.where(np.isnan(number), MISSING_FEATURE, number)
