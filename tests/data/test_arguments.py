"""Wrong names of columns, paths and vocabularies are told before rows are read, wherever a log comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew import Log, read_log
from unskew.base.errors import ParameterError

ROWS = {"user": [1, 1, 2], "item": [7, 8, 7], "click": [1, 0, 1], "price": [1.5, 2.5, 3.5]}

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"ignore": "price"}, "ignore must be names of columns, not 'price'"),
    ({"ignore": [["price"]]}, r"ignore must be names of columns, not \[\['price'\]\]"),
    ({"keep": "price"}, "keep must be names of columns, not 'price'"),
    ({"features": "price"}, "features must be 'auto' or a list, not 'price'"),
    ({"features": 3}, "features must be 'auto' or a list, not 3"),
    ({"features": [3]}, "3 is not a feature"),
    ({"user": None}, "a log needs a user and an item"),
    ({"item": 3}, "item: 3 is not the name of a column"),
    ({"user": "item"}, "column 'item' is given both as user and as item"),
    ({"conversion": "click", "click": "click"}, "column 'click' is given both as click and as conversion"),
    ({"time": ["shown"]}, r"time: \['shown'\] is not the name of a column"),
]
VOCABULARIES: list[tuple[dict[str, Any], str]] = [
    ({"users": [1, 2]}, "users must be a Vocabulary, not a list"),
    ({"items": {1: 2}}, "items must be a Vocabulary, not a dict"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(pa.table(ROWS), tmp_path / "a.parquet")
    return tmp_path


@pytest.mark.parametrize(("options", "message"), [*WRONG, *VOCABULARIES])
def test_of_files(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        read_log(folder, space="impressions", **{"features": "auto", **options})


@pytest.mark.parametrize(("options", "message"), WRONG[:2])
def test_of_features_of_a_log(options: dict[str, Any], message: str) -> None:
    log = Log.from_frame(pa.table(ROWS), click="click", space="impressions", keep=["price"])
    with pytest.raises(ParameterError, match=message):
        log.with_features("auto", **options)


def test_the_column_of_clicks_that_nobody_named_may_be_the_conversion_of_pairs(folder: Path) -> None:
    log = read_log(folder, conversion="click")
    assert (log.n_clicks, log.known_conversion().tolist()) == (3, [1, 0, 1])


def test_a_numbers_text_is_no_list_of_names(folder: Path) -> None:
    with pytest.raises(ParameterError, match="numbers must be names of columns, not 'price'"):
        read_log(folder, numbers="price")


def test_names_may_come_from_anything_that_gives_texts(folder: Path) -> None:
    for names in (["price"], ("price",), {"price"}, iter(["price"])):
        assert "price" in read_log(folder, keep=names).columns  # type: ignore[arg-type]
