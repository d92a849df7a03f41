"""The Log: what it computes, what it refuses, and that nothing changes it afterwards."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unskew as us
from unskew.base.errors import DataError, ParameterError
from unskew.data import Features, Log
from unskew.data.vocabulary import Vocabulary

NULL = None


def pandas(*content, **options):
    """A data frame; without the package the test that asks for one is skipped."""
    return pytest.importorskip("pandas").DataFrame(*content, **options)


def polars(*content):
    return pytest.importorskip("polars").DataFrame(*content)


FRAMES = {
    "pandas": pandas,
    "pandas-nullable": lambda columns: pandas(columns).convert_dtypes(),
    "polars": polars,
    "arrow": pa.table,
}


def columns(**changed):
    """A log of five rows in which nothing is wrong."""
    good = {
        "uid": ["ann", "ann", "bob", "bob", "cid"],
        "iid": [7, 8, 7, 9, 8],
        "clicked": [1, 0, 1, 1, 0],
        "bought": [1, NULL, 0, 1, NULL],
    }
    return {**good, **changed}


def build(frame=pa.table, options=None, **changed):
    return Log.from_frame(
        frame(columns(**changed)),
        user="uid",
        item="iid",
        click="clicked",
        conversion="bought",
        **(options or {}),
    )


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_every_kind_of_frame_gives_the_same_log(frame):
    log = build(frame, {"keep": ("clicked",)})
    assert (log.n_users, log.n_items, log.population_size, log.n_clicks, log.density) == (3, 3, 9, 3, 3 / 9)
    np.testing.assert_array_equal(log.user, [0, 0, 1, 1, 2])
    np.testing.assert_array_equal(log.item, [0, 1, 0, 2, 1])
    np.testing.assert_array_equal(log.cell, [0, 1, 3, 5, 7])
    np.testing.assert_array_equal(log.clicked, [0, 2, 3])
    np.testing.assert_array_equal(log.conversion, np.array([1, np.nan, 0, 1, np.nan], dtype=np.float32))
    np.testing.assert_array_equal(log.known_conversion(), [1, 0, 1])
    np.testing.assert_array_equal(log.columns["clicked"], [1, 0, 1, 1, 0])
    assert log.users.ids.tolist() == ["ann", "bob", "cid"]


def test_clicks_may_be_left_out_in_the_matrix_where_a_listed_pair_was_clicked():
    log = Log.from_arrays(user=[1, 1, 2], item=[1, 2, 1], conversion=[0, 1, 0])
    assert (log.n_clicks, log.population_size, log.density) == (3, 4, 0.75)


def test_the_population_of_impressions_is_the_rows():
    log = Log.from_arrays(
        user=[1, 1, 1, 2],
        item=[1, 1, 1, 1],
        click=[0, 1, 1, 0],
        conversion=[1, 0, 1, NULL],
        space="impressions",
    )
    assert (log.population_size, log.density) == (4, 0.5)
    np.testing.assert_array_equal(log.conversion, np.array([np.nan, 0, 1, np.nan], dtype=np.float32))


def test_a_conversion_of_0_where_click_is_0_is_unknown():
    assert np.isnan(build(bought=[1, 0, 0, 1, 0]).conversion).tolist() == [False, True, False, False, True]


BAD = {
    "click is 2": (
        {"clicked": [1, 0, 2, 1, 3]},
        r"column 'clicked', row 2: clicked is value 2, not 0 or 1 \(2 such rows\)",
        "encode as 0 and 1",
    ),
    "click is null": (
        {"clicked": [1, 0, 1, NULL, 0]},
        r"column 'clicked', row 3: clicked is missing \(NaN or null\)",
        "without missing values",
    ),
    "click is text": (
        {"clicked": ["1", "0", "yes", "1", "0"]},
        r"column 'clicked', row 2: value 'yes' is not a number",
        "encode as 0 and 1",
    ),
    "conversion missing where clicked": (
        {"bought": [1, NULL, NULL, NULL, NULL]},
        r"column 'bought', row 2: conversion is missing where click is 1 \(2 such rows\)",
        "give 0 or 1 for every clicked row",
    ),
    "conversion without click": (
        {"bought": [1, 1, 0, 1, NULL]},
        r"column 'bought', row 1: conversion is 1 where click is 0 \(1 such rows\)",
        "count them as clicked (--unclicked click)",
    ),
    "user is null": (
        {"uid": ["ann", "ann", "bob", NULL, "cid"]},
        r"column 'uid', row 3: id is missing",
        "drop these rows",
    ),
    "pair twice": (
        {"iid": [7, 8, 9, 9, 8]},
        r"columns 'uid' and 'iid', row 3: the pair \(uid bob, iid 9\) is listed 2 times \(1 repeated rows",
        "duplicates='max'",
    ),
    "nothing clicked": (
        {"clicked": [0] * 5, "bought": [NULL] * 5},
        r"column 'clicked': no row of the population is clicked: one class only",
        "needs clicks and non-clicks",
    ),
    "only conversions": (
        {"bought": [1, NULL, 1, 1, NULL]},
        r"column 'bought': conversion is 1 on every clicked row: one class only",
        "converted and unconverted",
    ),
    "empty": (
        {"uid": [], "iid": [], "clicked": [], "bought": []},
        r"the log is empty",
        "at least a few clicked rows",
    ),
}


@pytest.mark.parametrize(("changed", "message", "remedy"), BAD.values(), ids=BAD.keys())
def test_bad_input_names_column_row_and_remedy(changed, message, remedy):
    with pytest.raises(DataError, match=f"^{message}") as caught:
        build(**changed)
    line = str(caught.value)
    assert remedy in line.partition("To fix: ")[2]
    assert "\n" not in line


@pytest.mark.parametrize("role", ["user", "item", "click", "conversion"])
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_missing_column_is_named_beside_those_that_are_there(role, frame):
    names = {"user": "uid", "item": "iid", "click": "clicked", "conversion": "bought", role: "nowhere"}
    with pytest.raises(
        DataError, match=r"column 'nowhere' is missing\. To fix: .*: uid, iid, clicked, bought\."
    ):
        Log.from_frame(frame(columns()), **names)


ALL_CLICKED = {
    "matrix": {"user": np.repeat(np.arange(6), 5), "item": np.tile(np.arange(5), 6)},
    "impressions": {"user": np.arange(30) % 6, "item": np.arange(30) % 5, "click": np.ones(30)},
}


@pytest.mark.parametrize("space", ALL_CLICKED)
def test_a_log_in_which_all_is_clicked_trains_a_naive_model_and_no_propensity(space):
    log = Log.from_arrays(**ALL_CLICKED[space], conversion=np.arange(30) % 3 == 0, space=space)
    model = us.Naive(learner=us.MF(dim=2), epochs=2).fit(log, device="cpu")
    assert np.isfinite(model.predict(log)).all()
    every = {"matrix": "pair", "impressions": "row"}[space]
    for learns_clicks in (
        us.PopularityPropensity(),
        us.Propensity(learner=us.Linear()),
        us.ESMM(),
        us.ESCM2DR(),
    ):
        with pytest.raises(DataError, match=f"^every {every} of the population is clicked.*us.Naive trains"):
            learns_clicks.fit(log)


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_a_frame_has_its_clicks_and_conversions_under_the_names_that_a_run_finds(frame):
    table = {"user": [1, 1, 2, 2], "item": [7, 8, 7, 8], "click": [1, 1, 0, 1], "conversion": [1, 0, NULL, 0]}
    log = Log.from_frame(
        frame({**table, "price": [1.5, 2.5, 3.5, 0.5]}), space="impressions", features="auto"
    )
    assert log.click.tolist() == [1, 1, 0, 1]
    assert log.known_conversion().tolist() == [1, 0, 0]
    assert [field.name for field in log.schema.features] == ["price"]


def test_impressions_need_clicks():
    with pytest.raises(DataError, match=r"needs a click for each row. To fix: give click="):
        Log.from_arrays(user=[1, 1], item=[1, 2], conversion=[0, 1], space="impressions")


@pytest.mark.parametrize("role", ["item", "click", "conversion", "price"])
def test_columns_of_different_length_are_named(role):
    given_columns = {"item": [1, 2, 3], "click": [1, 0, 1], "conversion": [1, NULL, 0], "price": [1, 2, 3]}
    given_columns[role] = given_columns[role][:2]
    price = given_columns.pop("price")
    with pytest.raises(DataError, match=f"column '{role}' has 2 rows where the others have 3"):
        Log.from_arrays(user=[1, 2, 3], columns={"price": price}, **given_columns)


@pytest.mark.parametrize("options", [{"space": "grid"}, {"duplicates": "mean"}])
def test_unknown_choices_are_refused(options):
    (name,) = options
    with pytest.raises(ParameterError, match=f"{name} must be '.*' or '.*', not"):
        Log.from_arrays(user=[1, 1], item=[1, 2], **options)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            lambda: {"uid": [1]},
            "dict is not a data frame in memory. To fix: give a pandas, polars or Arrow table",
        ),
        (lambda: polars({"uid": [1]}).lazy(), "column 'iid' is missing"),
        (lambda: pandas([[1, 2]], columns=["uid", "uid"]), "unique column names.* 'uid' 2 times"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(frame, message):
    with pytest.raises(DataError, match=message) as caught:
        Log.from_frame(frame(), user="uid", item="iid")
    assert "\n" not in str(caught.value)


rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=40
)


@given(rows)
def test_max_keeps_each_pair_once_as_a_dictionary_would(rows):
    expected: dict[tuple[int, int], tuple[bool, bool]] = {}
    for user, item, click, conversion in rows:
        before = expected.get((user, item), (False, False))
        expected[user, item] = (before[0] or click, before[1] or (click and conversion))
    # One clicked and converted pair, one clicked and not, one unclicked: so that no class is alone.
    fixed = [(9, 7, True, True), (9, 8, True, False), (9, 9, False, False)]
    user, item, click, conversion = map(np.array, zip(*rows, *fixed, strict=True))
    log = Log.from_arrays(
        user=user,
        item=item,
        click=click,
        conversion=click & conversion,
        duplicates="max",
        columns={"row": range(len(user))},
    )
    assert len(log) == len(expected) + len(fixed)
    assert (np.diff(log.columns["row"]) > 0).all()  # the order of first appearance
    for k, (u, i) in enumerate(zip(log.users.decode(log.user), log.items.decode(log.item), strict=True)):
        if (u, i) in expected:
            clicked, converted = expected[u, i]
            assert log.click[k] == clicked
            np.testing.assert_equal(log.conversion[k], np.float32(converted if clicked else np.nan))


def test_nothing_in_a_log_can_be_written_to():
    features = Features(("age",), np.array([[1.0], [2.0], [3.0]], dtype=np.float32))
    log = build(options={"user_features": features, "keep": ("clicked",)})
    arrays = (
        log.user,
        log.item,
        log.click,
        log.conversion,
        log.columns["clicked"],
        log.users.ids,
        features.values,
    )
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
    with pytest.raises(TypeError):
        log.columns["more"] = log.user
    with pytest.raises(dataclasses.FrozenInstanceError):
        log.user = log.item


def test_the_callers_arrays_stay_his():
    user, item, click = np.array([1, 1, 2]), np.array([1, 2, 1]), np.array([1, 0, 1], dtype=np.uint8)
    price, age = np.array([1.0, 2.0, 3.0]), np.array([[1.0], [2.0]], dtype=np.float32)
    log = Log.from_arrays(
        user=user, item=item, click=click, columns={"price": price}, user_features=Features(("age",), age)
    )
    for array in (user, item, click, price, age):
        array[0] = 0
    assert (log.click[0], log.columns["price"][0], log.user_features.values[0, 0]) == (1, 1, 1)
    assert log.users.ids.tolist() == [1, 2]


def test_take_keeps_vocabularies_and_features_whole():
    features = Features(("age",), np.array([[1.0], [2.0], [3.0]], dtype=np.float32))
    log = build(options={"user_features": features, "keep": ("clicked",)})
    part = log.take(np.array([True, False, False, True, False]))
    assert (part.n_users, part.n_items, len(part)) == (3, 3, 2)
    np.testing.assert_array_equal(part.cell, log.cell[[0, 3]])
    np.testing.assert_array_equal(part.columns["clicked"], [1, 1])
    assert part.user_features is features


@pytest.mark.parametrize("rows", [1, 2, 5, 9])
def test_blocks_are_consecutive_views_whose_features_are_coded_as_the_log_codes_them(rows):
    columns = {
        "user": [1, 1, 2, 2, 3],
        "item": [7, 8, 7, 9, 8],
        "click": [1, 0, 1, 0, 1],
        "device": ["tv", "pc", "tv", "car", "pc"],
        "tags": [["a"], ["b", "a"], [], ["c"], ["a"]],
    }
    log = Log.from_frame(pa.table(columns), space="impressions", features="auto")
    blocks = list(log.blocks(rows))
    assert [len(block) for block in blocks] == [min(rows, 5 - start) for start in range(0, 5, rows)]
    for name in ("user", "item", "click"):
        joined = np.concatenate([getattr(block, name) for block in blocks])
        np.testing.assert_array_equal(joined, getattr(log, name))
    assert all(np.shares_memory(block.user, log.user) for block in blocks)
    for field in ("codes", "numbers"):
        joined = np.concatenate([getattr(block.encoded_rows(), field) for block in blocks])
        np.testing.assert_array_equal(joined, getattr(log.encoded_rows(), field))


def test_a_log_of_clicks_alone_has_no_conversions_to_give():
    log = Log.from_arrays(user=[1, 1, 2], item=[1, 2, 1], click=[1, 0, 1])
    with pytest.raises(DataError, match=r"the log has no conversions. To fix: name the conversion column"):
        log.known_conversion()


@pytest.mark.parametrize(
    ("names", "values", "message"),
    [
        (("a", "b"), [[1.0], [2.0]], r"shape \(2, 1\) does not fit its 2 names"),
        (
            ("a", "b"),
            [[1.0, 2.0], [3.0, np.nan]],
            "feature 'b', row 1: feature is NaN or infinite. To fix: fill",
        ),
    ],
)
def test_features_must_fit_their_names_and_be_finite(names, values, message):
    with pytest.raises(DataError, match=message):
        Features(names, np.array(values, dtype=np.float32))


def test_features_must_have_a_row_for_each_id():
    with pytest.raises(
        DataError, match=r"2 rows of item features for 3 items. To fix: give one row for each id"
    ):
        Log.from_arrays(
            user=[1, 1],
            item=[1, 2],
            conversion=[0, 1],
            items=Vocabulary.range(3, name="item"),
            item_features=Features(("a",), np.zeros((2, 1), dtype=np.float32)),
        )


ROWS = {"user": [0, 0, 1], "item": [0, 1, 0], "conversion": [1, 0, 0]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user": [[1], [2], [3, 4]]}, "column 'user' holds List, not one value a row"),
        ({"conversion": ["0_1", "0", "0"]}, "row 0: value '0_1' is not a number"),
        ({"columns": {"x": [[1], [2, 3], [4]]}}, "column 'x' holds List, not one value a row"),
    ],
)
def test_rows_that_are_not_one_value_are_told(change, message):
    with pytest.raises(DataError, match=message):
        Log.from_arrays(**{**ROWS, **change})


def test_a_column_of_lists_is_told_as_such():
    with pytest.raises(DataError, match=r"column 'user' holds List.*, not one value a row"):
        Log.from_frame(polars({**ROWS, "user": [[1], [2], [3]]}))
