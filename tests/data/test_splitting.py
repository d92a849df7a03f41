"""What is held out together, and which rows are too young: functions of ids, times and a seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import unskew as us
from unskew.base.errors import DataError, ParameterError
from unskew.data.splitting import SplitBy, mature_rows, parse_duration, time_column, times_of

N = 600


@pytest.fixture(scope="module")
def log():
    random = np.random.default_rng(0)
    click = random.random(N) < 0.5
    return us.Log.from_arrays(
        user=random.integers(40, size=N),
        item=random.integers(30, size=N),
        click=click,
        conversion=np.where(click, random.integers(2, size=N), np.nan),
        space="impressions",
        columns={
            "session": random.integers(100, size=N),
            "shop": random.choice(["a", "b", "c", "d"], size=N),
            "when": np.datetime64("2026-01-01", "s") + np.arange(N) * np.timedelta64(1, "h"),
        },
    )


def held(by, log, share=0.2, seed=0):
    rows = log.clicked
    key = SplitBy.of(by, log).keys(log, rows, seed)
    count = SplitBy.of(by, log).count(log, rows, share)
    return rows[key <= np.sort(key)[count - 1]]


@pytest.mark.parametrize(
    ("by", "values"),
    [
        ("user", lambda log: log.user),
        ("group:session", lambda log: log.columns["session"]),
        ("pair", lambda log: log.cell),
    ],
)
def test_rows_that_belong_together_are_on_one_side(log, by, values):
    out = held(by, log)
    rest = np.setdiff1d(log.clicked, out)
    assert 0.15 * log.n_clicks < len(out) < 0.35 * log.n_clicks
    assert not np.isin(values(log)[rest], values(log)[out]).any()
    assert set(held(by, log, seed=1)) != set(out)


@pytest.mark.parametrize("by", ["user", "group:shop", "pair", "time"])
def test_order_and_other_rows_make_no_difference(log, by):
    order = np.random.default_rng(3).permutation(N)
    turned = log.take(order)
    key, other = (SplitBy.of(by, each).keys(each, np.arange(N), 7) for each in (log, turned))
    np.testing.assert_array_equal(other, key[order])
    part = log.take(np.arange(N) % 3 == 0)
    np.testing.assert_array_equal(
        SplitBy.of(by, part).keys(part, np.arange(len(part)), 7), key[np.arange(N) % 3 == 0]
    )


def test_by_time_the_latest_are_held_out(log):
    out = held("time", log)
    assert len(out) == round(0.2 * log.n_clicks)
    assert log.columns["when"][out].min() > log.columns["when"][np.setdiff1d(log.clicked, out)].max()
    from_date = held("from:2026-01-20", log)
    assert (log.columns["when"][from_date] >= np.datetime64("2026-01-20")).all()
    assert len(from_date) == (log.columns["when"][log.clicked] >= np.datetime64("2026-01-20")).sum()


def test_auto_is_by_time_for_impressions_that_have_times(log):
    assert SplitBy.of("auto", log) == SplitBy("time", "when")
    assert SplitBy.of("auto", replace(log, columns={})) == SplitBy("pair")
    pairs = us.Log.from_arrays(
        user=[1, 1, 2], item=[1, 2, 1], conversion=[1, 0, 0], columns={"when": log.columns["when"][:3]}
    )
    assert SplitBy.of("auto", pairs) == SplitBy("pair")
    assert time_column(pairs) == "when"


@pytest.mark.parametrize("text", ["pair", "user", "time", "time:when", "group:a:b", "from:2026-01-05@when"])
def test_a_split_is_written_as_it_is_read(text):
    assert str(SplitBy.parse(text)) == text


@pytest.mark.parametrize("text", ["", "row", "group", "group:", "user:0.2", "time:", "from:"])
def test_other_words_are_no_split(text):
    with pytest.raises(ParameterError, match=r"is not a way to hold out rows.*: give pair, user, time,"):
        SplitBy.parse(text)


def test_a_missing_column_and_a_wrong_date_are_named(log):
    with pytest.raises(DataError, match=r"the log carries no column 'shops'.* session, shop, when"):
        SplitBy.of("group:shops", log)
    with pytest.raises(DataError, match="the log has no column of times"):
        SplitBy.of("time", replace(log, columns={}))
    with pytest.raises(ParameterError, match="'tomorrow' is not a date"):
        SplitBy.parse("from:tomorrow")


@pytest.mark.parametrize(
    "values",
    [
        np.arange(N) * 3600 + 1_767_225_600,
        (np.arange(N) * 3600 + 1_767_225_600) * 1000,
        [str(number * 3600 + 1_767_225_600) for number in range(N)],
        [f"2026-01-{1 + number // 24:02d}T{number % 24:02d}:00:00Z" for number in range(N)],
    ],
    ids=["seconds", "milliseconds", "digits", "text"],
)
def test_times_are_read_from_numbers_and_text(log, values):
    other = replace(log, columns={"when": np.array(values)})
    np.testing.assert_array_equal(times_of(other, "when"), times_of(log, "when"))


def test_a_missing_time_and_text_that_is_none_are_named(log):
    when = log.columns["when"].copy()
    when[4] = np.datetime64("NaT", "s")
    with pytest.raises(DataError, match="column 'when', row 4: the time is missing"):
        times_of(replace(log, columns={"when": when}))
    for values in (when, when.astype(str)):
        with pytest.raises(DataError, match="column 'when', row 4: the time is missing"):
            times_of(replace(log, columns={"when": values}), "when", np.array([7, 2]))
    np.testing.assert_array_equal(times_of(log, rows=np.array([7, 2])), times_of(log)[[7, 2]])
    with pytest.raises(DataError, match="column 'shop': holds no times"):
        times_of(log, "shop")


def test_rows_too_young_are_dropped_and_counted(log):
    found = mature_rows(log, "2d")
    assert (found.dropped, len(found.log)) == (48, N - 48)
    np.testing.assert_array_equal(found.kept, np.arange(N) < N - 48)
    assert (N - 1 - np.flatnonzero(found.kept).max()) == 48
    with pytest.raises(DataError, match="no click is older than 9w"):
        mature_rows(log, "9w")


def test_conversions_later_than_the_window_count_as_none(log):
    late = np.arange(N) % 2 == 1
    delay = np.where(late, np.timedelta64(80, "h"), np.timedelta64(2, "h"))
    times = np.where(log.conversion == 1, log.columns["when"] + delay, np.datetime64("NaT", "s"))
    found = mature_rows(log, "3d", conversion_time=times)
    old = found.kept & (log.conversion == 1)
    assert found.censored == (old & late).sum() > 0
    np.testing.assert_array_equal(found.log.conversion == 1, (old & ~late)[found.kept])


@pytest.mark.parametrize("text", ["7", "d", "0d", "-1d", "1y", "", 7])
def test_other_words_are_no_length_of_time(text):
    with pytest.raises(ParameterError, match=r"is not a length of time.*7d, 12h, 30m"):
        parse_duration(text)
