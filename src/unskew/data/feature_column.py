"""A column that features are made of: what one pass over its rows learns, and its values in the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.columns import is_text
from unskew.base.errors import DataError
from unskew.data.arrays import empty_like, pieces
from unskew.data.described import Prepared, is_number, kinds_of_type
from unskew.data.distinct import TEXT, Counts, ValueIndex, as_numpy
from unskew.data.encoder import MOST_VALUES
from unskew.data.kinds import Bag, Coded, Feature, Number, TimePart, Vector
from unskew.data.values import (
    MISSING,
    Bags,
    Numbers,
    Texts,
    Values,
    Vectors,
    coded_column,
    holds_vectors,
    is_list,
    is_text_of_times,
    times_of,
    values_of,
)

GONE = "…"
"""What stands for all texts of a column that were too rare to be kept."""


class FeatureColumn:
    """A column of features: what is learned of it in the first pass, and its values in the second."""

    def __init__(self, name: str, kind: Any, declared: Sequence[Feature | None]) -> None:
        self.name = name
        kinds = kinds_of_type(kind, name)
        # Whole numbers may be codes or numbers, of which the values decide.
        self.is_open = declared[0] is None and len(kinds) == 2 and not isinstance(kinds[0], TimePart)
        self.may_be_time = declared[0] is None and is_text(kind)
        self.may_be_vector = declared[0] is None and is_list(kind)
        self.width = getattr(kind, "list_size", 0)
        self.features: tuple[Feature, ...] = ()
        for each in declared:
            self.features += kinds if each is None else (each,)
        self.counts = Counts(MOST_VALUES)
        self.known = 0
        self._places: ValueIndex | None = None

    @property
    def coded(self) -> Coded | None:
        """The feature whose texts get codes, if there is one."""
        return next((each for each in self.features if isinstance(each, Coded)), None)

    def learn(self, array: Any) -> None:
        """Count the values of some rows."""
        if self.may_be_time:
            self.may_be_time = False
            if is_text_of_times(array):
                self.features = TimePart.both(self.name)
        if self.may_be_vector:
            self.may_be_vector = False
            if holds_vectors(array):
                self.features = (Vector(self.name),)
        if isinstance(self.features[0] if self.features else None, Vector):
            vectors = values_of(self.features[0], array)
            assert isinstance(vectors, Vectors)
            self._require_width(vectors)
        if self.coded is None:
            return
        coded = coded_column(self.coded, array)
        known = coded.codes[coded.codes != MISSING]
        self.counts.add(coded.texts, np.bincount(known, minlength=len(coded.texts)))
        self.known += len(known)

    def _require_width(self, vectors: Vectors) -> None:
        width = vectors.values.shape[1]
        if vectors.missing().all():
            return
        if self.width and width != self.width:
            raise DataError(
                f"a vector has {width} numbers where others have {self.width}",
                where=f"column '{self.name}'",
                remedy="write lists of one length, or declare the column as a Bag",
            )
        self.width = width

    def decide(self) -> None:
        """Choose what whole numbers are."""
        if self.is_open:
            category, number = self.features
            many = is_number(len(self.counts), self.known, self.name)
            self.features = (number if many else category,)
        self.counts.cut()
        if self.coded is not None and len(self.counts):
            self._places = ValueIndex(self.counts.values)

    def row_bytes(self) -> int:
        """Return what a row takes in the arrays, about."""
        widths = [8 if isinstance(each, Number | Bag) else 4 for each in self.features]
        widths += [4 * self.width]
        return sum(widths) + (8 if any(isinstance(each, TimePart) for each in self.features) else 0)

    def arrays(self, array: Any) -> dict[str, NDArray[Any]]:
        """Return the arrays of some rows, by name."""
        found: dict[str, NDArray[Any]] = {}
        for feature in self.features:
            if isinstance(feature, Coded):
                coded = coded_column(feature, array)
                place = (
                    np.empty(0, dtype=np.int64) if self._places is None else self._places.find(coded.texts)
                )
                if (place == MISSING).any() and not self.counts.truncated:
                    raise changed(self.name)
                place[place == MISSING] = len(self.counts)
                found["codes"] = np.append(place, MISSING)[coded.codes].astype(np.int32)
                if coded.starts is not None:
                    found["lengths"] = np.diff(coded.starts)
                continue
            values = values_of(feature, array)
            if isinstance(values, Vectors):
                fits = values.values.shape[1] == self.width
                gone = np.full((len(values), max(self.width, 1)), np.nan, dtype=np.float32)
                found["numbers"] = values.values if fits else gone
            elif isinstance(values, Numbers):
                found["numbers"] = values.values
            elif isinstance(values, Texts):
                found[feature.name] = values.codes
        if any(isinstance(each, TimePart) for each in self.features):
            found["times"] = times_of(array, self.name)
        return found

    def prepared(self, arrays: Mapping[str, NDArray[Any]], empty: Any) -> Prepared:
        """Return the column from the arrays of all rows."""
        values: dict[str, Values] = {}
        for feature in self.features:
            if isinstance(feature, Coded):
                texts = as_numpy(self.counts.values) if len(self.counts) else np.empty(0, dtype=TEXT)
                if self.counts.truncated:
                    texts = np.append(texts, np.array([GONE], dtype=TEXT))
                if "lengths" in arrays:
                    starts = _starts_of(arrays["lengths"])
                    values[feature.name] = Bags(starts, arrays["codes"], texts)
                else:
                    values[feature.name] = Texts(arrays["codes"], texts)
            elif isinstance(feature, TimePart):
                known = values_of(feature, empty)
                assert isinstance(known, Texts)
                values[feature.name] = Texts(arrays[feature.name], known.texts)
            else:
                kind = Vectors if isinstance(feature, Vector) else Numbers
                values[feature.name] = kind(arrays["numbers"])
        return Prepared(self.features, values, arrays.get("times"))


def _starts_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where lists of these lengths begin, and where the last ends."""
    starts = empty_like(lengths, (len(lengths) + 1,), np.int64)
    starts[0] = 0
    for piece in pieces(len(lengths)):
        starts[piece.start + 1 : piece.stop + 1] = starts[piece.start] + np.cumsum(lengths[piece])
    return starts


def changed(name: str) -> DataError:
    """Return the error for a value that the first pass did not meet."""
    return DataError("has changed while it was read", where=f"column '{name}'", remedy="read it again")
