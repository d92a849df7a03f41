"""What is counted of users' values chunk by chunk: as if all rows were there at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import unskew as us
from unskew.log import tallies
from unskew.log.tallies import Distinct, FeatureTally, Occurrences
from unskew.log.values import MISSING, as_column

VALUE = {"number": lambda n: n / 2, "category": lambda n: f"text {n}", "bag": lambda n: [f"text {n}"] * n}
FEATURE = {"number": us.Number, "category": us.Category, "bag": us.Bag}
ARROW = {"number": pa.float64(), "category": pa.string(), "bag": pa.list_(pa.string())}
CHUNKS, ROWS, USERS, VALUES = 12, 25, 30, 4


@pytest.mark.parametrize("most_lists", ["few", "many"])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("kind", FEATURE)
def test_the_last_value_of_each_user_and_whether_it_ever_changed(kind, constant, most_lists, monkeypatch):
    if most_lists == "few":
        monkeypatch.setattr(tallies, "SAMPLED_NUMBERS", 0)
    random = np.random.default_rng(3)
    own, users = random.integers(VALUES, size=USERS), Distinct(USERS)
    tally = FeatureTally(FEATURE[kind]("x", role="user"))
    last: dict[int, object] = {}
    for number in range(CHUNKS):
        # Some users come late.
        user = random.integers(min(USERS, 3 + 4 * number), size=ROWS)
        drawn = own[user] if constant else random.integers(VALUES, size=ROWS)
        # 0 is no value; an empty list is one that is missing, too.
        given = [VALUE[kind](n) if n else None for n in drawn.tolist()]
        before = len(users)
        code = users.add_rows(pa.array(user))
        at = {"user": Occurrences(code, before, len(users))}
        tally.place(tally.count(pa.array(given, type=ARROW[kind]), None), at)
        last |= dict(zip(code.tolist(), given, strict=True))
    assert tally.sides["user"].constant is constant
    places = np.array([*range(len(users)), MISSING, 0])
    found = as_column(tally.of_side("user", places)).to_pylist()
    assert [each or None for each in found] == [last.get(place) for place in places.tolist()]


def test_values_of_users_follow_their_texts_when_rare_ones_are_forgotten():
    tally, users = FeatureTally(us.Category("x", role="user")), Distinct(100)
    tally.distinct = Distinct(3)
    for first, texts in ((0, "abcaab"), (6, "defgab"), (12, "ahiabb")):
        code = users.add_rows(pa.array(np.arange(first, first + 6)))
        at = {"user": Occurrences(code, first, len(users))}
        tally.place(tally.count(pa.array(list(texts)), None), at)
    found = as_column(tally.of_side("user", np.arange(18))).to_pylist()
    kept = set(tally.texts.tolist())
    assert {"a", "b"} < kept
    for text, value in zip("abcaabdefgabahiabb", found, strict=True):
        assert value == (text if text in kept and value == text else tallies.GONE)
        assert text not in "ab" or value == text
