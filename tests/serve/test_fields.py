"""Values of requests become what the encoders of training make of them."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest

from unskew.errors import DataError
from unskew.io.vocabulary import Vocabulary
from unskew.log.encoder import CodeEncoder, NumberEncoder
from unskew.log.kinds import Bag, Category, Number, TimePart
from unskew.log.values import values_of
from unskew.serve.fields import ABSENT, Ids, reader_of

ROW = {"role": "row"}


def fitted(feature, values):
    of = values_of(feature, pa.array(values))
    if isinstance(feature, Number):
        return NumberEncoder.fit(feature, of)
    return CodeEncoder.fit(feature, of, [of], feature)


def same_as_training(feature, training, asked):
    encoder = fitted(feature, training)
    reader = reader_of(encoder, None)
    expected = encoder.encode(values_of(feature, pa.array(asked)))
    found = reader.array(reader.read(asked), None)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


@pytest.mark.parametrize(
    ("training", "asked"),
    [
        (["de", "fr", "fr", "de", None], ["fr", None, "zz", "de"]),
        (["de", "fr", "fr", "de"], ["fr", None, "zz"]),
        ([1, 2, 2, 1, 30, 30], [30, 2, 7, None]),
        ([1.5, 1.5, 2.0, 2.0], [1.5, 2.0, 3.25]),
        ([True, False, True, False], [True, False]),
    ],
)
@pytest.mark.parametrize("hashed", [None, 5])
def test_categories(training, asked, hashed):
    same_as_training(Category("c", hash=hashed, **ROW), training, asked)


@pytest.mark.parametrize("transform", ["standard", "log", "quantile"])
def test_numbers(transform):
    training = [*np.exp(np.linspace(0, 5, 40)).tolist(), None]
    same_as_training(Number("x", transform=transform, **ROW), training, [1.0, 3, None, 1e9, 0])


def test_numbers_that_are_not_finite_are_missing():
    encoder = fitted(Number("x", **ROW), [1.0, 2.0, None])
    reader = reader_of(encoder, None)
    values = reader.array(reader.read([float("nan"), float("inf"), -float("inf")]), None)
    assert values[:, 1].tolist() == [1, 1, 1]


@pytest.mark.parametrize("training", [[["a", "b"], ["b", "a", "c", "c"], None], [["a", "b"], ["b", "a"]]])
def test_bags(training):
    asked = [["a"], ["b", "never", "a", "c", "c"], [], None, ["c", None, "a"]]
    same_as_training(Bag("tags", **ROW), training, asked)


@pytest.mark.parametrize("part", ["hour", "weekday"])
def test_parts_of_times(part):
    feature = TimePart(f"t.{part}", part=part, of="t")
    times = [datetime(2024, 5, day, 3 * day) for day in (1, 2, 3, 7)]
    encoder = fitted(feature, times)
    reader = reader_of(encoder, None)
    expected = encoder.encode(values_of(feature, pa.array(times)))[:, 0]
    written = [each.isoformat() for each in times]
    assert reader.array(reader.read(times), None).tolist() == expected.tolist()
    assert reader.array(reader.read(written), None).tolist() == expected.tolist()
    with pytest.raises(DataError, match="field 't', row 0: 'noon' is not a time"):
        reader.read(["noon"])


def test_what_is_absent_is_what_was_known_in_training():
    encoder = fitted(Category("c", role="user"), ["de", "fr", "fr", "de"])
    reader = reader_of(encoder, np.array([[3], [2], [0]]))
    owner = np.array([0, 1, 2, 0])
    assert reader.array(reader.read([ABSENT, ABSENT, ABSENT, "de"]), owner).tolist() == [3, 2, 0, 2]
    number = fitted(Number("x", role="user"), [1.0, 3.0])
    reader = reader_of(number, np.array([[0.5], [0.25]], np.float32))
    found = reader.array(reader.read([ABSENT, 2.0, ABSENT]), np.array([1, 0, 0]))
    assert found[:, 0].tolist() == [0.25, 0.0, 0.5]


@pytest.mark.parametrize(
    ("feature", "value", "line"),
    [
        (Category("c", **ROW), [1], r"field 'c', row 1: \[1\] is not one value"),
        (Category("c", **ROW), ABSENT, "field 'c', row 1: is missing, which the model reads of each row"),
        (Number("c", **ROW), "3", "field 'c', row 1: '3' is not a number"),
        (Bag("c", **ROW), "3", "field 'c', row 1: '3' is not a list"),
        (Bag("c", **ROW), [["a"]], "is not a list of values"),
    ],
)
def test_what_no_value_is_made_of_is_named(feature, value, line):
    training = {Category: ["a", "b"], Number: [1.0, 2.0], Bag: [["a"], ["b"]]}[type(feature)]
    with pytest.raises(DataError, match=line):
        reader_of(fitted(feature, training), None).read([training[0], value])


@pytest.mark.parametrize("known", [[3, 7, 30], ["3", "7", "x"]])
@pytest.mark.parametrize("asked", [[7, 3], ["7", "3"], ["007", "x"], [7.0, 9.0], [-1, 10**30]])
def test_ids_are_found_as_a_vocabulary_finds_them(known, asked):
    vocabulary = Vocabulary.of(known, name="user")
    if asked == [-1, 10**30]:
        # Too large for the arrays of a vocabulary, and no more than unknown to a request.
        expected = [-1, -1]
    else:
        expected = vocabulary.encode(asked, unseen="nan").tolist()
    assert Ids("user", vocabulary.ids.tolist()).codes(asked) == expected


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ([1, None], "field 'user', row 1: null is no id"),
        ([True], "row 0: True is no id"),
        ([1.5], "row 0: 1.5 is no id"),
        ([1, "a"], "ids mix text and numbers"),
        ([[1]], r"row 0: \[1\] is no id"),
        ([1, ABSENT], "row 1: there is none"),
    ],
)
def test_what_is_no_id_is_named(asked, line):
    with pytest.raises(DataError, match=line):
        Ids("user", [1, 2]).codes(asked)
