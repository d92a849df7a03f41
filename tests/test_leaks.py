"""Leaks: each kind is found and named, few positives and honest features raise no alarm."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest

import unskew as us
from contracts.feature_world import log_of, table
from unskew.base.errors import DataError, LeakWarning, ParameterError
from unskew.data import leaks
from unskew.data.leaks import require_no_leaks

ROWS = 6000
START = np.datetime64(datetime(2024, 3, 1), "ms")


def random():
    return np.random.default_rng(5)


def clicks():
    return table()["click"].to_numpy() == 1


def conversions():
    return table()["bought"].to_numpy() == 1


def found(features="auto", **columns):
    """The leaks of a world with further columns."""
    frame = table()
    for name, values in columns.items():
        frame = frame.append_column(name, values if isinstance(values, pa.Array) else pa.array(values))
    return us.check_leaks(log_of(frame, features=features))


def one(**columns):
    (leak,) = found(**columns)
    return leak


def test_a_log_without_features_and_an_honest_one_have_none():
    assert found() == []
    assert us.check_leaks(log_of(table(), features=None)) == []


class TestFilled:
    def test_a_column_that_is_filled_after_the_click(self):
        leak = one(seconds=pa.array(np.where(clicks(), random().random(ROWS), np.nan), from_pandas=True))
        assert (leak.column, leak.kind, leak.outcome, leak.value) == ("seconds", "filled", "click", 1.0)
        total = clicks().sum()
        assert f"filled in {total:,} of {total:,} rows with a click" in leak.found

    @pytest.mark.parametrize(
        "values",
        [
            lambda there: pa.array(np.where(there, "card", "")),
            lambda there: pa.array([["a", "b"] if each else [] for each in there]),
            lambda there: pa.array(np.where(there, START, np.datetime64("NaT", "s"))),
        ],
        ids=["empty text", "empty list", "missing time"],
    )
    def test_empty_is_not_filled_and_conversions_are_named_before_clicks(self, values):
        leak = one(paid=values(conversions()))
        assert (leak.column, leak.kind, leak.outcome) == ("paid", "filled", "conversion")

    def test_what_is_missing_by_chance_is_none(self):
        assert found(rare=pa.array(np.where(random().random(ROWS) < 0.02, "x", None))) == []

    def test_a_column_that_is_always_filled_where_nearly_all_is_clicked_is_none(self):
        random_ = random()
        click = random_.random(ROWS) < 0.97
        known = np.where(random_.random(ROWS) < 0.05, "x", None)
        log = us.Log.from_arrays(
            user=random_.integers(50, size=ROWS),
            item=random_.integers(50, size=ROWS),
            click=click,
            space="impressions",
            columns={"known": known},
            features="auto",
        )
        assert us.check_leaks(log) == []


class TestLater:
    def columns(self, late):
        time = START + random().integers(10**8, size=ROWS).astype("timedelta64[ms]")
        return {"time": time, "updated": np.where(late, time + np.timedelta64(1, "h"), time)}

    def test_a_time_after_the_row_only_where_something_happened(self):
        leak = one(**self.columns(conversions()))
        assert (leak.column, leak.kind, leak.outcome) == ("updated", "later", "conversion")
        assert "after 'time'" in leak.found

    def test_a_zone_changes_nothing(self):
        zoned = {
            name: pa.array(values).cast(pa.timestamp("ms", "UTC"))
            for name, values in self.columns(clicks()).items()
        }
        assert [(leak.column, leak.kind) for leak in found(**zoned)] == [("updated", "later")]

    def test_a_time_that_is_late_for_everybody_is_none(self):
        assert found(**self.columns(random().random(ROWS) < 0.5)) == []
        assert found(**self.columns(np.ones(ROWS, bool))) == []


class TestRowId:
    def test_text_that_is_another_in_every_row(self):
        leak = one(request=[f"r{each:x}" for each in random().permutation(ROWS)])
        assert (leak.column, leak.kind, leak.outcome, leak.value) == ("request", "id", None, 1.0)

    def test_a_counter(self):
        assert one(number=1_000_000 + np.arange(ROWS)).kind == "id"

    def test_rows_that_were_logged_twice_keep_their_id(self):
        frame = table().append_column("request", pa.array([f"r{each}" for each in range(ROWS)]))
        twice = pa.concat_tables([frame, frame])
        (leak,) = us.check_leaks(log_of(twice, features="auto"))
        assert (leak.column, leak.kind, leak.value) == ("request", "id", 0.5)

    def test_a_session_of_several_items_an_amount_and_a_rare_word_are_none(self):
        draw = random()
        assert (
            found(
                session=[f"s{each // 8}" for each in range(ROWS)],
                cents=draw.integers(10**7, size=ROWS),
                word=[f"w{each}" for each in draw.zipf(1.3, size=ROWS) % 10**6],
            )
            == []
        )

    def test_a_feature_of_the_user_names_no_row(self):
        assert found(mail=[f"{each}@x" for each in table()["user"].to_pylist()]) == []

    def test_a_sample_of_values_tells_the_same(self, monkeypatch):
        monkeypatch.setattr(leaks, "SAMPLE", 500)
        words = [f"w{each}" for each in random().integers(4000, size=ROWS)]
        (leak,) = found(word=words, request=[f"r{each}" for each in range(ROWS)])
        assert leak.column == "request"


class TestAuc:
    def test_a_number_in_either_direction(self):
        noisy = random().normal(size=ROWS)
        for sign in (1, -1):
            leak = one(score=noisy + sign * 8.0 * clicks())
            assert (leak.kind, leak.outcome) == ("auc", "click")
            assert leak.value >= 0.99

    def test_missing_counts_whether_it_comes_first_or_last(self):
        value = np.where(clicks() & (random().random(ROWS) < 0.6), np.nan, 1.0 * clicks())
        assert one(late=pa.array(value, from_pandas=True)).kind == "auc"

    def test_a_category_by_the_rate_of_its_values(self):
        state = np.where(clicks(), "opened", np.where(random().random(ROWS) < 0.5, "shown", "seen"))
        assert one(state=state.tolist()).kind == "auc"

    def test_many_values_that_were_each_seen_a_few_times_are_no_memory(self):
        codes = random().integers(3000, size=ROWS)
        assert found(features=[us.Category("code")], code=codes) == []

    def test_a_bag_by_one_value_which_is_named(self):
        tags = [["shown", "opened", "opened"] if each else ["shown"] for each in clicks()]
        leak = one(events=pa.array(tags))
        assert (leak.column, leak.kind) == ("events", "auc")
        assert "'opened'" in leak.found

    def test_a_strong_feature_is_no_leak(self):
        assert found(strong=random().normal(size=ROWS) + 2.5 * clicks()) == []

    def test_classes_are_sampled_without_a_change_of_the_answer(self, monkeypatch):
        columns = {"score": random().normal(size=ROWS) + 8.0 * conversions()}
        whole = one(**columns)
        monkeypatch.setattr(leaks, "SAMPLE", 300)
        part = one(**columns)
        assert (part.kind, part.outcome) == (whole.kind, whole.outcome) == ("auc", "conversion")
        assert part == one(**columns)


def written_after(outcome, draw):
    """Make columns that are written for half of the rows with an outcome, and are filled up otherwise."""
    rows = len(outcome)
    some = outcome & (draw.random(rows) < 0.5)
    seconds = draw.exponential(30, rows)
    idle = np.where(draw.random(rows) < 0.5, -1.0, 0.0)
    return {
        "flag": some.astype(int),
        "flag as a boolean": some,
        "flag as text": np.where(some, "yes", "no"),
        "flag with one error in 10,000 rows": (some | (np.arange(rows) == 7)).astype(int),
        "state": np.where(some, "done", np.where(idle < 0, "hidden", "seen")),
        "dwell time, else 0": np.where(some, seconds, 0.0),
        "dwell time, else -1": np.where(some, seconds, -1.0),
        "dwell time, else 0 or -1": np.where(some, seconds, idle),
        "dwell time, else a blink": np.where(some, seconds, draw.exponential(0.3, rows)),
        "revenue": np.where(some, draw.lognormal(3, 1, rows).round(2), 0.0),
        "profit or loss": np.where(some, draw.normal(0, 9, rows), 0.0),
        "count": np.where(some, 1 + draw.poisson(2, rows), 0),
        "count with the view itself": np.where(some, 2 + draw.poisson(2, rows), idle.astype(int) + 1),
        "null": pa.array(np.where(some, "good", None)),
        "NaN": np.where(some, seconds, np.nan),
        "NaN where it happened": np.where(some, np.nan, seconds),
        "next page": np.where(some, [f"/page{each % 300}" for each in range(rows)], "-"),
        "events": pa.array([["shown", "opened"] if each else ["shown"] for each in some]),
    }


class World:
    """Impressions whose clicks and conversions follow from ids; further columns are the test's."""

    def __init__(self, seed, rows=8000, click_rate=0.25, conversion_rate=0.35):
        self.draw, self.rows = np.random.default_rng(seed), rows
        self.user, self.item = self.draw.integers(700, size=rows), self.draw.integers(90, size=rows)
        self.click_logit = np.log(click_rate / (1 - click_rate)) + self.draw.normal(size=700)[self.user]
        self.conversion_logit = np.full(rows, np.log(conversion_rate / (1 - conversion_rate)))

    def outcomes(self):
        click, conversion = (
            self.draw.random(self.rows) < 1 / (1 + np.exp(-logit))
            for logit in (self.click_logit, self.conversion_logit)
        )
        return {"click": click, "conversion": click & conversion}

    def leaks(self, columns, outcomes=None):
        log = us.Log.from_arrays(
            user=self.user,
            item=self.item,
            **(outcomes or self.outcomes()),
            space="impressions",
            columns=columns,
            features="auto",
        )
        return us.check_leaks(log)


KINDS = list(written_after(np.zeros(9, bool), random()))


class TestValue:
    @pytest.mark.parametrize("outcome", ["click", "conversion"])
    @pytest.mark.parametrize("kind", KINDS)
    def test_what_is_written_after_half_of_the_outcomes_stops(self, kind, outcome):
        world = World(0)
        outcomes = world.outcomes()
        (leak,) = world.leaks({"x": written_after(outcomes[outcome], world.draw)[kind]}, outcomes)
        assert (leak.column, leak.outcome, leak.stops) == ("x", outcome, True)
        assert leak.kind == ("filled" if kind in ("null", "NaN") else "value")
        assert leak.value >= 0.99

    def test_clicks_that_did_not_convert_are_found_by_clicks(self):
        world = World(0)
        outcomes = world.outcomes()
        opened = outcomes["click"] & ~outcomes["conversion"] & (world.draw.random(world.rows) < 0.7)
        (leak,) = world.leaks({"opened": opened.astype(int)}, outcomes)
        assert (leak.kind, leak.outcome) == ("value", "click")
        rows, rate = opened.sum(), outcomes["click"].mean()
        assert (
            leak.found == f"where it is 1, {rows:,} of {rows:,} rows have a click (100.0%; {rate:.1%} of all)"
        )

    @pytest.mark.parametrize("positives", [1, 10, 40])
    def test_a_handful_of_rows_is_none(self, positives):
        world = World(0)
        outcomes = world.outcomes()
        flag = np.zeros(world.rows, int)
        flag[np.flatnonzero(outcomes["click"])[:positives]] = 1
        assert world.leaks({"flag": flag}, outcomes) == []

    def test_ninety_seven_in_a_hundred_warn(self):
        world = World(0, rows=20_000)
        campaign = world.draw.integers(8, size=world.rows)
        world.conversion_logit = np.where(campaign == 3, 3.5, world.conversion_logit)
        names = np.array(list("abcdefgh"))[campaign]
        (leak,) = world.leaks({"campaign": names})
        assert (leak.kind, leak.outcome, leak.stops) == ("value", "conversion", False)
        assert leak.found.startswith("where it is 'd', ")
        assert 0.95 <= leak.value < 0.99

    def test_nothing_is_told_by_99_in_a_hundred_where_98_are_usual(self):
        world = World(0, rows=20_000, click_rate=0.98, conversion_rate=0.98)
        segment = world.draw.integers(6, size=world.rows)
        world.conversion_logit += 0.9 * (segment == 1)
        rare = np.where(world.draw.random(world.rows) < 0.1, 1.5, 0.0)
        assert world.leaks({"segment": segment, "name": segment.astype(str), "rare": rare}) == []

    def test_an_item_that_everybody_buys_and_users_who_always_click_are_none(self):
        world = World(0)
        world.conversion_logit += 20.0 * (world.item == 7)
        world.click_logit += 20.0 * (world.user < 3)
        brand = np.where(world.item == 7, "own", "other")
        assert world.leaks({"brand": brand, "staff": world.user < 3}) == []


def scores(world, spread):
    """Make scores of a good model of conversions, whole, rounded and in ten steps."""
    world.conversion_logit = world.draw.normal(-0.5, spread, world.rows)
    score = 1 / (1 + np.exp(-world.conversion_logit))
    return {"logit": world.conversion_logit, "score": score, "cents": score.round(2), "decile": score // 0.1}


def habits(world):
    """Make positions, counts before the row, gaps, amounts that are mostly 0, and a few robots."""
    rows, draw = world.rows, world.draw
    position = draw.integers(10, size=rows)
    world.click_logit += 2 - 0.6 * position
    robot = draw.random(rows) < 0.0005
    world.click_logit += 20.0 * robot
    return {
        "position": position,
        "clicks before": draw.poisson(np.exp(world.click_logit.clip(-3, 2))),
        "days since": np.where(draw.random(rows) < 0.6, np.nan, draw.exponential(5, rows)),
        "spent before": np.where(draw.random(rows) < 0.9, 0.0, draw.lognormal(3, 1, rows)),
        "agent": np.where(robot, "robot", "web"),
        "hour": draw.integers(24, size=rows),
    }


HONEST = {
    "weak scores": lambda world: scores(world, 1.0),
    "good scores": lambda world: scores(world, 2.0),
    "very good scores": lambda world: scores(world, 3.0),
    "habits": habits,
}


@pytest.mark.parametrize("columns", HONEST)
def test_no_alarm_on_honest_columns(columns):
    for seed in range(5):
        world = World(seed)
        assert world.leaks(HONEST[columns](world)) == [], seed


@pytest.mark.coat
def test_no_alarm_on_coat(coat_root):
    assert us.check_leaks(us.load("coat", coat_root).train.with_features("auto")) == []


class TestFewPositives:
    @pytest.mark.parametrize("positives", [1, 10, 30])
    def test_a_handful_raises_no_alarm(self, positives):
        """Features that happen to agree with all conversions there are."""
        draw = random()
        click = draw.random(ROWS) < 0.3
        bought = np.zeros(ROWS, bool)
        bought[np.flatnonzero(click)[:positives]] = True
        log = us.Log.from_arrays(
            user=draw.integers(99, size=ROWS),
            item=draw.integers(99, size=ROWS),
            click=click,
            conversion=bought,
            space="impressions",
            columns={"score": draw.random(ROWS) + 2 * (bought | (draw.random(ROWS) < 0.003))},
            features="auto",
        )
        assert us.check_leaks(log) == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("conversion_rate", [0.1, 0.01])
def test_no_alarm_on_synthetic_impressions(seed, conversion_rate):
    data = us.load(
        "impressions",
        n_rows=5000,
        n_users=400,
        n_items=80,
        test_rows=2000,
        conversion_rate=conversion_rate,
        confounding=2.0,
        seed=seed,
    )
    assert us.check_leaks(data.train.with_features("auto")) == []


def test_a_matrix_has_leaks_of_conversions_alone():
    """Features of users tell clicks of pairs that have no row; conversions are those of clicks."""
    draw = random()
    user, item = np.divmod(draw.choice(200 * 50, size=3000, replace=False), 50)
    bought = user % 2
    log = us.Log.from_arrays(
        user=user, item=item, conversion=bought, columns={"segment": user % 4}, features="auto"
    )
    (leak,) = us.check_leaks(log)
    assert (leak.column, leak.kind, leak.outcome) == ("segment", "auc", "conversion")


class TestRequire:
    def leaking(self):
        frame = table().append_column("state", pa.array(clicks().astype(int)))
        return log_of(
            frame.append_column("request", pa.array([f"r{each}" for each in range(ROWS)])), features="auto"
        )

    def test_one_line_has_the_name_what_was_found_and_the_remedy(self):
        with pytest.raises(DataError) as caught:
            require_no_leaks(self.leaking())
        message = str(caught.value)
        assert message.startswith(
            "column 'state': alone it tells clicked rows from others with an AUC of 1.0"
        )
        assert "(request leaks too)" in message
        assert "--ignore state" in message
        assert "--allow-leak state" in message
        assert "\n" not in message

    def test_what_is_allowed_is_given_back(self):
        with pytest.raises(DataError, match="column 'request'"):
            require_no_leaks(self.leaking(), allow=["state"])
        allowed = require_no_leaks(self.leaking(), allow=["state", "request"])
        assert [leak.column for leak in allowed] == ["state", "request"]
        assert allowed[0].to_dict()["kind"] == "auc"

    def test_only_a_feature_can_be_allowed(self):
        with pytest.raises(ParameterError, match="'stat' is allowed, which is no feature"):
            require_no_leaks(self.leaking(), allow=["stat"])

    def test_a_doubt_is_a_warning_with_both_remedies_unless_it_is_allowed(self):
        world = World(0, rows=20_000)
        known = world.draw.random(world.rows) < 0.1
        world.conversion_logit = np.where(known, 3.5, world.conversion_logit)
        log = us.Log.from_arrays(
            user=world.user,
            item=world.item,
            **world.outcomes(),
            space="impressions",
            columns={"member": np.where(known, "yes", "no")},
            features="auto",
        )
        with pytest.warns(
            LeakWarning, match=r"column 'member': where it is 'yes', .*--ignore member.*--allow-leak"
        ):
            (doubt,) = require_no_leaks(log)
        assert not doubt.stops
        assert require_no_leaks(log, allow=["member"]) == [doubt]

    def test_something_else_than_a_log_is_refused(self):
        with pytest.raises(ParameterError, match="not a Log"):
            us.check_leaks(table())
