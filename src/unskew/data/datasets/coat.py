"""Coat: 290 people rated 24 of 300 coats by choice (6,960 ratings) and 16 random ones (4,640, 366 leaked)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.estimator import require_whole
from unskew.base.registry import register
from unskew.data import Features, Log
from unskew.data.datasets.dataset import Dataset, Protocol, find_files, without_leaked_cells
from unskew.data.vocabulary import Vocabulary

N_USERS, N_ITEMS = 290, 300
HIGHEST_RATING = 5
FEATURE_FOLDERS = ("", "user_item_features/")
"""Copies often keep the feature files beside the ratings, the official archive in a subfolder."""

RATINGS = ("train.ascii", "test.ascii")
FEATURES = ("user_features", "item_features")
PROPENSITIES = "propensities.ascii"
REMEDY = "download coat.zip again from https://www.cs.cornell.edu/~schnabts/mnar/ and unpack all of it"


@register(order=20)
def coat(
    root: str | Path | None = None,
    *,
    protocol: Protocol = "honest",
    positive_rating: int = 4,
    features: bool = True,
) -> Dataset:
    """Read Coat: o = 1[rated in train.ascii], r = 1[rating ≥ ``positive_rating``].

    Test pairs that are also in train (366 in the official files, with the same ratings) are leaked: they are
    found by comparison, left out under the honest protocol, kept under ``"paper"``, and counted in ``facts``.
    The propensities that come with the data are in ``extra["shipped_propensities"]`` if the file is there.

    Parameters
    ----------
    positive_rating
        4 as in the paper; some published code uses 3, and its numbers cannot be compared.
    features
        Read the feature files too (one column of 0/1 for each value of each feature).
    """
    require_whole(2, HIGHEST_RATING, positive_rating=positive_rating)
    of_features = [f"{name}{end}" for name in FEATURES for end in (".ascii", "_map.txt")] if features else []
    layouts = [[*RATINGS, *(f"{folder}{name}" for name in of_features)] for folder in FEATURE_FOLDERS]
    remedy = f"{REMEDY}, or ask for features=False if only its features are missing" if features else REMEDY
    paths = {path.name: path for path in find_files(root, "coat", layouts, remedy)}
    shipped = paths[RATINGS[0]].with_name(PROPENSITIES)

    shared: dict[str, Any] = {
        "users": Vocabulary.range(N_USERS, name="user"),
        "items": Vocabulary.range(N_ITEMS, name="item"),
    }
    if features:
        for name, n_rows in zip(FEATURES, (N_USERS, N_ITEMS), strict=True):
            shared[name] = _features(paths[f"{name}_map.txt"], paths[f"{name}.ascii"], n_rows)
    logs = []
    for name in RATINGS:
        ratings = _ratings(paths[name])
        user, item = np.nonzero(ratings)
        rating = ratings[user, item].astype(np.int8)
        logs.append(
            Log.from_arrays(
                user=user,
                item=item,
                conversion=rating >= positive_rating,
                columns={"rating": rating},
                **shared,
            )
        )
    train, test = logs
    test, facts = without_leaked_cells(train, test, protocol)
    facts |= {"positive_rating": positive_rating, "note": "test: 16 coats shown at random to each person"}
    extra = {}
    if shipped.is_file():
        extra["shipped_propensities"] = _matrix(shipped, N_USERS, N_ITEMS)
    return Dataset(name="coat", test_is="random", train=train, test=test, facts=facts, extra=extra)


def _matrix(path: Path, n_rows: int, n_columns: int) -> NDArray[np.float64]:
    """Read numbers separated by blanks, one row a line; refuse a file of any other shape."""
    expected = f"expected {n_rows} lines of {n_columns} numbers"
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error}); {expected}", where=str(path), remedy=REMEDY) from error
    matrix = np.empty((n_rows, n_columns))
    for number, line in enumerate(lines[:n_rows], start=1):
        words = line.split()
        if len(words) != n_columns:
            raise DataError(
                f"{expected}, found {len(words)} numbers", where=f"{path}, line {number}", remedy=REMEDY
            )
        try:
            matrix[number - 1] = [float(word) for word in words]
        except ValueError as error:
            raise DataError(
                f"{expected}, but {error}", where=f"{path}, line {number}", remedy=REMEDY
            ) from None
    if len(lines) != n_rows:
        raise DataError(f"{expected}, found {len(lines)} lines", where=str(path), remedy=REMEDY)
    return matrix


def _ratings(path: Path) -> NDArray[np.float64]:
    ratings = _matrix(path, N_USERS, N_ITEMS)
    wrong = ~np.isin(ratings, np.arange(HIGHEST_RATING + 1))
    if wrong.any():
        user, item = np.argwhere(wrong)[0]
        raise DataError(
            f"rating {ratings[user, item]:g} of item {item} is not a whole number from 0 to {HIGHEST_RATING}",
            where=f"{path}, line {user + 1}",
            remedy=REMEDY,
        )
    return ratings


def _features(names_path: Path, values_path: Path, n_rows: int) -> Features:
    try:
        names = tuple(names_path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot be read ({error}); expected a name a line", where=str(names_path), remedy=REMEDY
        ) from error
    if not all(names):
        raise DataError("a feature has no name", where=str(names_path), remedy=REMEDY)
    return Features(names=names, values=_matrix(values_path, n_rows, len(names)).astype(np.float32))
