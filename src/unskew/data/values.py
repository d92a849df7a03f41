"""Values of features as they are in the data: texts, lists of texts, numbers. Codes of networks are later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.base.columns import LARGEST_EXACT_FLOAT, arrow_of, is_text, is_utf8, require_utf8
from unskew.base.errors import DataError
from unskew.base.seeds import splitmix64
from unskew.data.arrays import Lines, empty_like, lines_of, pieces
from unskew.data.distinct import TEXT, as_numpy
from unskew.data.kinds import Feature, TimePart, numbered

MISSING = -1
"""The code of a text that is not there, and the number of a row that is not there."""


@dataclass(frozen=True, eq=False)
class Texts:
    """One text for each row, ``texts[codes]``; or a list of them.

    Attributes
    ----------
    codes
        :data:`MISSING` where a row has no text.
    texts
        Each text once, as NumPy or Arrow has them.
    starts
        Where the list of each row begins in ``codes``, and the last ends; None where each row has one text. A
        list that is empty is missing.
    """

    codes: NDArray[np.int32]
    texts: Any
    starts: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.codes) if self.starts is None else len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Texts of each row."""
        return np.ones(len(self), np.int64) if self.starts is None else np.diff(self.starts)

    def take(self, rows: Lines) -> Texts:
        """Return those of some rows; row :data:`MISSING` has none."""
        if self.starts is None:
            return Texts(_taken(self.codes, rows, np.int32(MISSING)), self.texts)
        if isinstance(rows, slice):
            starts = self.starts[rows.start or 0 : (len(self) if rows.stop is None else rows.stop) + 1]
            return Texts(self.codes[starts[0] : starts[-1]], self.texts, starts - starts[0])
        at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        lengths = np.where(at == MISSING, 0, self.starts[at + 1] - self.starts[at])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        codes = empty_like(self.codes, (int(starts[-1]),), np.int32)
        for piece in pieces(len(at)):
            first, last = starts[piece.start], starts[piece.stop]
            shift = np.repeat(self.starts[at[piece]] - starts[piece], lengths[piece])
            codes[first:last] = self.codes[shift + np.arange(first, last)]
        return Texts(codes, self.texts, starts)

    def missing(self) -> NDArray[np.bool_]:
        """Return where there is none."""
        return np.asarray(self.codes == MISSING if self.starts is None else self.lengths == 0)

    def longest(self) -> int:
        """Return how many texts the longest list has."""
        return max((int(self.take(piece).lengths.max()) for piece in pieces(len(self))), default=1)

    def keys(self) -> NDArray[np.int64]:
        """Return numbers, equal where values are (of lists but for their order, and a chance of 2⁻⁶⁴)."""
        if self.starts is None:
            return self.codes.astype(np.int64)
        mixed = splitmix64(np.arange(int(self.codes.max(initial=0)) + 1, dtype=np.uint64))
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed[self.codes])])
        return np.asarray(running[self.starts[1:]] - running[self.starts[:-1]]).view(np.int64)

    def counts(self) -> NDArray[np.int64]:
        """Count how often each text is there."""
        total = np.zeros(len(self.texts), dtype=np.int64)
        for piece in pieces(len(self.codes)):
            # The first place counts what is missing.
            total += np.bincount(self.codes[piece] + 1, minlength=len(total) + 1)[1:]
        return total

    def example(self) -> str:
        """Return the most frequent text, or of the first list that is not empty its first three."""
        if self.starts is None:
            counts = self.counts()
            return str(self.texts[int(counts.argmax())]) if counts.any() else ""
        codes = self.take(np.flatnonzero(self.lengths)[:1]).codes
        return ", ".join(map(str, self.texts[codes[:3]])) + (", …" if len(codes) > 3 else "")


@dataclass(frozen=True, eq=False)
class Numbers:
    """One number for each row, NaN where there is none; or vectors ``[n, width]``, NaN in all of a row."""

    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def is_vector(self) -> bool:
        """True where each row has several numbers."""
        return self.values.ndim > 1

    def take(self, rows: Lines) -> Numbers:
        """Return those of some rows; row :data:`MISSING` has none."""
        return Numbers(_taken(self.values, rows, self.values.dtype.type(np.nan)))

    def missing(self) -> NDArray[np.bool_]:
        """Return where there is none."""
        return np.asarray(np.isnan(self.values[:, 0] if self.is_vector else self.values))

    def keys(self) -> NDArray[np.int64]:
        """Return numbers that are equal where the values are (of vectors but for a chance of 2⁻⁶⁴)."""
        # −0 is 0, and one NaN is as good as another.
        plain = np.where(np.isnan(self.values), self.values.dtype.type(np.nan), self.values + 0)
        if not self.is_vector:
            return plain.view(np.int64)
        bits = plain.astype(np.float32).view(np.uint32)
        position = splitmix64(np.arange(bits.shape[1], dtype=np.uint64))
        return np.asarray(splitmix64(bits + position).sum(axis=1, dtype=np.uint64)).view(np.int64)


Values = Texts | Numbers


def missing_share(values: Values) -> float:
    """Return the share of the rows without a value."""
    missing = sum(int(values.take(piece).missing().sum()) for piece in pieces(len(values)))
    return missing / len(values) if len(values) else 0.0


def _taken(array: NDArray[Any], rows: Lines, missing: Any) -> NDArray[Any]:
    if isinstance(rows, slice) or rows.dtype == np.bool_ or not (rows == MISSING).any():
        return lines_of(array, rows)
    gone = rows == MISSING
    return np.where(gone[:, None] if array.ndim > 1 else gone, missing, array[rows])


def values_of(feature: Feature, column: Any) -> Values:
    """Return a column as the values of a feature; a type that the kind cannot be made of is an error."""
    array = arrow_of(column, feature.source)
    if isinstance(feature, TimePart):
        return time_part(array, feature)
    if feature.kind in ("number", "vector"):
        return (_vectors if feature.kind == "vector" else _numbers)(array, feature.source)
    coded = coded_column(feature, array)
    return replace(coded, texts=as_numpy(coded.texts))


def values_in(table: Any, features: Iterable[Feature]) -> dict[str, Values]:
    """Return the values of those features, by name, whose columns a frame of narwhals has."""
    values = {}
    for feature in features:
        name = feature.source
        if name in table.columns:
            values[feature.name] = values_of(feature, table[name])
        elif feature.kind == "vector" and (group := numbered(name, table.columns)):
            values[feature.name] = values_of(feature, packed([table[each] for each in group], group))
    return values


def packed(columns: Sequence[Any], names: Sequence[str]) -> Any:
    """Return columns of numbers as one ``pyarrow.Array`` of vectors."""
    arrays = [_numbers(arrow_of(column, name), name) for column, name in zip(columns, names, strict=True)]
    rows = np.column_stack([array.values for array in arrays])
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


def coded_column(feature: Feature, array: Any) -> Texts:
    """Return a column of a category or a bag with codes of its own; the texts are Arrow's."""
    return _lists(array, feature.source) if feature.kind == "bag" else _texts(array, feature.source)


def as_column(values: Values) -> Any:
    """Return values as a ``pyarrow.Array``, from which :func:`values_of` makes them again."""
    if isinstance(values, Numbers):
        if not values.is_vector:
            return pa.array(values.values, from_pandas=True)
        numbers, mask = pa.array(np.ravel(values.values)), pa.array(values.missing())
        return pa.FixedSizeListArray.from_arrays(numbers, values.values.shape[1], mask=mask)
    names = pa.array(values.texts.tolist(), type=pa.large_string())
    texts = pa.DictionaryArray.from_arrays(pa.array(values.codes, mask=values.codes == MISSING), names)
    if values.starts is None:
        return texts
    return pa.LargeListArray.from_arrays(pa.array(values.starts), texts.dictionary_decode())


def time_part(array: Any, feature: TimePart) -> Texts:
    """Return the hour of the day (0 to 23) or the day of the week (0 is Monday)."""
    array = _as_times(array, feature.source)
    try:
        piece = pc.hour(array) if feature.part == "hour" else pc.day_of_week(array)
    except pa.ArrowInvalid:
        raise DataError(
            f"its times are of the zone '{array.type.tz}', which is not known",
            where=f"column '{feature.source}'",
            remedy="write them in UTC, or update the data of time zones (tzdata)",
        ) from None
    codes = piece.fill_null(MISSING).to_numpy(zero_copy_only=False).astype(np.int32)
    return Texts(codes, np.array([str(each) for each in range(24 if feature.part == "hour" else 7)], TEXT))


def is_text_of_times(array: Any) -> bool:
    """Return whether all texts of a column are times as ISO 8601 writes them, and there are some."""
    try:
        return len(array.drop_null().cast(pa.timestamp("us"))) > 0
    except pa.ArrowInvalid:
        return False


def _as_times(array: Any, name: str) -> Any:
    """Return times, dates and texts of these as timestamps."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if pa.types.is_timestamp(kind):
        return array
    if pa.types.is_date(kind):
        return array.cast(pa.timestamp("s"))
    problem = ", not times"
    if is_text(kind):
        try:
            return array.cast(pa.timestamp("us"))
        except pa.ArrowInvalid as error:
            problem = f" that is no time: {str(error).splitlines()[0]}"
    raise _unfit(name, kind, problem, "write it as a timestamp, or declare it as a Number or a Category")


def times_of(column: Any, name: str) -> NDArray[np.datetime64]:
    """Return a column of times, in UTC where it has a zone; NaT where there is none."""
    array = _as_times(arrow_of(column, name), name)
    if array.type.tz is not None:
        array = pc.cast(array, pa.timestamp(array.type.unit))
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype("datetime64[us]")


def _texts(array: Any, name: str, row_of: Callable[[int], int] = int) -> Texts:
    # Fewer values are written as text once they are distinguished.
    coded = _plain(array, name).dictionary_encode()
    if not is_utf8(coded.dictionary):
        require_utf8(array, name, row_of)
    codes = coded.indices.fill_null(MISSING).to_numpy(zero_copy_only=False).astype(np.int32)
    return Texts(codes, _written(coded.dictionary))


def _written(values: Any) -> Any:
    """Write values as text, each by itself, whatever others are there.

    Whole numbers are written by their digits, however they are held, other fractions as Arrow has them.
    """
    if not pa.types.is_floating(values.type):
        return values.cast(pa.large_string())
    whole = _is_whole(values)
    digits = pc.if_else(whole, values, pa.scalar(0.0, values.type)).cast(pa.int64())
    return pc.if_else(whole, digits.cast(pa.large_string()), values.cast(pa.large_string()))


def _is_whole(values: Any) -> Any:
    """Return which fractions are whole numbers that doubles hold exactly."""
    return pc.and_(pc.equal(pc.floor(values), values), pc.less(pc.abs(values), LARGEST_EXACT_FLOAT))


def _plain(array: Any, name: str) -> Any:
    """Return one value a row, which can be written as text; of fractions those that are finite."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        raise _unfit(
            name, kind, ", not text or numbers", "write it as text, or leave the column out (ignore)"
        )
    if pa.types.is_nested(kind) or is_binary(kind):
        raise _unfit(
            name, kind, ", not one value a row", "declare a list as a Bag, or leave the column out (ignore)"
        )
    if pa.types.is_floating(kind):
        # Arrow does not count with halves.
        array = array.cast(pa.float32()) if pa.types.is_float16(kind) else array
        array = pc.if_else(pc.is_finite(array), array, None)
        # pandas holds whole numbers with gaps as fractions. −0 is 0.
        all_whole = pc.all(_is_whole(array)).as_py() in (True, None)
        array = array.cast(pa.int64()) if all_whole else pc.add(array, pa.scalar(0.0, array.type))
    return array


def _unfit(name: str, kind: Any, problem: str, remedy: str) -> DataError:
    """Return the error for a column of a type that a feature cannot be made of."""
    # Arrow's offsets have two widths, which nobody chose.
    shown = str(kind).replace("large_", "")
    return DataError(f"holds {shown}{problem}", where=f"column '{name}'", remedy=remedy)


def is_binary(kind: Any) -> bool:
    """Return whether values are bytes, which no text can be made of."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(
        pa.types.is_binary(value)
        or pa.types.is_large_binary(value)
        or pa.types.is_binary_view(value)
        or pa.types.is_fixed_size_binary(value)
    )


def _numbers(array: Any, name: str) -> Numbers:
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
    try:
        # Whole numbers beyond 2**53 are numbers too, of as many digits as doubles have.
        values = array.cast(pa.float64(), safe=not pa.types.is_integer(array.type))
        values = values.to_numpy(zero_copy_only=False)
    except pa.ArrowException as error:
        problem = f" that is no number: {str(error).splitlines()[0]}"
        raise _unfit(name, kind, problem, "declare it as a Category, or leave it out (ignore)") from error
    return Numbers(np.where(np.isfinite(values), values, np.nan).astype(np.float64))


def _vectors(array: Any, name: str) -> Numbers:
    kind = array.type
    if not is_list(kind):
        remedy = "write it as lists of one length (Parquet), or declare it as a Number or a Category"
        raise _unfit(name, kind, ", not lists of numbers", remedy)
    lists = array.cast(pa.large_list(kind.value_type))
    there = lists.is_valid().to_numpy(zero_copy_only=False)
    lengths = np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    width = int(lengths[there].max(initial=getattr(kind, "list_size", 1)))
    wrong = there & (lengths != width)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"a vector has {lengths[row]} numbers where others have {width}",
            where=f"column '{name}', row {row}",
            remedy="write lists of one length, or declare the column as a Bag",
        )
    values = np.full((len(array), width), np.nan, dtype=np.float32)
    values[there] = _numbers(lists.flatten(), name).values.reshape(-1, width)
    values[np.isnan(values).any(axis=1)] = np.nan
    return Numbers(values)


def is_list(kind: Any) -> bool:
    """Return whether a type is one of lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def holds_vectors(array: Any) -> bool:
    """Return whether lists of fractions are vectors: of one length by their type, or by all their values."""
    kind = array.type
    if not is_list(kind) or not pa.types.is_floating(kind.value_type):
        return False
    if pa.types.is_fixed_size_list(kind):
        return True
    lists = array.cast(pa.large_list(kind.value_type))
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    known = lengths[lists.is_valid().to_numpy(zero_copy_only=False)]
    if not len(known) or known.min() < 2 or known.min() < known.max():
        return False
    return pc.all(_is_whole(lists.flatten().cast(pa.float64()))).as_py() is False


def _lists(array: Any, name: str) -> Texts:
    kind = array.type
    if not is_list(kind):
        raise _unfit(name, kind, ", not lists", "write it as lists (Parquet), or declare it as a Category")
    lists = array.cast(pa.large_list(kind.value_type))
    lengths = np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    if holds_vectors(array):
        remedy = f"declare it as a Vector, or leave it out with --ignore {name} (ignore=)"
        raise _unfit(name, kind, " of vectors of numbers, not of words", remedy)
    inside = _texts(lists.flatten(), name, lambda at: int(np.searchsorted(starts, at, side="right")) - 1)
    if (inside.codes == MISSING).any():
        # A missing value inside of a list is none.
        remaining = inside.codes != MISSING
        running = np.concatenate([[0], np.cumsum(remaining)])
        starts, inside = running[starts], replace(inside, codes=inside.codes[remaining])
    return replace(inside, starts=starts)
