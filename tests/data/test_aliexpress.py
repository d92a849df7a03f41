"""AliExpress search in the format of its train.csv and test.csv, written small."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.dataset_contract import DatasetContract
from unskew.base.errors import DataError, ParameterError
from unskew.data.datasets import load as load_by_name

CATEGORIES = [f"categorical_{k}" for k in range(1, 17)]
NUMBERS = [f"numerical_{k}" for k in range(1, 64)]
HEADER = ",".join(["search_id", *CATEGORIES, *NUMBERS, "click", "conversion"])


def row(search, number, click, conversion):
    categories = [str((number + k) % 5) for k in range(16)]
    numbers = [f"{number / (k + 1):.4f}" for k in range(63)]
    return ",".join([search, *categories, *numbers, str(click), str(conversion)])


def write(folder):
    """Searches a, b and c in training, with rows of a on both sides of b's; b and d in test."""
    train = [row(search, k, k % 2, int(k % 4 == 1)) for k, search in enumerate("aabbacccab")]
    test = [row(search, k, int(k > 0), int(k == 2)) for k, search in enumerate("bddd")]
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("train.csv", train), ("test.csv", test)):
        (folder / name).write_text("\n".join([HEADER, *lines]) + "\n")
    return folder


class TestAliExpress(DatasetContract):
    name = "aliexpress"
    events = True

    @pytest.fixture
    def load(self, tmp_path):
        write(tmp_path / "AliExpress_NL")
        return lambda **options: load_by_name("aliexpress", tmp_path, **options)

    def test_the_user_is_the_search_and_the_item_its_place_there(self, load):
        train = load().train
        assert (train.space, len(train), train.n_clicks) == ("impressions", 10, 5)
        assert train.users.ids[train.user].tolist() == list("aabbacccab")
        np.testing.assert_array_equal(train.items.ids[train.item], [0, 1, 0, 1, 2, 0, 1, 2, 3, 2])

    def test_without_features_ids_and_outcomes_are_read(self, load):
        train = load().train
        assert (train.features, dict(train.columns)) == (None, {})

    def test_networks_read_codes_as_categories_and_numbers_as_numbers(self, load):
        data = load(features="auto")
        kinds = {field.name: field.kind for field in data.train.schema.features}
        assert kinds == dict.fromkeys(CATEGORIES, "category") | dict.fromkeys(NUMBERS, "number")
        assert data.test.features.declared == data.train.features.declared

    def test_new_searches_are_counted(self, load):
        assert load().facts["test_rows_of_new_users"] == 3
        assert len(load(rows=4).train) == 4


@pytest.mark.parametrize("place", [".", "NL", "AliExpress_NL"])
def test_the_files_are_found_where_they_are_put(tmp_path, place):
    write(tmp_path / place)
    assert len(load_by_name("aliexpress", tmp_path).train) == 10


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (
            "train.csv",
            lambda text: text.replace("search_id", "search"),
            r"train\.csv: .*Column 'search_id' in include_columns does not exist in CSV file",
        ),
        ("test.csv", lambda text: HEADER + "\n", r"test\.csv: the file has no rows"),
        (
            "test.csv",
            lambda text: text.replace(",1,1\n", ",1,7\n"),
            r"test\.csv, column 'conversion'.*value 7",
        ),
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path, name, damage, message):
    path = write(tmp_path) / name
    path.write_text(damage(path.read_text()))
    with pytest.raises(DataError, match=message) as caught:
        load_by_name("aliexpress", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_an_unknown_country_are_refused(tmp_path):
    (write(tmp_path / "NL") / "test.csv").unlink()
    with pytest.raises(DataError, match=r"test\.csv missing; .* \(Tianchi, dataset 74690\)"):
        load_by_name("aliexpress", tmp_path)
    with pytest.raises(ParameterError, match="country must be 'NL', 'ES', 'FR' or 'US', not 'DE'"):
        load_by_name("aliexpress", tmp_path, country="DE")
