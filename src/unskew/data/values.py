"""Values of features as they are in the data: texts, numbers, lists of texts. Codes of networks are later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.base.columns import LARGEST_EXACT_FLOAT, is_utf8, require_utf8, unknown_zone
from unskew.base.errors import DataError
from unskew.base.numbers import without_mask
from unskew.base.seeds import splitmix64
from unskew.data.distinct import TEXT
from unskew.data.kinds import Feature, TimePart

Rows = NDArray[np.integer[Any]] | NDArray[np.bool_]

MISSING = -1
"""The code of a text that is not there, and the number of a row that is not there."""


@dataclass(frozen=True, eq=False)
class Texts:
    """One text for each row: ``texts[codes]``."""

    codes: NDArray[np.int32]
    """:data:`MISSING` where there is none."""
    texts: NDArray[Any]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Rows) -> Texts:
        """Those of some rows; row :data:`MISSING` has none."""
        if rows.dtype == np.bool_:
            return Texts(self.codes[rows], self.texts)
        return Texts(np.where(rows == MISSING, MISSING, self.codes[rows]).astype(np.int32), self.texts)

    def missing(self) -> NDArray[np.bool_]:
        """Where there is none."""
        return np.asarray(self.codes == MISSING)

    def keys(self) -> NDArray[np.int64]:
        """Equal where the values are."""
        return self.codes.astype(np.int64)

    def missing_share(self) -> float:
        """Of the rows, those without."""
        return _share(self.missing())

    def counts(self) -> NDArray[np.int64]:
        """How often each text is there."""
        return np.bincount(self.codes[self.codes != MISSING], minlength=len(self.texts))

    def example(self) -> str:
        """The most frequent."""
        return str(self.texts[int(self.counts().argmax())]) if (self.codes != MISSING).any() else ""


@dataclass(frozen=True, eq=False)
class Numbers:
    """One number for each row, NaN where there is none."""

    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Rows) -> Numbers:
        """Those of some rows; row :data:`MISSING` has none."""
        taken = self.values[rows]
        return Numbers(taken if rows.dtype == np.bool_ else np.where(rows == MISSING, np.nan, taken))

    def missing(self) -> NDArray[np.bool_]:
        """Where there is none."""
        return np.isnan(self.values)

    def missing_share(self) -> float:
        """Of the rows, those without."""
        return _share(self.missing())

    def keys(self) -> NDArray[np.int64]:
        """Equal where the values are."""
        # −0 is 0, and one NaN is as good as another.
        plain = np.where(np.isnan(self.values), np.nan, self.values + 0.0)
        return plain.view(np.int64)

    def example(self) -> str:
        """The median."""
        known = self.values[~np.isnan(self.values)]
        return f"{np.median(known):.4g}" if len(known) else ""


@dataclass(frozen=True, eq=False)
class Bags:
    """A list of texts for each row: ``texts[codes[starts[row] : starts[row + 1]]]``; missing where empty."""

    starts: NDArray[np.int64]
    codes: NDArray[np.int32]
    texts: NDArray[Any]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Texts of each row."""
        return np.diff(self.starts)

    def take(self, rows: Rows) -> Bags:
        """Those of some rows; row :data:`MISSING` has none."""
        at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        lengths = np.where(at == MISSING, 0, self.lengths[at])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        place = np.repeat(self.starts[at] - starts[:-1], lengths) + np.arange(starts[-1])
        return Bags(starts, self.codes[place], self.texts)

    def missing(self) -> NDArray[np.bool_]:
        """Where there is none."""
        return np.asarray(self.lengths == 0)

    def missing_share(self) -> float:
        """Of the rows, those without."""
        return _share(self.missing())

    def longest(self) -> int:
        """Texts of the row with the most."""
        return int(self.lengths.max(initial=1))

    def keys(self) -> NDArray[np.int64]:
        """Equal where the lists are (but for the order, and a chance of 2⁻⁶⁴)."""
        mixed = splitmix64(np.arange(int(self.codes.max(initial=0)) + 1, dtype=np.uint64))
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed[self.codes])])
        return np.asarray(running[self.starts[1:]] - running[self.starts[:-1]]).view(np.int64)

    def counts(self) -> NDArray[np.int64]:
        """How often each text is there."""
        return np.bincount(self.codes, minlength=len(self.texts))

    def example(self) -> str:
        """The first list that is not empty, its first three values."""
        filled = np.flatnonzero(self.lengths)
        if not len(filled):
            return ""
        first = self.codes[self.starts[filled[0]] : self.starts[filled[0] + 1]]
        return ", ".join(map(str, self.texts[first[:3]])) + (", …" if len(first) > 3 else "")


Values = Texts | Numbers | Bags


@dataclass(frozen=True, eq=False)
class TextTally:
    """What was counted of texts, or of lists of texts, whose rows are not at hand: enough for an encoder."""

    texts: NDArray[Any]
    tally: NDArray[np.int64]
    missing_of: float
    """Share of the rows without one."""
    shown: str
    longest_of: int = 1

    def counts(self) -> NDArray[np.int64]:
        """How often each text is there."""
        return self.tally

    def missing_share(self) -> float:
        """Of the rows, those without."""
        return self.missing_of

    def longest(self) -> int:
        """Texts of the row with the most."""
        return self.longest_of

    def example(self) -> str:
        """One of them."""
        return self.shown


@dataclass(frozen=True, eq=False)
class NumberSample(Numbers):
    """Some of the numbers of rows that are not at hand."""

    missing_of: float
    """Share of all the rows without one."""

    def missing_share(self) -> float:
        """Of the rows, those without."""
        return self.missing_of


def _share(which: NDArray[np.bool_]) -> float:
    return float(which.mean()) if len(which) else 0.0


def joined(parts: Sequence[Values]) -> Values:
    """The rows of all parts, which are of one kind; texts have the same codes in all."""
    first = parts[0]
    if isinstance(first, Numbers):
        return Numbers(np.concatenate([each.values for each in parts if isinstance(each, Numbers)]))
    coded = [each for each in parts if not isinstance(each, Numbers)]
    codes, texts = np.concatenate([each.codes for each in coded]), coded[-1].texts
    if isinstance(first, Texts):
        return Texts(codes, texts)
    lengths = [each.lengths for each in coded if isinstance(each, Bags)]
    return Bags(np.concatenate([[0], np.cumsum(np.concatenate(lengths))]), codes, texts)


def united(parts: Sequence[Values]) -> Values:
    """The same where texts have codes of their own in each part: codes of one list of them all."""
    coded = [each for each in parts if not isinstance(each, Numbers)]
    if not coded:
        return joined(parts)
    texts = np.concatenate([each.texts for each in coded])
    one = pa.array(texts.astype(object), type=pa.large_string()).dictionary_encode()
    # The last place is where code −1 looks.
    ends = np.cumsum([len(each.texts) for each in coded])[:-1]
    places = [np.append(each, MISSING).astype(np.int32) for each in np.split(one.indices.to_numpy(), ends)]
    names = np.array(one.dictionary.to_pylist(), dtype=TEXT)
    return joined(
        [
            replace(each, codes=place[each.codes], texts=names)
            for each, place in zip(coded, places, strict=True)
        ]
    )


def letters_of(values: Values) -> int:
    """How many letters the texts have; numbers have none."""
    return 0 if isinstance(values, Numbers) else int(np.strings.str_len(values.texts).sum())


def no_values(feature: Feature) -> Values:
    """Of no rows."""
    if feature.kind == "number":
        return Numbers(np.empty(0))
    codes, texts = np.empty(0, dtype=np.int32), np.empty(0, dtype=TEXT)
    return Bags(np.zeros(1, dtype=np.int64), codes, texts) if feature.kind == "bag" else Texts(codes, texts)


def arrow_of(column: Any, name: str) -> Any:
    """A column of any library as one ``pyarrow.Array``."""
    if hasattr(column, "to_arrow"):
        column = column.to_arrow()
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.Array):
        return column
    values = without_mask(column)
    try:
        if isinstance(values, np.ndarray) and values.dtype.kind in "OT":
            values = values.astype(object)
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise DataError(
            f"its values are of several types ({str(error).splitlines()[0]})",
            where=f"column '{name}'",
            remedy="write the column with one type, or leave it out (ignore)",
        ) from error


def values_of(feature: Feature, column: Any) -> Values:
    """A column as the values of a feature; a type that the kind cannot be made of is an error."""
    array = arrow_of(column, feature.source)
    if isinstance(feature, TimePart):
        return time_part(array, feature)
    if feature.kind == "number":
        return _numbers(array, feature.source)
    if feature.kind == "bag":
        return _bags(array, feature.source)
    return _texts(array, feature.source)


def as_column(values: Values) -> Any:
    """Values as a ``pyarrow.Array``, from which :func:`values_of` makes them again."""
    if isinstance(values, Numbers):
        return pa.array(values.values, from_pandas=True)
    names = pa.array(values.texts.tolist(), type=pa.large_string())
    texts = pa.DictionaryArray.from_arrays(pa.array(values.codes, mask=values.codes == MISSING), names)
    if isinstance(values, Texts):
        return texts
    return pa.LargeListArray.from_arrays(pa.array(values.starts), texts.dictionary_decode())


def time_part(array: Any, feature: TimePart) -> Texts:
    """The hour of the day (0 to 23) or the day of the week (0 is Monday)."""
    import pyarrow.compute as pc

    if not (pa.types.is_timestamp(array.type) or pa.types.is_date(array.type)):
        raise DataError(
            f"holds {array.type}, not times",
            where=f"column '{feature.source}'",
            remedy="write it as a timestamp, or declare it as a Number or a Category",
        )
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("s"))
    try:
        part = pc.hour(array) if feature.part == "hour" else pc.day_of_week(array)
    except pa.ArrowInvalid:
        raise unknown_zone(array.type.tz, feature.source) from None
    codes = part.fill_null(MISSING).to_numpy(zero_copy_only=False).astype(np.int32)
    return Texts(codes, np.array([str(each) for each in range(24 if feature.part == "hour" else 7)], TEXT))


def times_of(column: Any, name: str) -> NDArray[np.datetime64]:
    """A column of times, in UTC where it has a zone; NaT where there is none."""
    import pyarrow.compute as pc

    array = arrow_of(column, name)
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        array = pc.cast(array, pa.timestamp(array.type.unit))
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype("datetime64[us]")


def _texts(array: Any, name: str, row_of: Callable[[int], int] = int) -> Texts:
    # Fewer values are written as text once they are distinguished.
    coded = _plain(array, name).dictionary_encode()
    if not is_utf8(coded.dictionary):
        require_utf8(array, name, row_of)
    codes = coded.indices.fill_null(MISSING).to_numpy(zero_copy_only=False).astype(np.int32)
    return Texts(codes, np.array(_written(coded.dictionary).to_pylist(), dtype=TEXT))


def _written(values: Any) -> Any:
    """Values as text, each by itself, whatever others are there: whole numbers by their digits, however they
    are held, and other fractions as Arrow writes them."""
    import pyarrow.compute as pc

    if not pa.types.is_floating(values.type):
        return values.cast(pa.large_string())
    whole = _is_whole(values)
    digits = pc.if_else(whole, values, pa.scalar(0.0, values.type)).cast(pa.int64())
    return pc.if_else(whole, digits.cast(pa.large_string()), values.cast(pa.large_string()))


def _is_whole(values: Any) -> Any:
    """Which fractions are whole numbers that doubles hold exactly."""
    import pyarrow.compute as pc

    return pc.and_(pc.equal(pc.floor(values), values), pc.less(pc.abs(values), LARGEST_EXACT_FLOAT))


def _plain(array: Any, name: str) -> Any:
    """One value a row, which can be written as text; of fractions those that are finite."""
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        raise DataError(
            f"holds {kind}, not text or numbers",
            where=f"column '{name}'",
            remedy="write it as text, or leave the column out (ignore)",
        )
    if pa.types.is_nested(kind) or is_binary(kind):
        raise DataError(
            f"holds {kind}, not one value a row",
            where=f"column '{name}'",
            remedy="declare a list as a Bag, or leave the column out (ignore)",
        )
    if pa.types.is_floating(kind):
        # Arrow does not count with halves.
        array = array.cast(pa.float32()) if pa.types.is_float16(kind) else array
        array = pc.if_else(pc.is_finite(array), array, None)
        # pandas holds whole numbers with gaps as fractions. −0 is 0.
        all_whole = pc.all(_is_whole(array)).as_py() in (True, None)
        array = array.cast(pa.int64()) if all_whole else pc.add(array, pa.scalar(0.0, array.type))
    return array


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
        raise DataError(
            f"holds {kind} that is no number: {str(error).splitlines()[0]}",
            where=f"column '{name}'",
            remedy="declare it as a Category, or leave it out (ignore)",
        ) from error
    return Numbers(np.where(np.isfinite(values), values, np.nan).astype(np.float64))


def _are_vectors(kind: Any, lists: Any, lengths: NDArray[np.int64]) -> bool:
    """Return whether lists of fractions are vectors: of one length by their type, or by all their values."""
    import pyarrow.compute as pc

    if pa.types.is_fixed_size_list(kind):
        return True
    known = lengths[lists.is_valid().to_numpy(zero_copy_only=False)]
    if not len(known) or known.min() < 2 or known.min() < known.max():
        return False
    return pc.all(_is_whole(lists.flatten().cast(pa.float64()))).as_py() is False


def _bags(array: Any, name: str) -> Bags:
    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise DataError(
            f"holds {kind}, not lists",
            where=f"column '{name}'",
            remedy="write it as lists (Parquet), or declare it as a Category",
        )
    lists = array.cast(pa.large_list(kind.value_type))
    lengths = np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    if pa.types.is_floating(kind.value_type) and _are_vectors(kind, lists, lengths):
        raise DataError(
            f"holds vectors of numbers ({kind}), not lists of words",
            where=f"column '{name}'",
            remedy=f"leave it out with --ignore {name} (ignore=), or split it into columns of numbers",
        )
    inside = _texts(lists.flatten(), name, lambda at: int(np.searchsorted(starts, at, side="right")) - 1)
    if (inside.codes == MISSING).any():
        # A missing value inside of a list is none.
        kept = inside.codes != MISSING
        running = np.concatenate([[0], np.cumsum(kept)])
        starts, inside = running[starts], inside.take(kept)
    return Bags(starts, inside.codes, inside.texts)
