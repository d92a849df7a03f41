"""The Open Bandit Dataset in its official format, written small."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from contracts.dataset_contract import DatasetContract
from unskew.base.errors import DataError, ParameterError
from unskew.data.datasets import load as load_by_name

N_ITEMS = 5
HEADER = ",timestamp,item_id,position,click,propensity_score," + ",".join(
    [*(f"user_feature_{k}" for k in range(4)), *(f"user-item_affinity_{k}" for k in range(N_ITEMS))]
)
CONTEXT = ",item_id,item_feature_0,item_feature_1,item_feature_2,item_feature_3"


def row(number, item, click, propensity):
    hashes = [f"81ce123cbb5b{(number + k) % 3}" if k == 0 else f"0c{k}" for k in range(4)]
    affinity = [f"{(number * N_ITEMS + k) / 10}" for k in range(N_ITEMS)]
    time = f"2019-11-24 00:00:{number % 60:02d}.843521+00:00"
    return ",".join(
        [str(number), time, str(item), str(1 + number % 3), str(click), str(propensity), *hashes, *affinity]
    )


def write(folder, campaign="all"):
    for policy, rows in (
        ("bts", [row(k, k % 3, int(k % 4 == 0), 0.25 + 0.5 * (k % 2)) for k in range(20)]),
        ("random", [row(k, k % N_ITEMS, int(k % 3 == 0), 1 / N_ITEMS) for k in range(15)]),
    ):
        place = folder / policy / campaign
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{campaign}.csv").write_text("\n".join([HEADER, *rows]) + "\n")
        items = [f"{k},{k},{-0.5 * k},aa{k % 2},bb,cc" for k in range(N_ITEMS)]
        (place / "item_context.csv").write_text("\n".join([CONTEXT, *items]) + "\n")
    return folder


class TestOpenBandit(DatasetContract):
    name = "open_bandit"
    events = True

    @pytest.fixture
    def load(self, tmp_path):
        write(tmp_path)
        return lambda **options: load_by_name("open_bandit", tmp_path, **options)

    def test_every_row_was_shown_with_the_logged_probability(self, load):
        data = load()
        train = data.train
        assert (train.known_propensity, train.actions, train.n_items) == (
            "propensity_score",
            N_ITEMS,
            N_ITEMS,
        )
        assert train.n_clicks == len(train) == 20
        np.testing.assert_array_equal(train.columns["propensity_score"], 0.25 + 0.5 * (np.arange(20) % 2))
        np.testing.assert_array_equal(train.conversion, np.arange(20) % 4 == 0)
        assert train.population_size == 20 * N_ITEMS
        assert data.test_is == "random"
        np.testing.assert_allclose(data.test.columns["propensity_score"], 1 / N_ITEMS)

    def test_people_with_the_same_features_are_one_user(self, load):
        data = load()
        assert data.train.n_users == 3
        np.testing.assert_array_equal(data.train.user, np.arange(20) % 3)

    def test_features_are_of_the_user_the_item_and_both(self, load):
        train = load(features="auto").train
        item, values = np.arange(20) % 3, train.features.values
        affinity = values["affinity"].values
        np.testing.assert_allclose(affinity, (np.arange(20) * N_ITEMS + item) / 10, rtol=1e-6)
        np.testing.assert_array_equal(values["item_feature_0"].values[:3], [0, -0.5, -1])
        columns = load().train.columns
        np.testing.assert_array_equal(columns["position"], 1 + np.arange(20) % 3)
        assert columns["time"][0] == np.datetime64("2019-11-24T00:00:00.843521")
        assert set(columns) == {"time", "position", "propensity_score"}

    def test_networks_read_features_of_each_role(self, load):
        data = load(features="auto")
        fields = {field.name: (field.kind, field.role) for field in data.train.schema.features}
        assert fields["user_feature_0"] == ("category", "user")
        assert fields["item_feature_0"] == ("number", "item")
        assert fields["item_feature_1"] == ("category", "item")
        assert fields["affinity"] == ("number", "row")
        assert fields["position"] == ("category", "row")
        assert {"time.hour", "time.weekday"} <= fields.keys()
        assert data.train.time == "time"

    def test_the_random_policy_trains_without_a_test_log(self, load):
        data = load(policy="random")
        assert data.test is None
        assert len(data.train) == 15

    def test_it_is_what_snips_trains_on(self, load):
        data, method = load(), us.SNIPS(learner=us.MF(dim=2), epochs=1, validation_share=0.2)
        by_default, by_name, by_one = (
            method.fit(data.train, propensity=p).predict(data.test) for p in (None, "propensity_score", 0.5)
        )
        np.testing.assert_array_equal(by_default, by_name)
        assert (by_default != by_one).any()


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (
            "all.csv",
            lambda text: text.replace(",0.75,81", ",0,81"),
            r"'propensity_score'.*: the probability of sho",
        ),
        (
            "all.csv",
            lambda text: text.replace("affinity_4", "affinity_9"),
            r"'user-item_affinity_4' in include_columns does not exist",
        ),
        (
            "item_context.csv",
            lambda text: text.replace("\n2,2", "\n2,9"),
            r"item_id 2 is not in item_context\.csv",
        ),
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path, name, damage, message):
    path = write(tmp_path) / "bts" / "all" / name
    path.write_text(damage(path.read_text()))
    with pytest.raises(DataError, match=message) as caught:
        load_by_name("open_bandit", tmp_path, features="auto")
    assert "\n" not in str(caught.value)


def test_unknown_choices_are_refused(tmp_path):
    with pytest.raises(ParameterError, match="campaign must be 'all', 'men' or 'women', not 'kids'"):
        load_by_name("open_bandit", tmp_path, campaign="kids")
