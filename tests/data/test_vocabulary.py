"""Ids and codes: round trips, and what is no id."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.base.errors import DataError, ParameterError
from unskew.data.vocabulary import UNSEEN_CODE, Vocabulary


def pandas(values, dtype=None):
    """A column; without the package the test that asks for one is skipped."""
    return pytest.importorskip("pandas").Series(values, dtype=dtype)


def made(values):
    return values() if callable(values) else values


ids = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1),
)


@given(ids)
def test_decode_undoes_encode_and_codes_are_positions(values):
    vocabulary = Vocabulary.of(values, name="user")
    codes = vocabulary.encode(values)
    assert vocabulary.decode(codes).tolist() == values
    assert sorted(set(values)) == vocabulary.ids.tolist()
    assert codes.dtype == np.int32


@pytest.mark.parametrize(
    "values",
    [
        [3, 1],
        (3, 1),
        np.array([3.0, 1.0]),
        np.array([3, 1], dtype=np.uint64),
        lambda: pandas([3, 1], "Int64"),
    ],
)
def test_whole_numbers_of_any_type_are_the_same_ids(values):
    np.testing.assert_array_equal(Vocabulary.of([1, 2, 3], name="user").encode(made(values)), [2, 0])


@pytest.mark.parametrize("values", [["b", "a"], np.array(["b", "a"]), lambda: pandas(["b", "a"])])
def test_text_of_any_type_is_the_same_ids(values):
    np.testing.assert_array_equal(Vocabulary.of(["a", "b", "long"], name="user").encode(made(values)), [1, 0])


def test_unseen_id_names_column_row_count_and_remedy():
    vocabulary = Vocabulary.of([10, 20], name="uid")
    with pytest.raises(
        DataError, match=r"^column 'uid', row 1: uid 99 was not seen in training \(2 such rows\)"
    ):
        vocabulary.encode([10, 99, 30])
    with pytest.raises(DataError, match=r"To fix: leave these rows out .*unseen='drop'.*unseen='nan'"):
        vocabulary.encode([10, 99, 30])


def test_unseen_id_gets_its_code_on_request():
    codes = Vocabulary.of([10, 20], name="uid").encode([20, 5, 15, 99], unseen="nan")
    np.testing.assert_array_equal(codes, [1, UNSEEN_CODE, UNSEEN_CODE, UNSEEN_CODE])


def test_no_values_have_no_codes_whatever_the_type_of_ids():
    assert Vocabulary.of(["a"], name="uid").encode([]).shape == (0,)


@pytest.mark.parametrize("values", [[10, 7], np.array([10.0, 7.0]), np.array([10, 7], dtype=np.uint8)])
def test_numbers_are_looked_up_among_text_by_their_digits(values):
    vocabulary = Vocabulary.of(["007", "10"], name="uid")
    assert vocabulary.encode(values, unseen="nan").tolist() == [1, UNSEEN_CODE]
    with pytest.raises(DataError, match="column 'uid', row 1: uid 7 was not seen in training"):
        vocabulary.encode(values)


def test_text_is_looked_up_among_numbers_by_its_digits():
    largest = 2**63 - 1
    vocabulary = Vocabulary.of([7, 10, -3, largest], name="uid")
    assert vocabulary.decode(vocabulary.encode(["10", "-3", str(largest)])).tolist() == [10, -3, largest]
    others = ["007", "7.0", "1e1", "+7", " 7", "٧", "-0", str(2**63), "x" * 100, "", "7\n"]
    assert vocabulary.encode(others, unseen="nan").tolist() == [UNSEEN_CODE] * len(others)
    with pytest.raises(DataError, match="column 'uid', row 1: uid 007 was not seen in training"):
        vocabulary.encode(["7", "007"])


@pytest.mark.parametrize(
    "values",
    [
        [1, None, None],
        [1.0, np.nan, np.nan],
        ["a", None, float("nan")],
        lambda: pandas([1, None, None], "Int64"),
        lambda: pandas(["a", None, None]),
        lambda: pandas(["a", None, None], "string"),
    ],
)
def test_null_id_names_column_row_count_and_remedy(values):
    with pytest.raises(
        DataError,
        match=r"^column 'uid', row 1: id is missing \(NaN or null; 2 such rows\)\. To fix: drop these rows",
    ):
        Vocabulary.of(made(values), name="uid")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 2.5], r"column 'uid', row 1: id 2\.5 is not a whole number"),
        ([1.0, np.inf], r"column 'uid', row 1: id inf is not a whole number"),
        ([1.0, 1e300], r"row 1: id 1e\+300 is not a whole number"),
        (np.array([1, 2**64 - 1], dtype=np.uint64), r"row 1: id 18446744073709551615 does not fit"),
        (["a", 1], r"column 'uid': ids mix text and numbers"),
        (
            np.array(["2024-01-01"], dtype="M8[D]"),
            r"column 'uid': ids of type datetime64\[D\] are not supported",
        ),
        ([[1, 2], [3, 4]], r"uid ids must be one-dimensional, not of shape \(2, 2\)"),
        ([], r"there are no uid ids"),
    ],
)
def test_what_is_no_id_is_an_error_with_a_remedy(values, message):
    with pytest.raises(DataError, match=message) as caught:
        Vocabulary.of(values, name="uid")
    assert caught.value.remedy


def test_what_is_neither_error_nor_nan_is_refused():
    with pytest.raises(ParameterError, match="unseen must be 'error' or 'nan', not 'x'"):
        Vocabulary.of([1, 2], name="user").encode([1], unseen="x")


@pytest.mark.parametrize("ids", [[[1], [2, 3]], [{}, {}], np.array([None, [1]], dtype=object)])
def test_a_row_with_several_ids_is_not_called_missing(ids):
    with pytest.raises(DataError, match=r"column 'user', row .: id .* is not one value"):
        Vocabulary.of(ids, name="user")


def test_ids_that_differ_in_a_null_character_are_two():
    vocabulary = Vocabulary.of(["a", "a\0"], name="user")
    assert vocabulary.encode(["a\0", "a"]).tolist() == [1, 0]


def test_half_a_character_is_no_id():
    with pytest.raises(DataError, match=r"column 'uid', row 1: id '\\ud800' is not text that UTF-8 can hold"):
        Vocabulary.of(["a", "\ud800"], name="uid")
    with pytest.raises(DataError, match=r"column 'uid', row 0: id .* is not text"):
        Vocabulary.of(["a"], name="uid").encode(["b\udfff"], unseen="nan")


def test_nulls_of_numpys_text_are_missing_ids():
    values = np.array(["a", np.nan], dtype=np.dtypes.StringDType(na_object=np.nan))
    with pytest.raises(DataError, match="column 'uid', row 1: id is missing"):
        Vocabulary.of(values, name="uid")


class TestHashes:
    """What folds are made of: a function of an id alone."""

    def test_whole_numbers_have_the_hash_of_their_digits(self):
        numbers = np.array([-12, 0, 7, 10, 2**62])
        text = Vocabulary.of(numbers.astype(str), name="u")
        expected = dict(zip(text.ids.tolist(), text.hashes, strict=True))
        found = Vocabulary.of(numbers, name="u").hashes
        assert [expected[str(number)] for number in numbers] == found.tolist()

    def test_they_are_the_same_in_every_version(self):
        """Saved propensities and models find their folds by them."""
        assert Vocabulary.of([7], name="u").hashes.tolist() == [2299506040737902092]
        assert Vocabulary.of(["é€"], name="u").hashes.tolist() == [3857163906683470020]


class TestSharedCodes:
    """More ids than codes: those without one of their own share some, by a hash."""

    def test_an_id_without_a_code_gets_a_shared_one_wherever_it_comes_from(self) -> None:
        few = Vocabulary(np.array([3, 5, 9]), "user", buckets=4)
        codes = few.encode([5, 77, 9, 77, 1_000])
        assert codes[[0, 2]].tolist() == [1, 2]
        assert (codes[[1, 3, 4]] >= 3).all()
        assert codes[1] == codes[3]
        assert len(few) == len(few.hashes) == 7
        assert codes.max() < 7
        text = Vocabulary(np.array(["3", "5", "9"]), "user", buckets=4)
        assert np.array_equal(text.encode(["5", "77", "9", "77", "1000"]), codes)

    @pytest.mark.parametrize("ids", [[3, 5, 9], [3, 5, 9 * 10**9], ["3", "5", "9"]])
    def test_a_column_is_coded_as_an_array_is(self, ids: list[int] | list[str]) -> None:
        for buckets in (0, 4):
            known = Vocabulary(np.array(ids), "user", buckets=buckets)
            for column in ([5, 77, 3, 0, -4, 10**12], ["5", "77", "3", "x"]):
                wanted = known.encode(column, unseen="nan")
                assert np.array_equal(known.encode_column(pa.array(column)), wanted)
        assert not known.same_as(Vocabulary(np.array(ids), "user"))

    def test_of_another_vocabulary_a_shared_code_is_the_same_shared_code_or_unknown(self) -> None:
        # −4 is the name of the fourth shared code, and a user.
        given = Vocabulary(np.array([-4, 3, 5]), "user", buckets=4)
        codes = np.array([0, 2, 3, 6], dtype=np.int32)
        assert Vocabulary(np.array([-4, 5]), "user", buckets=4).recode(codes, given).tolist() == [0, 1, 2, 5]
        for buckets in (0, 8):
            other = Vocabulary(np.array([-4, 5]), "user", buckets=buckets)
            assert other.recode(codes, given, unseen="nan").tolist() == [0, 1, UNSEEN_CODE, UNSEEN_CODE]
            assert other.recode(codes[:2], given).tolist() == [0, 1]
            with pytest.raises(DataError, match=r"column 'user', row 2: which user this is nobody knows"):
                other.recode(codes, given)

    def test_codes_that_are_shared_are_named_by_number(self) -> None:
        assert Vocabulary(np.array(["a"]), "user", buckets=2).decode(np.array([0, 2])).tolist() == [
            "a",
            "other 1",
        ]
