"""Columns of a request as the codes and numbers that a model reads, value by value and without Arrow.

What a value becomes is the encoder's own rule (:mod:`unskew.log.encoder`). There is another way to it here
since a request has one row or some hundreds, where making an Arrow array costs more than the model.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.errors import DataError
from unskew.io.columns import LARGEST_EXACT_FLOAT
from unskew.io.vocabulary import TEXT, UNSEEN_CODE, text_hashes
from unskew.log.encoder import FIRST_CODE, MISSING_CODE, OTHER_CODE, PAD, CodeEncoder, Encoder, NumberEncoder
from unskew.log.kinds import TimePart
from unskew.log.values import Numbers
from unskew.plain_text import plain

ABSENT: Any = object()
"""In a column of a request: this row has no such field, which is not the same as null."""

FROM_TABLE = -2
"""Instead of a code: what was known of the user or item in training stands in."""

NUMBER_FROM_TABLE = math.inf
"""The same instead of a number, of which a request has finite ones alone."""

LONGEST_DIGITS = 20
"""Of a whole number of 64 bits, with its sign."""

Column = Sequence[Any]


class Ids:
    """Ids of users or items to their codes.

    Whole numbers and texts find each other by their digits, as in :class:`unskew.io.vocabulary.Vocabulary`.
    """

    def __init__(self, name: str, ids: Sequence[Any]) -> None:
        self.name = name
        self.size = len(ids)
        self.text = isinstance(ids[0], str)
        self._kinds = {str} if self.text else {int}
        self._code = _CodeOf({each: code for code, each in enumerate(ids)})

    def codes(self, column: Column) -> list[int]:
        """Codes of ids, :data:`UNSEEN_CODE` where one is not known."""
        if set(map(type, column)) != self._kinds:
            column = self._of_own_kind(column)
        return list(map(self._code.__getitem__, column))

    def _of_own_kind(self, column: Column) -> Column:
        """Ids as training had them: whole numbers, fractions that are whole, and the digits of either."""
        whole = self._whole(column)
        if self.text:
            return [str(each) for each in whole]
        return [_digits(each) if type(each) is str else each for each in whole]

    def _whole(self, column: Column) -> Column:
        """Fractions that are whole as whole numbers; anything else than one type of ids is an error."""
        whole = [
            int(each)
            if type(each) is float and each.is_integer() and abs(each) <= LARGEST_EXACT_FLOAT
            else each
            for each in column
        ]
        for row, each in enumerate(whole):
            if type(each) not in (int, str):
                what = "there is none" if each is ABSENT else f"{shown(each)} is no id"
                raise DataError(what, where=_place(self.name, row), remedy="give a whole number or a text")
        if len(set(map(type, whole))) > 1:
            raise DataError("ids mix text and numbers", where=f"field '{self.name}'", remedy="give one type")
        return whole


class _CodeOf(dict[Any, int]):
    """A whole column is looked up by one ``map``, in which an id that is not known is no exception."""

    def __missing__(self, key: Any) -> int:
        return UNSEEN_CODE


def _digits(text: str) -> int | None:
    """The whole number that a text is the digits of."""
    if len(text) > LONGEST_DIGITS:
        # No id, and as long as its sender likes.
        return None
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text else None


class FieldReader(ABC):
    """One feature: values of requests to what the graph takes.

    Parts of a batch are kept as lists, one for each request, and become arrays once for all of them.
    """

    def __init__(self, encoder: Encoder, table: NDArray[Any] | None) -> None:
        self.name = encoder.feature.name
        self.source = encoder.feature.source
        self.role = encoder.feature.role
        self.kind = "time" if isinstance(encoder.feature, TimePart) else encoder.field.kind
        self.table = table
        """By the code of the user or item, the last line for one who is not known; None for a row's."""

    @abstractmethod
    def read(self, column: Column) -> list[Any]:
        """The values of one request, checked."""

    @abstractmethod
    def array(self, parts: list[Any], owner: NDArray[np.int64] | None) -> NDArray[Any]:
        """The input of the graph; ``owner`` are the codes by which the table is read."""

    def _absent(self, row: int) -> DataError:
        return DataError(
            "is missing, which the model reads of each row",
            where=_place(self.source, row),
            remedy="give it; null where it is not known",
        )

    def _wrong(self, row: int, value: Any, wanted: str) -> DataError:
        return DataError(
            f"{shown(value)} is not {wanted}",
            where=_place(self.source, row),
            remedy=f"give {wanted}, or null",
        )


class CategoryReader(FieldReader):
    """Categories and parts of times."""

    def __init__(self, encoder: CodeEncoder, table: NDArray[Any] | None) -> None:
        super().__init__(encoder, table)
        self._codes = Codes(encoder)
        self._part = encoder.feature.part if isinstance(encoder.feature, TimePart) else None

    def read(self, column: Column) -> list[int]:
        """Codes."""
        codes = []
        for row, value in enumerate(column):
            if value is ABSENT:
                if self.table is None:
                    raise self._absent(row)
                codes.append(FROM_TABLE)
            elif value is None:
                codes.append(self._codes.nothing)
            else:
                text = _text(value) if self._part is None else _time_part(value, self._part)
                if text is None:
                    raise self._wrong(row, value, "one value" if self._part is None else "a time (ISO 8601)")
                codes.append(self._codes.of(text))
        return codes

    def array(self, parts: list[int], owner: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """``[n]``."""
        codes = np.array(parts, dtype=np.int64)
        if self.table is None or FROM_TABLE not in parts:
            return codes
        assert owner is not None
        return np.where(codes == FROM_TABLE, self.table[owner, 0], codes)


class BagReader(FieldReader):
    """Lists of values."""

    def __init__(self, encoder: CodeEncoder, table: NDArray[Any] | None) -> None:
        super().__init__(encoder, table)
        self._codes = Codes(encoder)
        self._width = encoder.width

    def read(self, column: Column) -> list[list[int] | None]:
        """Codes of each row, cut and filled up to the width; None where the table stands in."""
        bags: list[list[int] | None] = []
        for row, value in enumerate(column):
            if value is ABSENT:
                if self.table is None:
                    raise self._absent(row)
                bags.append(None)
                continue
            if value is not None and type(value) is not list:
                raise self._wrong(row, value, "a list")
            texts = [_text(each) for each in value or () if each is not None]
            if None in texts:
                raise self._wrong(row, value, "a list of values")
            codes = [self._codes.of(each) for each in texts[: self._width]] or [self._codes.nothing]
            bags.append(codes + [PAD] * (self._width - len(codes)))
        return bags

    def array(self, parts: list[list[int] | None], owner: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """``[n, width]``."""
        if None not in parts:
            return np.array(parts, dtype=np.int64).reshape(-1, self._width)
        assert self.table is not None
        assert owner is not None
        absent = [row for row, bag in enumerate(parts) if bag is None]
        empty = [PAD] * self._width
        codes = np.array([empty if bag is None else bag for bag in parts], dtype=np.int64)
        codes[absent] = self.table[owner[absent]]
        return codes


class NumberReader(FieldReader):
    """Numbers, which the encoder scales."""

    def __init__(self, encoder: NumberEncoder, table: NDArray[Any] | None) -> None:
        super().__init__(encoder, table)
        self._encoder = encoder

    def read(self, column: Column) -> list[float]:
        """As they are; NaN where there is none."""
        if set(map(type, column)) == {float}:
            return [each if math.isfinite(each) else math.nan for each in column]
        numbers = []
        for row, value in enumerate(column):
            if value is ABSENT:
                if self.table is None:
                    raise self._absent(row)
                numbers.append(NUMBER_FROM_TABLE)
            elif value is None:
                numbers.append(math.nan)
            elif isinstance(value, bool | int | float):
                numbers.append(float(value) if math.isfinite(value) else math.nan)
            else:
                raise self._wrong(row, value, "a number")
        return numbers

    def array(self, parts: list[float], owner: NDArray[np.int64] | None) -> NDArray[np.float32]:
        """``[n, 1 or 2]``, scaled."""
        values = np.array(parts, dtype=np.float64)
        if NUMBER_FROM_TABLE not in parts:
            return self._encoder.encode(Numbers(values))
        assert self.table is not None
        assert owner is not None
        absent = np.isinf(values)
        scaled = self._encoder.encode(Numbers(np.where(absent, np.nan, values)))
        return np.where(absent[:, None], self.table[owner], scaled)


class Codes:
    """Texts of a category or bag to codes."""

    def __init__(self, encoder: CodeEncoder) -> None:
        self.nothing = MISSING_CODE if encoder.missing > 0 else OTHER_CODE
        self._buckets = encoder.buckets
        self._code = {text: FIRST_CODE + place for place, text in enumerate(encoder.vocabulary.tolist())}

    def of(self, text: str | None) -> int:
        """The code of a text; of a value that training did not have, "other", or a code by the hash."""
        assert text is not None
        if self._buckets is None:
            return self._code.get(text, OTHER_CODE)
        found = self._code.get(text)
        if found is None:
            bucket = text_hashes(np.array([text], dtype=TEXT)).view(np.uint64)[0] % np.uint64(self._buckets)
            found = FIRST_CODE + int(bucket)
        return found


def reader_of(encoder: Encoder, table: NDArray[Any] | None) -> FieldReader:
    """What reads the values of a feature."""
    if isinstance(encoder, NumberEncoder):
        return NumberReader(encoder, table)
    assert isinstance(encoder, CodeEncoder)
    return (BagReader if encoder.field.kind == "bag" else CategoryReader)(encoder, table)


def _text(value: Any) -> str | None:
    """A value as the text that :func:`unskew.log.values.values_of` makes of it; None where it is no value."""
    kind = type(value)
    if kind is str:
        text: str = value
    elif kind is int:
        text = str(value)
    elif kind is float and value.is_integer():
        text = str(int(value))
    elif isinstance(value, bool | float | date):
        text = str(pa.array([value]).cast(pa.large_string())[0].as_py())
    else:
        return None
    return text


def _time_part(value: Any, part: str) -> str | None:
    if type(value) is str:
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        return None
    return str(value.hour if part == "hour" else value.weekday())


def shown(value: Any) -> str:
    """A value of a request as messages show it."""
    return "null" if value is None else plain(repr(value), longest=60)


def _place(name: str, row: int) -> str:
    return f"field '{name}', row {row}"
