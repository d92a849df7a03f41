"""Ali-CCP in its official format, written small."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.dataset_contract import DatasetContract
from unskew.base.errors import DataError, ParameterError
from unskew.data.datasets import dataset
from unskew.data.datasets import load as load_by_name
from unskew.data.datasets.aliccp import OF_COMMON, OF_SAMPLE

NAMES = ("sample_skeleton_train.csv", "common_features_train.csv")
NAMES += ("sample_skeleton_test.csv", "common_features_test.csv")


def feature_list(*features):
    return "\x01".join(f"{field}\x02{feature}\x03{value}" for field, feature, value in features)


def common(index, user, extra=()):
    features = [
        ("101", user, 1.0),
        ("121", 90 + user % 3, 1.0),
        ("109_14", 7, 2.07),
        ("109_14", 8, 0.7),
        *extra,
    ]
    return f"{index},{len(features)},{feature_list(*features)}"


def sample(number, click, conversion, index, item, extra=()):
    features = [("205", item, 1.0), ("206", 500 + item, 1.0), ("301", 9_351_665, 1.0), *extra]
    return f"{number},{click},{conversion},{index},{len(features)},{feature_list(*features)}"


def write(folder, inside=""):
    """Four indices of three users in training, a new user and a new item in test."""
    samples = [sample(k, k % 2, int(k % 4 == 1), "abcd"[k % 4], 10 + k % 3) for k in range(12)]
    samples[5] = sample(5, 1, 1, "b", 12, [("508", 77, 0.69), ("508", 78, 1.1)])
    samples.append(sample(12, 0, 1, "a", 10))
    tests = [sample(k, int(k > 1), int(k == 3), "xy"[k % 2], 11 + k) for k in range(4)]
    content = {
        NAMES[0]: samples,
        NAMES[1]: [common("a", 1), common("b", 2), common("c", 3, [("122", 5, 1.0)]), common("d", 1)],
        NAMES[2]: tests,
        NAMES[3]: [common("x", 2), common("y", 9)],
    }
    for name, lines in content.items():
        place = folder / inside.format("train" if "train" in name else "test")
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("\n".join(lines) + "\n")
    return folder


class TestAliCCP(DatasetContract):
    name = "aliccp"
    events = True

    @pytest.fixture
    def load(self, tmp_path):
        write(tmp_path)
        return lambda **options: load_by_name("aliccp", tmp_path, **options)

    def test_rows_are_joined_with_what_they_share(self, load):
        train = load(features="auto").train
        assert (len(train), train.space, train.n_clicks) == (13, "impressions", 6)
        users, items = train.users.ids[train.user], train.items.ids[train.item]
        np.testing.assert_array_equal(users[:4], [1, 2, 3, 1])
        np.testing.assert_array_equal(items[:5], [10, 11, 12, 10, 11])
        for name, expected in (
            ("121", [90 + user % 3 for user in users]),
            ("122", [5 if user == 3 else None for user in users]),
            ("206", [500 + item for item in items]),
            # Of several values the first is kept.
            ("508", [77 if row == 5 else None for row in range(13)]),
        ):
            assert texts(train, f"field_{name}") == [None if each is None else str(each) for each in expected]

    def test_a_conversion_without_a_click_counts_as_none(self, load):
        train = load().train
        assert np.isnan(train.conversion[12])
        assert train.known_conversion().sum() == 3

    def test_what_is_new_in_the_test_log_is_counted(self, load):
        data = load()
        assert (data.facts["test_rows_of_new_users"], data.facts["test_rows_of_new_items"]) == (2, 2)
        assert data.test_is == "logged"
        assert data.facts["has_official_size"] is False

    def test_without_features_no_field_is_read_and_rows_may_be_limited(self, load):
        train = load(rows=6).train
        assert (len(train), train.features, dict(train.columns)) == (6, None, {})

    def test_networks_read_the_fields_as_categories(self, load):
        data = load(features="auto", ignore=["field_301"])
        kinds = {field.name: field.kind for field in data.train.schema.features}
        assert kinds.keys() == {f"field_{name}" for name in (*OF_COMMON, *OF_SAMPLE)} - {"field_301"}
        assert set(kinds.values()) == {"category"}
        assert data.test.features.declared == data.train.features.declared
        assert dict(data.train.columns) == {}
        assert [each.name for each in load(features=["field_206"]).train.schema.features] == ["field_206"]

    def test_blocks_make_no_difference(self, load, monkeypatch):
        whole = load(features="auto").train
        monkeypatch.setattr(dataset, "BLOCK_BYTES", 200)
        assert load(features="auto").train.digest == whole.digest


def texts(log, name):
    """Return the values of a category by row."""
    values, codes = log.features.values[name], {"user": log.user, "item": log.item}
    role = next(field.role for field in log.schema.features if field.name == name)
    rows = values.codes[codes[role]] if role in codes else values.codes
    return [None if code < 0 else values.texts[code] for code in rows]


def test_files_are_found_in_the_folders_of_the_archives(tmp_path):
    assert len(load_by_name("aliccp", write(tmp_path, "sample_{}")).train) == 13


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (
            NAMES[0],
            lambda text: text[:-20],
            r"train\.csv, line 13: 3 features are announced, and 2 are there",
        ),
        (NAMES[0], lambda text: text[:-12], r"line 13: 3 features are announced, and 2 are there"),
        (NAMES[0], lambda text: text.replace("205\x02", "204\x02"), r"line 1: the row has no field 205"),
        (
            NAMES[1],
            lambda text: text.replace("c,5", "e,5"),
            r"line 3: common_feature_index c is not in common",
        ),
        (
            NAMES[1],
            lambda text: text.replace("101\x02", "100\x02"),
            r"line 1: the row has no field 101 \(its us",
        ),
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path, name, damage, message):
    path = write(tmp_path) / name
    path.write_text(damage(path.read_text()))
    with pytest.raises(DataError, match=message) as caught:
        load_by_name("aliccp", tmp_path)
    assert "Tianchi" in caught.value.remedy
    assert "\n" not in str(caught.value)


def test_an_impossible_number_of_rows_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="rows must be a whole number of at least 1, not 0"):
        load_by_name("aliccp", write(tmp_path), rows=0)
