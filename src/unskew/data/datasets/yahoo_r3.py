"""Yahoo! R3: 15,400 people rated some of 1,000 songs by choice (311,704 ratings); random songs (54,000)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.estimator import require_whole
from unskew.base.registry import register
from unskew.data import Log
from unskew.data.datasets.dataset import (
    Dataset,
    Protocol,
    errors_name,
    missing_files,
    require_root,
    without_leaked_cells,
)
from unskew.data.vocabulary import Vocabulary

HIGHEST_RATING = 5
OFFICIAL = ("ydata-ymusic-rating-study-v1_0-train.txt", "ydata-ymusic-rating-study-v1_0-test.txt")
LAYOUTS = (OFFICIAL, ("user.txt", "random.txt"), ("train.txt", "test.txt"), ("train.csv", "test.csv"))
"""Names of (chosen, random) ratings: the official ones, and those under which copies are passed on."""

OFFICIAL_ROWS = (311_704, 54_000)
SEPARATORS = {"\t": "tab-separated", ",": "comma-separated"}
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
    folder = require_root(root, "yahoo_r3")
    layout = next((names for names in LAYOUTS if all((folder / name).is_file() for name in names)), None)
    if layout is None:
        missing = [name for name in OFFICIAL if not (folder / name).is_file()]
        raise missing_files(folder, [" and ".join(names) for names in LAYOUTS], missing, REMEDY)

    ratings = {name: _ratings(folder / name) for name in layout}
    everything = np.concatenate([rows for rows, _ in ratings.values()])
    users = Vocabulary.of(everything[:, 0], name="user")
    items = Vocabulary.of(everything[:, 1], name="item")
    logs = []
    for name, (rows, _) in ratings.items():
        with errors_name(folder / name):
            logs.append(
                Log.from_arrays(
                    user=rows[:, 0],
                    item=rows[:, 1],
                    conversion=rows[:, 2] >= positive_rating,
                    columns={"rating": rows[:, 2].astype(np.int8)},
                    users=users,
                    items=items,
                )
            )
    train, test = logs
    sizes = tuple(len(log) for log in logs)
    test, facts = without_leaked_cells(train, test, protocol)
    facts |= {
        "positive_rating": positive_rating,
        "files": list(layout),
        "format": ratings[layout[0]][1],
        "has_official_size": sizes == OFFICIAL_ROWS,
        "note": "test: 10 songs shown at random to each of 5,400 users",
    }
    return Dataset(name="yahoo_r3", test_is="random", train=train, test=test, facts=facts)


def _ratings(path: Path) -> tuple[NDArray[np.int64], str]:
    """Read rows of (user, item, rating), and the name of the format; a malformed line is an error."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", where=str(path), remedy=REMEDY) from error
    if not lines:
        raise DataError("the file is empty", where=str(path), remedy=REMEDY)
    separator = next((mark for mark in SEPARATORS if mark in lines[0]), "\t")
    has_header = path.suffix == ".csv" and not any(letter.isdigit() for letter in lines[0])
    rows = np.empty((len(lines) - has_header, 3), dtype=np.int64)
    for row, line in enumerate(lines[has_header:]):
        where = f"{path}, line {row + 1 + has_header}"
        try:
            user, item, rating = (int(word) for word in line.split(separator))
            rows[row] = user, item, rating
        except (ValueError, OverflowError):
            raise DataError(
                f"{line[:60]!r} is not three whole numbers, {SEPARATORS[separator]}",
                where=where,
                remedy=REMEDY,
            ) from None
        if not 1 <= rating <= HIGHEST_RATING:
            raise DataError(f"rating {rating} is not 1 to {HIGHEST_RATING}", where=where, remedy=REMEDY)
    return rows, SEPARATORS[separator]
