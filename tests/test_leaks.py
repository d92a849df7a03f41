"""Leaks: each kind is found and named, few positives and honest features raise no alarm."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest

import unskew as us
from contracts.feature_world import log_of, table
from unskew import leaks
from unskew.errors import DataError, ParameterError
from unskew.leaks import require_no_leaks

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

    def test_a_part_of_the_clicks_is_enough(self):
        there = clicks() & (random().random(ROWS) < 0.3)
        leak = one(comment=pa.array(np.where(there, "good", None)))
        assert (leak.kind, leak.outcome) == ("filled", "click")

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

    def test_false_alarms_are_rare_where_features_are_strong(self):
        """Forty positives and a feature with a true AUC of .9: an alarm in less than 1 % of the logs."""
        alarms = 0
        for seed in range(300):
            draw = np.random.default_rng(seed)
            positive = np.arange(600) < 40
            score = draw.normal(size=600) + 1.812 * positive
            area = leaks.auc_of_number(score, positive)
            alarms += area >= leaks.LEAK_AUC and leaks.lower_limit(area, 40) >= leaks.LEAST_LIMIT
        assert alarms < 3

    def test_thirty_one_rows_are_enough_for_what_is_perfect(self):
        assert leaks.lower_limit(1.0, 30) < leaks.LEAST_LIMIT <= leaks.lower_limit(1.0, 31)


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


def test_the_time_of_the_conversion_is_found_on_synthetic_impressions():
    data = us.load("impressions", n_rows=5000, n_users=400, n_items=80, test_rows=500)
    log = us.Log.from_arrays(
        user=data.train.user,
        item=data.train.item,
        click=data.train.click,
        conversion=data.train.conversion,
        space="impressions",
        columns={"conversion_time": data.row_truth["train"]["conversion_time"]},
        features="auto",
    )
    assert [(each.column, each.kind) for each in us.check_leaks(log)] == [("conversion_time", "filled")]


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

    def test_something_else_than_a_log_is_refused(self):
        with pytest.raises(ParameterError, match="not a Log"):
            us.check_leaks(table())
