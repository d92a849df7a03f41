"""Yahoo! R3 in its official format and in the comma-separated copy, written small."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.dataset_contract import DatasetContract
from unskew.base.errors import DataError, ParameterError
from unskew.data.datasets import load as load_by_name

OFFICIAL = ("ydata-ymusic-rating-study-v1_0-train.txt", "ydata-ymusic-rating-study-v1_0-test.txt")
CHOSEN = [(1, 1, 5), (1, 2, 1), (1, 4, 4), (2, 1, 3), (2, 3, 5), (3, 2, 2), (4, 4, 4)]
RANDOM = [(1, 3, 1), (1, 2, 1), (2, 2, 4), (2, 4, 5), (3, 1, 2), (3, 3, 3)]


def write(folder, names=OFFICIAL, separator="\t", shift=0, header=""):
    for name, rows in zip(names, (CHOSEN, RANDOM), strict=True):
        lines = [
            separator.join(map(str, (user - shift, item - shift, rating))) for user, item, rating in rows
        ]
        (folder / name).write_text(header + "\n".join(lines) + "\n")
    return folder


class TestYahooR3(DatasetContract):
    name = "yahoo_r3"

    @pytest.fixture
    def load(self, tmp_path):
        write(tmp_path)
        return lambda **options: load_by_name("yahoo_r3", tmp_path, **options)

    def test_ratings_become_conversions(self, load):
        data = load(protocol="paper")
        assert (data.train.n_users, data.train.n_items, data.train.density) == (4, 4, 7 / 16)
        np.testing.assert_array_equal(data.train.conversion, [1, 0, 1, 0, 1, 0, 1])
        np.testing.assert_array_equal(data.test.conversion, [0, 0, 1, 1, 0, 0])
        np.testing.assert_array_equal(load(positive_rating=3).train.conversion, [1, 0, 1, 1, 1, 0, 1])
        np.testing.assert_array_equal(data.train.columns["rating"], [rating for *_, rating in CHOSEN])

    def test_leaked_cells_and_size_are_told(self, load):
        facts = load().facts
        assert facts["leaked_cells_dropped"] == 1
        assert facts["has_official_size"] is False


@pytest.mark.parametrize(
    ("names", "header"),
    [
        (("user.txt", "random.txt"), ""),
        (("train.txt", "test.txt"), ""),
        (("train.csv", "test.csv"), "user,item,rate\n"),
    ],
)
def test_the_comma_separated_copy_from_0_is_the_same_data(tmp_path, names, header):
    official = load_by_name("yahoo_r3", write(tmp_path))
    (tmp_path / "copy").mkdir()
    copy = load_by_name("yahoo_r3", write(tmp_path / "copy", names, separator=",", shift=1, header=header))
    for a, b in ((official.train, copy.train), (official.test, copy.test)):
        np.testing.assert_array_equal(a.cell, b.cell)
        np.testing.assert_array_equal(a.conversion, b.conversion)
    assert (official.train.users.ids[0], copy.train.users.ids[0]) == (1, 0)
    assert copy.facts["files"] == list(names)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (OFFICIAL[0], "1\t1\t5\n1\t2\n", r"train\.txt: .* number of columns changed from 3 to 2 at row 2"),
        (OFFICIAL[0], "1\t1\n1\t2\n", r"train\.txt: line 1 has 2 numbers, not user, item and rating"),
        (OFFICIAL[1], "1\t1\t5\n1\t2\tgood\n", r"test\.txt: .* string 'good' to int64 at row 1, column 3"),
        (OFFICIAL[0], "1\t1\t5\n1\t2\t7\n", r"train\.txt, line 2: rating 7 is not 1 to 5"),
        (OFFICIAL[0], "", r"train\.txt: the file is empty"),
        (OFFICIAL[0], "1\t1\té\n", r"train\.txt: cannot be read: 'ascii' codec"),
        (
            OFFICIAL[0],
            "1\t1\t5\n1\t1\t2\n",
            r"train\.txt, columns 'user' and 'item', row 1: the pair \(user 1, item 1\)",
        ),
    ],
)
def test_a_malformed_line_is_named_by_file_and_line(tmp_path, name, content, message):
    (write(tmp_path) / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        load_by_name("yahoo_r3", tmp_path)
    assert caught.value.remedy


def test_a_half_downloaded_folder_lists_what_was_expected_and_found(tmp_path):
    (write(tmp_path) / OFFICIAL[1]).unlink()
    message = rf"{OFFICIAL[1]} missing; expected {OFFICIAL[0]}, {OFFICIAL[1]}; "
    with pytest.raises(DataError, match=message + rf"found {OFFICIAL[0]}\. To fix: ask Yahoo! Webscope"):
        load_by_name("yahoo_r3", tmp_path)


def test_a_rating_that_nobody_can_give_is_no_threshold(tmp_path):
    with pytest.raises(ParameterError, match="positive_rating must be a whole number from 2 to 5, not 1"):
        load_by_name("yahoo_r3", tmp_path, positive_rating=1)
