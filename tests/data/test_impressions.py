"""The world of impressions: rates, positions, confounding and arrivals are as asked; chunks do not matter."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from contracts.dataset_contract import DatasetContract
from unskew.base.errors import ParameterError, RunFolderError
from unskew.cli import main
from unskew.data.datasets import impression_world
from unskew.data.datasets import load as load_by_name
from unskew.data.datasets.impression_world import START, ImpressionWorld
from unskew.data.datasets.impressions import COLUMNS, TRUTH, log_table, truth_table, write_world
from unskew.metrics import auc

SMALL = {"n_rows": 4_000, "n_users": 300, "n_items": 60, "test_rows": 800}


class TestImpressions(DatasetContract):
    name = "impressions"

    @pytest.fixture
    def load(self):
        return lambda **options: load_by_name("impressions", **SMALL, seed=5, **options)

    def test_the_truth_has_a_value_for_each_row(self, load):
        data = load()
        for log, truth in ((data.train, data.row_truth["train"]), (data.test, data.row_truth["test"])):
            assert truth.keys() >= TRUTH.keys()
            assert {len(values) for values in truth.values()} == {len(log)}

    def test_no_column_of_a_log_is_of_the_truth_or_an_outcome(self, load):
        data = load()
        hidden = {*TRUTH, "conversion_time", "click", "conversion"}
        assert hidden.isdisjoint(data.train.columns)
        assert hidden.isdisjoint(data.test.columns)

    def test_conversions_are_those_that_would_follow_the_clicks(self, load):
        data = load()
        clicked = data.train.clicked
        truth = data.row_truth["train"]
        np.testing.assert_array_equal(data.train.known_conversion(), truth["would_convert"][clicked])
        np.testing.assert_array_equal(data.test.conversion, data.row_truth["test"]["would_convert"])
        converted = (data.train.click == 1) & (truth["would_convert"] == 1)
        np.testing.assert_array_equal(np.isnat(truth["conversion_time"]), ~converted)
        assert (truth["conversion_time"] >= data.train.columns["time"])[converted].all()


@pytest.fixture(scope="module")
def world():
    return ImpressionWorld(n_rows=262_144, n_users=20_000, n_items=1_000, conversion_rate=0.02, seed=3)


@pytest.fixture(scope="module")
def rows(world):
    return joined(world)


def joined(world):
    """All chunks of a world, as one dictionary of columns."""
    chunks = [world.chunk(number) for number in range(world.n_chunks)]
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def test_rates_are_as_asked(world, rows):
    assert rows["p_click"].mean() == pytest.approx(world.click_rate, rel=0.02)
    assert rows["p_conversion"].mean() == pytest.approx(world.conversion_rate, rel=0.02)
    for drawn, p in (("click", "p_click"), ("label", "p_conversion"), ("examined", "examination")):
        assert within(rows[drawn] - rows[p], 4.0)


def test_the_chance_of_examination_falls_with_the_position_as_said(world, rows):
    for position, theta in enumerate(world.examination):
        at = rows["position"] == position
        assert theta == pytest.approx(1 / (1 + position))
        assert within(rows["examined"][at] - theta, 4.0)
    assert not rows["click"][rows["examined"] == 0].any()
    assert abs(np.corrcoef(rows["examination"], rows["conversion_logit"])[0, 1]) > 0.1, (
        "the policy shows good items first"
    )


def test_selection_raises_the_conversion_rate_of_clicks_and_without_bias_it_does_not(rows):
    assert rows["label"][rows["click"] == 1].mean() > 1.5 * rows["label"].mean()
    even = joined(ImpressionWorld(n_rows=131_072, n_users=5_000, n_items=500, bias=0.0, seed=4))
    clicked = even["click"] == 1
    assert within((even["label"] - even["p_conversion"].mean())[clicked], 4.0)


def test_without_confounding_click_and_conversion_are_independent_given_what_is_shown(world, rows):
    """Products of residuals about the true probabilities, which depend on features and ids alone."""
    assert within((rows["click"] - rows["p_click"]) * (rows["label"] - rows["p_conversion"]), 4.0)
    confounded = joined(ImpressionWorld(**{**vars_of(world), "confounding": 1.0}))
    for name in ("user", "item", "position", "time", "device", "discount"):
        np.testing.assert_array_equal(confounded[name], rows[name])
    # Given the features means within rows whose probabilities were alike before the taste came in.
    product = (confounded["click"] - mean_within(confounded["click"], rows["p_click"])) * (
        confounded["label"] - mean_within(confounded["label"], rows["p_conversion"])
    )
    assert product.mean() > 10 * product.std() / np.sqrt(len(product))
    assert confounded["p_click"].mean() == pytest.approx(world.click_rate, rel=0.02)
    assert np.corrcoef(confounded["taste"], confounded["click_logit"])[0, 1] > 0.5


def test_users_come_back_some_much_more_than_others_and_late_ones_are_new(world, rows):
    counts = np.sort(np.bincount(rows["user"], minlength=world.n_users))[::-1]
    assert counts[: world.n_users // 10].sum() > 0.3 * counts.sum()
    half = len(rows["user"]) // 2
    arrivals = 1 - world.arriving * (1 - np.array([0.5, 1.0]))
    assert rows["user"][:half].max() < arrivals[0] * world.n_users + 1
    assert rows["user"][half:].max() > 0.98 * arrivals[1] * world.n_users
    assert (np.diff(rows["time"]) >= 0).all()
    assert START + rows["time"].max().astype("timedelta64[ms]") < world.end


def test_conversions_are_delayed_and_a_censored_log_misses_the_late_ones():
    parameters = {"n_rows": 131_072, "n_users": 2_000, "n_items": 200, "days": 7, "delay_days": 2.0}
    whole, cut = ImpressionWorld(**parameters), ImpressionWorld(**parameters, censored=True)
    delays = whole.chunk(0)["delay"][whole.chunk(0)["label"] == 1] / 86_400_000
    assert 1.5 < delays.mean() < 3.0
    full, seen = (log_table(each, each.chunk(0)).to_pandas() for each in (whole, cut))
    late = full["conversion_time"] >= whole.end
    assert late.sum() > 100
    assert (seen["conversion"] == full["conversion"].where(~late, 0)).all()
    assert seen["conversion_time"].isna().equals(seen["conversion"] == 0)


def test_rows_depend_on_their_number_alone_and_not_on_chunks(monkeypatch):
    parameters = {"n_rows": 10_001, "n_users": 400, "n_items": 50, "positions": 5, "seed": 7}
    whole = joined(ImpressionWorld(**parameters))
    assert len(whole["user"]) == 10_001
    monkeypatch.setattr(impression_world, "CHUNK_SESSIONS", 37)
    parts = ImpressionWorld(**parameters)
    assert parts.n_chunks == 55
    for name, values in joined(parts).items():
        np.testing.assert_array_equal(values, whole[name])
    last = parts.chunk(54)
    np.testing.assert_array_equal(last["item"], whole["item"][-len(last["item"]) :])


def test_another_seed_is_another_world_and_users_do_not_depend_on_their_number():
    small, other, more = (
        ImpressionWorld(n_rows=800, n_users=users, n_items=50, seed=seed)
        for users, seed in ((100, 0), (100, 1), (1000, 0))
    )
    assert not np.array_equal(small.chunk(0)["item"], other.chunk(0)["item"])
    for name, values in small.users.items():
        np.testing.assert_array_equal(values, more.users[name][:100])


def test_tables_hold_the_columns_that_are_documented():
    world = ImpressionWorld(n_rows=2_000, n_users=300, n_items=60)
    chunk = world.chunk(0)
    table = log_table(world, chunk)
    assert table.column_names == list(COLUMNS)
    assert truth_table(chunk).column_names == list(TRUTH)
    frame = table.to_pandas()
    assert 0.01 < frame["age"].isna().mean() < 0.15
    assert frame["interests"].map(len).between(1, 4).all()
    assert frame["tags"].map(len).between(0, 4).all()
    assert frame.groupby("session")["item"].nunique().eq(8).all()
    text = frame.astype(str)
    for owner, names in (
        ("user", ["country", "age", "interests"]),
        ("item", ["category", "brand", "price", "tags"]),
    ):
        assert text.groupby(owner)[names].nunique(dropna=False).eq(1).all(axis=None)


def test_features_rank_the_items_of_new_users_better_than_popularity():
    """Features carry what ids cannot: users of the last tenth of the arrivals are in no training row."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    world = ImpressionWorld(n_rows=131_072, n_users=5_000, n_items=300, conversion_rate=0.2, seed=2)
    chunk = world.chunk(0)
    new = chunk["user"] >= 4_000
    label = chunk["label"]
    inputs = features_of(world, chunk)
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(inputs[~new], label[~new])
    appeal = np.bincount(chunk["item"][~new], label[~new], 300) / np.bincount(
        chunk["item"][~new], minlength=300
    )
    by_features = auc(score=model.predict_proba(inputs[new])[:, 1], outcome=label[new])
    by_popularity = auc(score=appeal[chunk["item"][new]], outcome=label[new])
    best = auc(score=chunk["p_conversion"][new], outcome=label[new])
    assert new.sum() > 2_000
    assert by_popularity + 0.03 < by_features < best


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_rows": 0}, "n_rows must be a whole number from 1"),
        ({"n_rows": 1.5}, r"n_rows must be a whole number from 1 to .*, not 1\.5"),
        ({"n_items": 5}, "a session shows 8 items, but there are only 5"),
        ({"click_rate": 0.5}, r"click_rate is 0.5, but only 0\.340 of the rows are examined"),
        ({"conversion_rate": 0}, r"conversion_rate must be in \(0, 1\), not 0"),
        ({"confounding": -1}, "confounding must be at least 0"),
        ({"arriving": 1.5}, "arriving must be in"),
        ({"bias": "1"}, r"bias must be at least 0, not '1'"),
        ({"seed": -1}, "seed must be a whole number of 0 or more, not -1"),
        ({"test_rows": 0}, "test_rows must be a whole number of at least 1, not 0"),
        ({"root": "here"}, "the impressions are drawn, not read"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        load_by_name("impressions", **{**SMALL, **options})


class TestFiles:
    """``unskew make-data``: a folder whose rows are the world's, whole or not there."""

    @pytest.fixture(autouse=True)
    def small_chunks(self, monkeypatch):
        monkeypatch.setattr(impression_world, "CHUNK_SESSIONS", 32)

    @pytest.fixture
    def world(self):
        return ImpressionWorld(n_rows=2_500, n_users=200, n_items=50, seed=1)

    def test_rows_are_those_of_the_world(self, tmp_path, world):
        chunks = [world.chunk(number) for number in range(world.n_chunks)]
        written = write_world(world, tmp_path / "w", test_rows=100)
        assert (written["rows"], written["files"]) == (2_500, 2)
        for kind, tables in (
            ("log", [log_table(world, chunk) for chunk in chunks]),
            ("truth", [truth_table(chunk) for chunk in chunks]),
        ):
            assert pq.read_table(tmp_path / "w" / kind).equals(pa.concat_tables(tables))
        test = pq.read_table(tmp_path / "w" / "test.parquet")
        assert 98 <= test.num_rows <= 100
        assert "click" not in test.column_names
        assert pq.read_table(tmp_path / "w" / "test_truth.parquet").num_rows == test.num_rows
        assert json.loads((tmp_path / "w" / "world.json").read_text())["n_rows"] == 2_500
        write_world(world, tmp_path / "bare", test_rows=0, truth=False)
        assert sorted(path.name for path in (tmp_path / "bare").iterdir()) == ["log", "world.json"]

    def test_a_call_that_fails_leaves_nothing_and_a_folder_that_is_there_is_refused(
        self, tmp_path, world, monkeypatch
    ):
        chunk = ImpressionWorld.chunk
        monkeypatch.setattr(
            ImpressionWorld, "chunk", lambda world, number: chunk(world, number // (9 - number))
        )
        with pytest.raises(ZeroDivisionError):
            write_world(world, tmp_path / "w")
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "w").mkdir()
        (tmp_path / "w" / "notes.txt").write_text("mine")
        with pytest.raises(RunFolderError, match=r"w: .*To fix: "):
            write_world(world, tmp_path / "w")

    def test_the_command_writes_what_can_be_read_as_a_log(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        command = "make-data impressions --rows 2e3 --users 150 --items 40 --out w --test-rows 200"
        assert main([*command.split(), "--option", "click_rate=0.2", "--json", "done.json"]) == 0
        assert "2,000 rows in 1 file, " in capsys.readouterr().out
        assert json.loads((tmp_path / "done.json").read_text())["rows"] == 2_000
        options = {"test_is": "random", "space": "impressions", "unseen": "drop"}
        data = us.load("files", "w", train="log", test="test.parquet", **options)
        assert len(data.train) == 2_000
        assert data.train.density == pytest.approx(0.2, rel=0.2)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("moons --out w", "unknown world 'moons'"),
            ("impressions --out w --rows many", "--rows must be a whole number, not 'many'"),
            ("impressions --out w --rows 1.5", "--rows must be a whole number"),
            ("impressions --out w --rows 1e3 --option clicks=1", "the world has no option clicks"),
            ("impressions --out w --rows 1e3 --option n_users=9", "--option n_users has a flag of its own"),
            ("impressions --out w --rows 1e3 --items 3", "a session shows 8 items, but there are only 3"),
        ],
    )
    def test_a_wrong_command_is_one_line(self, tmp_path, monkeypatch, capsys, arguments, message):
        monkeypatch.chdir(tmp_path)
        assert main(["make-data", *arguments.split()]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1
        assert message in lines[0]
        assert list(tmp_path.iterdir()) == []


def features_of(world, chunk):
    user, item = (
        {name: values[chunk[role]] for name, values in table.items()}
        for role, table in (("user", world.users), ("item", world.items))
    )
    match = np.array([bin(mask).count("1") for mask in user["interests"] & item["tags"]])
    return np.column_stack(
        [
            *(user["country"], user["age"], item["category"], item["brand"], item["price"]),
            *(match, chunk["device"], chunk["discount"]),
        ]
    )


def vars_of(world):
    return {name: getattr(world, name) for name in world.__dataclass_fields__}


def within(values, errors):
    """Whether a mean is within so many of its standard errors of 0."""
    return abs(values.mean()) <= errors * values.std() / np.sqrt(len(values))


def mean_within(values, key, groups=200):
    """The mean of values over the rows with about the same key."""
    group = np.argsort(np.argsort(key)) * groups // len(key)
    return (np.bincount(group, values) / np.bincount(group))[group]
