"""Places of distinct ids: as a dictionary has them, by Arrow's table and by ours."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from unskew.data import id_table
from unskew.data.id_table import NOWHERE, IdTable
from unskew.data.vocabulary import TEXT, Vocabulary

LETTERS = some.text(alphabet="aä\0€😀 bc", max_size=20)
WHOLE = some.integers(-(2**63), 2**63 - 1) | some.integers(-3, 3)


@pytest.fixture(params=["Arrow's", "ours"], autouse=True)
def table_of(request, monkeypatch):
    if request.param == "ours":
        monkeypatch.setattr(id_table, "FEW", -1)


def as_ids(values: list[int] | list[str], kind: object) -> pa.Array:
    # Of a part of a longer array: what is before its start is not its own.
    return pa.array([*values[:1], *values], type=kind)[len(values[:1]) :]


def check_like_a_dictionary(parts, kind):
    places: dict[object, int] = {}
    table = IdTable(as_ids([], kind))
    for part in parts:
        known = dict(places)
        distinct = list(dict.fromkeys(part))
        assert table.find(as_ids(distinct, kind)).tolist() == [known.get(each, NOWHERE) for each in distinct]
        for each in distinct:
            places.setdefault(each, len(places))
        assert table.add(as_ids(distinct, kind)).tolist() == [places[each] for each in distinct]
        assert table.ids.to_pylist() == list(places)
        assert len(table) == len(places)
    assert table.find(as_ids(list(places), kind)).tolist() == list(range(len(places)))


@given(parts=some.lists(some.lists(WHOLE, max_size=40), max_size=6))
def test_whole_numbers(parts):
    check_like_a_dictionary(parts, pa.int64())


@given(parts=some.lists(some.lists(LETTERS, max_size=40), max_size=6))
def test_texts(parts):
    check_like_a_dictionary(parts, pa.large_string())


def test_it_grows_through_many_sizes():
    ids = np.random.default_rng(0).permutation(30_000)
    check_like_a_dictionary([part.tolist() for part in np.array_split(ids, 7)], pa.int64())
    check_like_a_dictionary(
        [[f"user {n}" for n in part] for part in np.array_split(ids, 7)], pa.large_string()
    )


@pytest.mark.parametrize("spread", [1, 10**12])
def test_codes_of_ids_far_apart_are_those_of_a_search(spread):
    random = np.random.default_rng(1)
    ids = np.unique(random.integers(-1000, 1000, size=500)) * spread
    asked = random.choice(np.append(ids, ids + spread // 2 + 1), size=2000)
    at = np.minimum(np.searchsorted(ids, asked), len(ids) - 1)
    wanted = np.where(ids[at] == asked, at, -1)
    vocabulary = Vocabulary(ids, "user")
    assert vocabulary.encode(asked, unseen="nan").tolist() == wanted.tolist()
    assert vocabulary.encode_column(pa.array(asked)).tolist() == wanted.tolist()
    assert vocabulary.encode(asked.astype(TEXT), unseen="nan").tolist() == wanted.tolist()
