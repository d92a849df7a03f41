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
from unskew.data.datasets.dataset import (
    HIGHEST_RATING,
    Dataset,
    Protocol,
    find_files,
    reading,
    without_leaked_cells,
)
from unskew.data.vocabulary import Vocabulary

SIZES = {"user": 290, "item": 300}
RATINGS = ("train.ascii", "test.ascii")
FEATURES = ("user_features.ascii", "user_features_map.txt", "item_features.ascii", "item_features_map.txt")
FEATURE_FOLDERS = ("", "user_item_features")
"""Copies often keep the feature files beside the ratings, the official archive in a subfolder."""

PROPENSITIES = "propensities.ascii"
REMEDY = "download coat.zip again from https://www.cs.cornell.edu/~schnabts/mnar/ and unpack all of it"


@register(order=20)
def coat(
    root: str | Path | None = None,
    *,
    protocol: Protocol = "honest",
    positive_rating: int = 4,
) -> Dataset:
    """Read Coat: o = 1[rated in train.ascii], r = 1[rating ≥ ``positive_rating``].

    Test pairs that are also in train (366 in the official files, with the same ratings) are leaked: they are
    found by comparison, left out under the honest protocol, kept under ``"paper"``, and counted in ``facts``.
    The propensities that come with the data are in ``extra["shipped_propensities"]``, and the features of
    people and coats in the logs (one column of 0/1 for each value of each feature), if their files are there.

    Parameters
    ----------
    positive_rating
        4 as in the paper; some published code uses 3, and its numbers cannot be compared.
    """
    require_whole(2, HIGHEST_RATING, positive_rating=positive_rating)
    folder = find_files(root, "coat", [RATINGS], REMEDY)[0].parent
    shape = (SIZES["user"], SIZES["item"])
    shared: dict[str, Any] = {
        f"{role}s": Vocabulary.range(size, name=role) for role, size in SIZES.items()
    } | _features(folder)
    logs = []
    for name in RATINGS:
        ratings = _matrix(folder / name, shape)
        wrong = ~np.isin(ratings, np.arange(HIGHEST_RATING + 1))
        if wrong.any():
            user, item = np.argwhere(wrong)[0]
            problem = f"rating {ratings[user, item]:g} of item {item} is not a whole number from 0 to 5"
            raise DataError(problem, where=f"{folder / name}, line {user + 1}", remedy=REMEDY)
        user, item = np.nonzero(ratings)
        rating = ratings[user, item].astype(np.int8)
        conversion, columns = rating >= positive_rating, {"rating": rating}
        logs.append(Log.from_arrays(user=user, item=item, conversion=conversion, columns=columns, **shared))
    train, test = logs
    test, facts = without_leaked_cells(train, test, protocol)
    facts |= {"positive_rating": positive_rating, "note": "test: 16 coats shown at random to each person"}
    shipped = folder / PROPENSITIES
    extra = {"shipped_propensities": _matrix(shipped, shape)} if shipped.is_file() else {}
    return Dataset(name="coat", test_is="random", train=train, test=test, facts=facts, extra=extra)


def _matrix(path: Path, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Read numbers separated by blanks, one row a line; refuse a file of any other shape."""
    with reading(path, REMEDY):
        matrix = np.loadtxt(path, encoding="ascii", ndmin=2)
    if matrix.shape != shape:
        lines, numbers = matrix.shape
        problem = f"expected {shape[0]} lines of {shape[1]} numbers, found {lines} lines of {numbers}"
        raise DataError(problem, where=str(path), remedy=REMEDY)
    return matrix


def _features(ratings: Path) -> dict[str, Features]:
    """Return the features of people and coats, if their files are there."""
    folders = [ratings / name for name in FEATURE_FOLDERS]
    folder = next((each for each in folders if any((each / name).is_file() for name in FEATURES)), None)
    if folder is None:
        return {}
    find_files(folder, "coat", [FEATURES], REMEDY)
    features = {}
    for role, size in SIZES.items():
        with reading(names_path := folder / f"{role}_features_map.txt", REMEDY):
            names = tuple(names_path.read_text(encoding="utf-8").splitlines())
        values = _matrix(folder / f"{role}_features.ascii", (size, len(names)))
        features[f"{role}_features"] = Features(names=names, values=values.astype(np.float32))
    return features
