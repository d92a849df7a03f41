"""Coat: the real files where they are, and broken folders."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from contracts.dataset_contract import DatasetContract
from unskew.base.errors import DataError, ParameterError
from unskew.data.datasets import load as load_by_name


@pytest.mark.coat
class TestCoat(DatasetContract):
    name = "coat"

    @pytest.fixture
    def load(self, coat_root):
        return lambda **options: load_by_name("coat", coat_root, **options)

    def test_sizes_are_those_of_the_published_data(self, load):
        data = load()
        assert (data.train.n_users, data.train.n_items, data.train.population_size) == (290, 300, 87_000)
        assert (len(data.train), data.train.density) == (6_960, 0.08)
        np.testing.assert_array_equal(np.bincount(data.train.user), 24)
        np.testing.assert_array_equal(np.bincount(load(protocol="paper").test.user), 16)

    def test_366_test_cells_leak_with_the_same_rating(self, load):
        data = load(protocol="paper")
        assert data.facts["leaked_cells_found"] == 366
        assert (len(data.test), len(load().test)) == (4_640, 4_640 - 366)
        trained = dict(zip(data.train.cell.tolist(), data.train.columns["rating"].tolist(), strict=True))
        tested = zip(data.test.cell.tolist(), data.test.columns["rating"].tolist(), strict=True)
        assert all(trained[cell] == rating for cell, rating in tested if cell in trained)

    def test_positive_rates_are_the_measured_ones(self, load):
        data = load(protocol="paper")
        assert data.train.known_conversion().mean() == pytest.approx(0.274, abs=5e-4)
        assert data.test.known_conversion().mean() == pytest.approx(0.185, abs=5e-4)
        assert load(positive_rating=3).train.known_conversion().mean() == pytest.approx(0.520, abs=5e-4)

    def test_each_person_and_coat_has_one_value_of_each_feature(self, load):
        train = load().train
        assert (len(train.user_features.names), len(train.item_features.names)) == (14, 33)
        assert train.user_features.names[3] == "age:30-40"
        groups = [name.partition(":")[0] for name in train.item_features.names]
        for group in set(groups):
            columns = [k for k, name in enumerate(groups) if name == group]
            np.testing.assert_array_equal(train.item_features.values[:, columns].sum(axis=1), 1)

    def test_networks_read_them_as_eight_categories(self, load):
        data = load(features="auto")
        fields = {each.name: (each.kind, each.role, each.size - 2) for each in data.train.schema.features}
        assert fields == {
            "user.gender": ("category", "user", 2),
            "age": ("category", "user", 6),
            "location": ("category", "user", 3),
            "fashioninterest": ("category", "user", 3),
            "item.gender": ("category", "item", 2),
            "jackettype": ("category", "item", 16),
            "color": ("category", "item", 13),
            "onfrontpage": ("category", "item", 2),
        }
        assert data.test.features.declared == data.train.features.declared
        assert load(features=["age"]).train.schema.features[0].name == "age"

    def test_shipped_propensities_come_along(self, load):
        shipped = load().extra["shipped_propensities"]
        assert shipped.shape == (290, 300)
        assert shipped.mean() == pytest.approx(0.08, abs=1e-3)

    def test_the_official_archive_keeps_features_in_a_subfolder(self, load, coat_copy):
        folder = coat_copy / "user_item_features"
        folder.mkdir()
        for name in ("user", "item"):
            for suffix in (".ascii", "_map.txt"):
                shutil.move(coat_copy / f"{name}_features{suffix}", folder)
        copied = load_by_name("coat", coat_copy)
        np.testing.assert_array_equal(copied.train.user_features.values, load().train.user_features.values)

    @pytest.fixture
    def coat_copy(self, coat_root, tmp_path):
        for path in coat_root.iterdir():
            shutil.copyfile(path, tmp_path / path.name)
        return tmp_path

    def test_features_and_propensities_are_read_if_their_files_are_there(self, coat_copy):
        (coat_copy / "user_features.ascii").unlink()
        with pytest.raises(DataError, match=r"user_features\.ascii missing"):
            load_by_name("coat", coat_copy)
        for name in ("user_features_map.txt", "item_features.ascii", "item_features_map.txt"):
            (coat_copy / name).unlink()
        (coat_copy / "propensities.ascii").unlink()
        data = load_by_name("coat", coat_copy)
        assert data.train.user_features is None
        assert data.extra == {}

    def test_names_of_features_that_are_no_text_are_told(self, coat_copy):
        (coat_copy / "user_features_map.txt").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(DataError, match=r"user_features_map.txt: cannot be read: 'utf-8' codec"):
            load_by_name("coat", coat_copy)

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda text: text[: 600 * 145 + 100], r"number of columns changed from 300 to \d+ at row 146"),
            (
                lambda text: text[: 600 * 100],
                r"train.ascii: expected 290 lines of 300 numbers, found 100 lines of 300",
            ),
            (lambda text: "x" + text[1:], r"could not convert string 'x' to float64 at row 0, column 1"),
            (lambda text: "9" + text[1:], r"line 1: rating 9 of item 0 is not a whole number from 0 to 5"),
            (lambda text: "é" + text[1:], r"train.ascii: cannot be read: 'ascii' codec"),
        ],
    )
    def test_a_damaged_file_says_what_was_expected_and_found(self, coat_copy, damage, message):
        path = coat_copy / "train.ascii"
        path.write_text(damage(path.read_text()), encoding="utf-8")
        with pytest.raises(DataError, match=message) as caught:
            load_by_name("coat", coat_copy)
        assert "train.ascii" in caught.value.where
        assert "download coat.zip again" in caught.value.remedy


def test_a_rating_that_nobody_can_give_is_no_threshold(tmp_path):
    with pytest.raises(ParameterError, match="positive_rating must be a whole number from 2 to 5, not 6"):
        load_by_name("coat", tmp_path, positive_rating=6)
