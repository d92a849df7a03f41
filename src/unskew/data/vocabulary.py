"""Ids and their integer codes: one vocabulary for users, one for items."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.base.columns import LARGEST_EXACT_FLOAT, is_text, null_mask, numpy_of
from unskew.base.errors import DataError
from unskew.base.estimator import require_choice
from unskew.base.numbers import without_mask
from unskew.base.seeds import splitmix64
from unskew.data.distinct import AT_ONCE, NOWHERE, TEXT, ValueIndex, as_arrow, hashes_of

Unseen = Literal["error", "nan"]

UNSEEN_CODE = NOWHERE
"""The code of an id that the vocabulary does not know (only with ``unseen="nan"``)."""

NESTED = (list, tuple, dict, set, np.ndarray)
"""What a column of lists or records holds in its rows."""

SPARSEST, SMALL_TABLE = 8, 1 << 16
"""Whole numbers are looked up in a table where it has at most so many places for each, and so many more."""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Sorted unique ids; the code of an id is its position.

    Attributes
    ----------
    buckets
        Codes after the last that ids share which have none of their own, each by a hash of its text: of a log
        with more ids than a table has rows for. Without any, such ids are not known.

    Examples
    --------
    >>> vocabulary = Vocabulary.of(["b", "a", "b"], name="user")
    >>> vocabulary.encode(["b", "a"])
    array([1, 0], dtype=int32)
    """

    ids: NDArray[Any]
    name: str
    buckets: int = 0

    def __post_init__(self) -> None:
        ids = np.array(self.ids)
        if ids.dtype.kind == "U":
            ids = ids.astype(TEXT)
        if ids.ndim != 1 or len(ids) == 0:
            raise DataError(f"there are no {self.name} ids", remedy="give at least one row")
        ids.flags.writeable = False
        object.__setattr__(self, "ids", ids)

    @classmethod
    def of(cls, values: Any, *, name: str) -> Vocabulary:
        """Collect the unique ids of an array."""
        return cls(ids=np.unique(_id_array(values, name)), name=name)

    @classmethod
    def range(cls, size: int, *, name: str) -> Vocabulary:
        """Return the ids 0, …, size − 1, which are their own codes."""
        return cls(ids=np.arange(size, dtype=np.int64), name=name)

    def __len__(self) -> int:
        return len(self.ids) + self.buckets

    def encode(self, values: Any, *, unseen: Unseen = "error") -> NDArray[np.int32]:
        """Return the codes of ids; an unknown id is an error, or −1 with ``unseen="nan"``.

        Whole numbers and texts find each other by their digits: a CSV file gives text, and a Parquet file
        numbers, for the same ids. 007 is no 7.
        """
        require_choice("unseen", unseen, ("error", "nan"))
        array = _id_array(values, self.name)
        codes = self._codes(as_arrow(array))
        unknown = codes == UNSEEN_CODE
        if unseen == "error" and unknown.any():
            row = int(np.flatnonzero(unknown)[0])
            raise DataError(
                f"{self.name} {array[row]!s} was not seen in training ({int(unknown.sum())} such rows)",
                where=f"column '{self.name}', row {row}",
                remedy="leave these rows out (of a test file: unseen='drop', --option unseen=drop), or ask"
                " for NaN (of predictions: unseen='nan', --unseen nan)",
            )
        return codes

    def encode_column(self, column: Any) -> NDArray[np.int32]:
        """Return codes of a ``pyarrow.Array`` of ids, as :meth:`encode` with ``unseen="nan"`` has them."""
        return self._codes(id_column(column, self.name))

    def _codes(self, ids: Any) -> NDArray[np.int32]:
        """Return codes of a ``pyarrow.Array`` of int64 or text; :data:`UNSEEN_CODE` where there is none."""
        if not len(ids):
            return np.empty(0, dtype=np.int32)
        if self.ids.dtype == TEXT or not pa.types.is_integer(ids.type):
            coded = ids.dictionary_encode()
            distinct = self._bucketed(self._texts.find(_digits(coded.dictionary)), coded.dictionary)
            of_rows: NDArray[np.int32] = distinct[coded.indices.to_numpy()]
            return of_rows
        if self._places is None:
            return self._bucketed(self._numbers.find(ids), ids)
        # What is too far below wraps around to what is too far above.
        position = (ids.to_numpy() - int(self.ids[0])).view(np.uint64)
        return self._bucketed(self._places[np.minimum(position, len(self._places) - 1)], ids)

    def _bucketed(self, codes: NDArray[np.integer[Any]], ids: Any) -> NDArray[np.int32]:
        """Return the same with a shared code for ids that are not known, if there are such codes."""
        all_codes = codes.astype(np.int32)
        unknown = codes == UNSEEN_CODE
        if self.buckets and unknown.any():
            hashed = hashes_of(_digits(ids.filter(pa.array(unknown)))).view(np.uint64)
            all_codes[unknown] = len(self.ids) + (hashed % np.uint64(self.buckets)).astype(np.int32)
        return all_codes

    @cached_property
    def _places(self) -> NDArray[np.int32] | None:
        """The code by id − first id, −1 in gaps; None where whole numbers lie too far apart for a table.

        A look-up costs a tenth of a search among a million ids.
        """
        first, last = int(self.ids[0]), int(self.ids[-1])
        if last - first >= SPARSEST * len(self.ids) + SMALL_TABLE:
            return None
        # One more at the end, for all that is above.
        places = np.full(last - first + 2, UNSEEN_CODE, dtype=np.int32)
        places[self.ids - first] = np.arange(len(self.ids), dtype=np.int32)
        return places

    @cached_property
    def _numbers(self) -> ValueIndex:
        """The ids as whole numbers, for look-ups where they lie too far apart for a table of codes."""
        return ValueIndex(as_arrow(self.ids))

    @cached_property
    def _texts(self) -> ValueIndex:
        """The ids as text, for look-ups."""
        return ValueIndex(as_arrow(self.ids.astype(TEXT)))

    @cached_property
    def hashes(self) -> NDArray[np.int64]:
        """A hash of 64 bits of each id: a function of its text alone, on every machine and in every order.

        What an id is hashed to does not depend on its code or on the other ids. Whole numbers are hashed by
        their digits, so that 7 and "7" agree, as they do in :meth:`encode`.

        Examples
        --------
        >>> numbers, text = Vocabulary.of([30, 7], name="user"), Vocabulary.of(["7", "x"], name="user")
        >>> bool(numbers.hashes[0] == text.hashes[0])
        True
        """
        shared = splitmix64(np.arange(self.buckets, dtype=np.uint64)).view(np.int64)
        hashes = np.concatenate([text_hashes(self.ids), shared])
        hashes.flags.writeable = False
        return hashes

    def same_as(self, other: Vocabulary) -> bool:
        """Return whether codes mean the same ids in both."""
        same = self.ids is other.ids or np.array_equal(self.ids, other.ids)
        return same and self.buckets == other.buckets

    def recode(
        self, codes: NDArray[np.int32], given: Vocabulary, *, unseen: Unseen = "error"
    ) -> NDArray[np.int32]:
        """Translate codes of another vocabulary into codes of this one; an unknown id is an error, or −1.

        An id that shares a code there shares it here, if ids share as many codes in both; which id it was is
        no longer known, so that it is not found among those with a code of their own, and elsewhere it is
        unknown.

        Examples
        --------
        >>> trained = Vocabulary.of(["a", "b", "c"], name="user")
        >>> given = Vocabulary.of(["b", "c"], name="user")
        >>> trained.recode(np.array([0, 1], dtype=np.int32), given)
        array([1, 2], dtype=int32)
        """
        if given.same_as(self):
            return codes
        shares = codes >= len(given.ids)
        if not shares.any():
            return self.encode(given.ids[codes], unseen=unseen)
        if self.buckets != given.buckets and unseen == "error":
            row = int(np.flatnonzero(shares)[0])
            raise DataError(
                f"which {self.name} this is nobody knows: it shares one of {given.buckets} codes, and in"
                f" training ids share {self.buckets or 'none'} ({int(shares.sum())} such rows)",
                where=f"column '{self.name}', row {row}",
                remedy="read the log with more most_ids, or give a frame with the ids themselves",
            )
        result = np.full(len(codes), UNSEEN_CODE, dtype=np.int32)
        result[~shares] = self.encode(given.ids[codes[~shares]], unseen=unseen)
        if self.buckets == given.buckets:
            result[shares] = codes[shares] - np.int32(len(given.ids) - len(self.ids))
        return result

    def decode(self, codes: NDArray[np.integer[Any]]) -> NDArray[Any]:
        """Return the ids of codes; for a code that several share, its number: "other 3", or −4 if whole."""
        if not self.buckets:
            ids: NDArray[Any] = self.ids[codes]
            return ids
        numbers = np.arange(self.buckets)
        text = self.ids.dtype == TEXT
        shared = np.array([f"other {each}" for each in numbers], dtype=TEXT) if text else -1 - numbers
        whole: NDArray[Any] = np.concatenate([self.ids, shared])[codes]
        return whole


def text_hashes(texts: NDArray[Any]) -> NDArray[np.int64]:
    """Return a hash of 64 bits of each text, as :attr:`Vocabulary.hashes` has it."""
    starts = range(0, len(texts), AT_ONCE)
    parts = [hashes_of(_digits(as_arrow(texts[start : start + AT_ONCE]))) for start in starts]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def id_column(column: Any, name: str) -> Any:
    """Return a ``pyarrow.Array`` of ids as one of int64 or text; nulls and other types are errors."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    plain = is_text(column.type)
    if plain or (pa.types.is_integer(column.type) and column.type != pa.uint64()):
        _reject_null(column.is_null().to_numpy(zero_copy_only=False), name)
        return column.cast(pa.large_string() if plain else pa.int64())
    return as_arrow(_id_array(numpy_of(column, name), name))


def _digits(ids: Any) -> Any:
    """Return a ``pyarrow.Array`` of ids as text."""
    return ids.cast(pa.large_string())


def _id_array(values: Any, name: str) -> NDArray[Any]:
    """Return ids as integers or text; nulls, fractions and mixed types are errors that name the row."""
    # NumPy would turn the list ["a", nan] into text; as objects the null can be seen.
    values = without_mask(values)
    array = np.asarray(values, dtype=object if isinstance(values, (list, tuple)) else None)
    if array.ndim != 1:
        raise DataError(
            f"{name} ids must be one-dimensional, not of shape {array.shape}", remedy="give one id a row"
        )
    if array.dtype.kind == "T" and array.dtype != TEXT:
        # It may hold nulls.
        array = array.astype(object)
    if array.dtype.kind == "O":
        nested = np.array([isinstance(value, NESTED) for value in array], dtype=bool)
        _reject_rows(nested, array, "is not one value", name)
        _reject_null(null_mask(array), name)
        is_text = {isinstance(value, str) for value in array}
        if len(is_text) > 1:
            raise DataError(
                "ids mix text and numbers", where=f"column '{name}'", remedy="convert the column to one type"
            )
        if is_text == {True}:
            return _text_of(array, name)
        array = np.array(array.tolist()) if len(array) else array.astype(np.int64)
    if array.dtype.kind == "f":
        _reject_null(np.isnan(array), name)
        _reject_rows(
            (array != np.floor(array)) | (np.abs(array) > LARGEST_EXACT_FLOAT),
            array,
            "is not a whole number",
            name,
        )
        return array.astype(np.int64)
    if array.dtype.kind in "iub":
        if array.dtype == np.uint64:
            _reject_rows(array > np.iinfo(np.int64).max, array, "does not fit 64 signed bits", name)
        return array.astype(np.int64)
    if array.dtype.kind in "UT":
        return _text_of(array, name)
    raise DataError(
        f"ids of type {array.dtype} are not supported",
        where=f"column '{name}'",
        remedy="give ids as whole numbers or text",
    )


def _text_of(ids: NDArray[Any], name: str) -> NDArray[Any]:
    try:
        return ids.astype(TEXT)
    except UnicodeEncodeError:
        halves = np.array([any("\ud800" <= letter <= "\udfff" for letter in text) for text in ids])
        row = int(np.flatnonzero(halves)[0])
        raise DataError(
            f"id {str(ids[row])!a} is not text that UTF-8 can hold",
            where=f"column '{name}', row {row}",
            remedy="read the ids with the encoding that they were written in",
        ) from None


def _reject_rows(wrong: NDArray[np.bool_], ids: NDArray[Any], problem: str, name: str) -> None:
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"id {ids[row]} {problem}",
            where=f"column '{name}', row {row}",
            remedy="give ids as whole numbers or text",
        )


def _reject_null(null: NDArray[np.bool_], name: str) -> None:
    if null.any():
        raise DataError(
            f"id is missing (NaN or null; {int(null.sum())} such rows)",
            where=f"column '{name}', row {int(np.flatnonzero(null)[0])}",
            remedy="drop these rows or fill in the ids",
        )
