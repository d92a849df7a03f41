"""Yahoo! R3: 15,400 people rated some of 1,000 songs by choice (311,704 ratings); random songs (54,000)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.base.errors import DataError
from unskew.base.estimator import require_whole
from unskew.base.registry import register
from unskew.data.datasets.dataset import (
    HIGHEST_RATING,
    Dataset,
    Protocol,
    find_files,
    logs_of,
    reading,
    without_leaked_cells,
)

OFFICIAL = ("ydata-ymusic-rating-study-v1_0-train.txt", "ydata-ymusic-rating-study-v1_0-test.txt")
LAYOUTS = (OFFICIAL, ("user.txt", "random.txt"), ("train.txt", "test.txt"), ("train.csv", "test.csv"))
"""Names of (chosen, random) ratings: the official ones, and those under which copies are passed on."""

OFFICIAL_ROWS = (311_704, 54_000)
REMEDY = (
    "ask Yahoo! Webscope for the dataset R3 and give the folder of the unpacked files;"
    " every line is user, item and rating, separated by tabs (official, ids from 1) or commas (ids from 0)"
)


@register(order=30)
def yahoo_r3(
    root: str | Path | None = None, *, protocol: Protocol = "honest", positive_rating: int = 4
) -> Dataset:
    """Read Yahoo! R3: o = 1[rated by choice], r = 1[rating ≥ ``positive_rating``].

    Ids are kept as they are in the files, from 1 in the official ones and from 0 in the comma-separated copy.
    The population is every user with every item that occurs in either file. The official files have no leaked
    cells; ``facts["has_official_size"]`` says whether all of their rows are there.

    Parameters
    ----------
    positive_rating
        4 as in the paper; some published code uses 3, and its numbers cannot be compared.
    """
    require_whole(2, HIGHEST_RATING, positive_rating=positive_rating)
    files = find_files(root, "yahoo_r3", LAYOUTS, REMEDY)
    tables = [_ratings(file, positive_rating) for file in files]
    train, test = logs_of(tables, files, user="user", item="item", conversion="conversion", keep=["rating"])
    has_official_size = (len(train), len(test)) == OFFICIAL_ROWS
    test, facts = without_leaked_cells(train, test, protocol)
    facts |= {
        "positive_rating": positive_rating,
        "files": [file.name for file in files],
        "has_official_size": has_official_size,
        "note": "test: 10 songs shown at random to each of 5,400 users",
    }
    return Dataset(name="yahoo_r3", test_is="random", train=train, test=test, facts=facts)


def _ratings(path: Path, positive_rating: int) -> Any:
    """Return a table of users, items and ratings; a malformed line is an error."""
    with reading(path, REMEDY):
        with path.open(encoding="ascii") as file:
            first = file.readline()
        if not first:
            raise DataError("the file is empty", remedy=REMEDY)
        has_header = path.suffix == ".csv" and not any(letter.isdigit() for letter in first)
        delimiter = "\t" if "\t" in first else ","
        rows = np.loadtxt(
            path, np.int64, delimiter=delimiter, skiprows=int(has_header), ndmin=2, encoding="ascii"
        )
        if rows.shape[1] != 3:
            raise DataError(f"line 1 has {rows.shape[1]} numbers, not user, item and rating", remedy=REMEDY)
        rating = rows[:, 2]
        wrong = (rating < 1) | (rating > HIGHEST_RATING)
        if wrong.any():
            row = int(wrong.argmax())
            problem = f"rating {rating[row]} is not 1 to {HIGHEST_RATING}"
            raise DataError(problem, where=f"line {row + 1 + has_header}", remedy=REMEDY)
    columns = {"user": rows[:, 0], "item": rows[:, 1], "rating": rating.astype(np.int8)}
    return pa.table({**columns, "conversion": rating >= positive_rating})
