"""Fields of a log and named tensors of a batch."""

from __future__ import annotations

import pytest

import unskew as us
from unskew.base.errors import DataError
from unskew.data import Field, Schema

PRICE = Field("price", "number", "item", unknown="other")
COUNTRY = Field("country", "category", "user", 7)
IDS = Schema.of_ids(5, 4).fields


def test_a_log_has_the_schema_of_its_vocabularies():
    log = us.Log.from_arrays(user=["a", "b"], item=[3, 3], click=[1, 0], space="impressions")
    assert log.schema == Schema.of_ids(2, 1)
    assert (log.schema.user.size, log.schema.item.size) == (2, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Field("x", "word", "user", 3), "field 'x': kind is 'word'.*category"),
        (lambda: Field("x", "id", "page", 3), "field 'x': role is 'page'.*row"),
        (lambda: Field("x", "id", "user", 3, "ignore"), "field 'x': unknown is 'ignore'.*other"),
        (lambda: Field("x", "category", "user"), "'category' cannot have the size 0"),
        (lambda: Field("x", "number", "row", 3), "'number' cannot have the size 3"),
        (lambda: Schema((*IDS, PRICE, PRICE)), "have one name.*rename"),
        (lambda: Schema((COUNTRY,)), r"the ids are \[\]"),
        (lambda: Schema(IDS[::-1]), "one id 'user' and one id 'item', in this order"),
        (lambda: Schema((*IDS, Field("session", "id", "row", 3))), "the ids are .*session"),
        (lambda: Schema.from_dict([]), "not a schema"),
    ],
)
def test_what_cannot_be_a_schema_is_told(make, message):
    with pytest.raises(DataError, match=message):
        make()
