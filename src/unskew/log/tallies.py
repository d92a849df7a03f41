"""What one pass over a stream counts, in bounded memory: ids, texts, numbers, and whose value each is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.io.vocabulary import TEXT, as_arrow
from unskew.log.encoder import MOST_VALUES
from unskew.log.kinds import Feature, TimePart
from unskew.log.schema import ROLES_OF_IDS, Role
from unskew.log.values import (
    MISSING,
    Bags,
    Numbers,
    NumberSample,
    Texts,
    TextTally,
    Values,
    joined,
    no_values,
    values_of,
)

SAMPLED_NUMBERS = 1 << 20
"""Rows whose numbers are kept for means, deviations and quantiles: all of a shorter log. A quantile of so
many is off by a tenth of a percentage point of rank at most."""

GONE = "…"
"""What stands for a text that was too rare to be kept."""


class Distinct:
    """Distinct values in the order in which they came, and how often each did.

    Exact while there are at most twice ``most``. Beyond, Misra and Gries (1982): the count of the
    ``most + 1``-th is taken from all, and those without a rest are forgotten, so that a value that is kept
    was there at least as often as it says, and one that was there more than rows / ``most`` times is kept.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.values: Any = None
        self.counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.truncated = False

    def __len__(self) -> int:
        return len(self.counts)

    def add(self, values: Any, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places of distinct values (a ``pyarrow.Array``), each of which came so many times more."""
        if self.values is None:
            self.values = values.slice(0, 0)
        found = pc.fill_null(pc.index_in(values, value_set=self.values), MISSING)
        place = np.array(found.to_numpy(zero_copy_only=False), dtype=np.int64)
        new = place == MISSING
        place[new] = len(self) + np.arange(new.sum())
        if new.any():
            self.values = pa.concat_arrays([self.values, values.filter(pa.array(new))])
            self.counts = np.concatenate([self.counts, np.zeros(int(new.sum()), dtype=np.int64)])
        self.counts[place] += counts
        return place

    def add_rows(self, column: Any) -> NDArray[np.int64]:
        """Places of the values of rows, without nulls."""
        coded = column.dictionary_encode()
        rows = coded.indices.to_numpy()
        place = self.add(coded.dictionary, np.bincount(rows, minlength=len(coded.dictionary)))
        return np.asarray(place[rows])

    def shrunk(self) -> NDArray[np.int64] | None:
        """Forget rare values if there are too many: the old places of those that stay."""
        return self.cut() if len(self) > 2 * self.most else None

    def cut(self) -> NDArray[np.int64] | None:
        """The same, down to ``most``."""
        if len(self) <= self.most:
            return None
        self.truncated = True
        least = np.partition(self.counts, len(self) - self.most - 1)[len(self) - self.most - 1]
        kept = np.flatnonzero(self.counts > least)
        if len(kept) < self.most:
            # Of those with the same count the first stay; what is subtracted keeps the order of the others.
            equal = np.flatnonzero(self.counts == least)[: self.most - len(kept)]
            kept = np.sort(np.concatenate([kept, equal]))
        self.values = self.values.take(pa.array(kept))
        self.counts = np.maximum(self.counts[kept] - least, 1)
        return kept


class Side:
    """Whether a feature never changes within a user (or within an item), and the last value of each."""

    def __init__(self, feature: Feature) -> None:
        self.constant = True
        self.values: Values = no_values(feature)

    def add(self, at: Occurrences, values: Values) -> None:
        """Some rows more."""
        keys = values.keys()
        self.constant = self.constant and bool((keys == keys[at.first_of_row]).all())
        if not len(self.values):
            self.values = values.take(at.last)
            return
        grown = self.values.take(at.grown)
        self.constant = self.constant and bool((keys[at.known] == grown.keys()[at.code_of_known]).all())
        self.values = joined(grown, values).take(
            np.where(at.last == MISSING, np.arange(at.size), at.size + at.last)
        )

    def keep(self, kept: NDArray[np.int64]) -> None:
        """Some of the users (items) alone."""
        self.values = self.values.take(kept)


class Occurrences:
    """Where the users (or items) of some rows are among those that are known by now.

    Attributes
    ----------
    first_of_row
        By row: the first row of the same user (or item).
    last
        By place: the last of the rows; -1 where there is none.
    known, code_of_known
        Rows of those who were there before, and their places.
    grown
        By place: where each was before; -1 for the new ones.
    """

    def __init__(self, code: NDArray[np.int64], before: int, size: int) -> None:
        self.code, self.size = code, size
        rows = np.arange(len(code))
        first = np.full(size, MISSING, dtype=np.int64)
        first[code[::-1]] = rows[::-1]
        # Every feature asks for these.
        self.first_of_row = first[code]
        self.last = np.full(size, MISSING, dtype=np.int64)
        self.last[code] = rows
        self.known = np.flatnonzero(code < before)
        self.code_of_known = code[self.known]
        self.grown = np.where(np.arange(size) < before, np.arange(size), MISSING)


class FeatureTally:
    """What is learned of one column as one kind of feature.

    Parameters
    ----------
    feature
        Its role may be open.
    """

    def __init__(self, feature: Feature) -> None:
        self.feature = feature
        self.is_open = True
        self.rows = self.missing = 0
        self.longest = 1
        self.example = ""
        self.distinct = Distinct(MOST_VALUES)
        self.numbers: list[NDArray[np.float64]] = []
        roles = ROLES_OF_IDS if feature.role is None else [r for r in ROLES_OF_IDS if r == feature.role]
        self.sides = {role: Side(feature) for role in roles}

    def count(self, array: Any, sampled: NDArray[np.bool_] | None) -> Values:
        """Some rows more: their values, for :meth:`place`.

        Parameters
        ----------
        sampled
            Which of them are kept for quantiles; None for all.
        """
        values = values_of(self.feature, array)
        self.rows += len(values)
        self.missing += int(values.missing().sum())
        if isinstance(values, Numbers):
            self.numbers.append(values.values if sampled is None else values.values[sampled])
            return values
        return self._counted(values)

    def place(self, values: Values, sides: Mapping[str, Occurrences]) -> None:
        """Whose the values of these rows are."""
        for role, side in list(self.sides.items()):
            side.add(sides[role], values)
            if not (side.constant or self.feature.role):
                del self.sides[role]
        self._forget_rare()

    def close(self) -> None:
        """Count no more: what was counted so far tells that it is another kind of feature."""
        self.is_open = False
        self.sides = {}

    def role(self, repeats: Mapping[str, bool]) -> Role:
        """Whose value it is; ``repeats`` says whether any user, and any item, is there twice."""
        if self.feature.role is not None:
            return self.feature.role
        for role, side in self.sides.items():
            if repeats[role] and side.constant:
                return role  # type: ignore[return-value]
        return "row"

    def of_side(self, role: Role, places: NDArray[np.int64]) -> Values:
        """The last value of each user (item), in an order of them."""
        values = self.sides[role].values.take(places)
        return values if isinstance(values, Numbers) else _with_texts(values, self.texts)

    def learned(self) -> Values | TextTally:
        """What an encoder of the rows' values is fitted on."""
        share = self.missing / self.rows
        if self.feature.kind == "number":
            return NumberSample(np.concatenate(self.numbers), share)
        example = self.example
        if self.feature.kind == "category" and self.distinct.counts.any():
            example = str(self.texts[int(self.distinct.counts.argmax())])
        return TextTally(self.texts, self.distinct.counts, share, example, self.longest)

    @property
    def texts(self) -> NDArray[Any]:
        """The distinct texts."""
        values = self.distinct.values
        return np.array([] if values is None else values.to_pylist(), dtype=TEXT)

    def keep(self, role: str, kept: NDArray[np.int64]) -> None:
        """Some of the users (items) alone."""
        if role in self.sides:
            self.sides[role].keep(kept)

    def _counted(self, values: Texts | Bags) -> Texts | Bags:
        """The same with the codes of all texts so far."""
        if isinstance(values, Bags):
            self.longest = max(self.longest, values.longest())
            self.example = self.example or values.example()
        place = self.distinct.add(as_arrow(values.texts), values.counts())
        codes = np.append(place, MISSING)[values.codes].astype(np.int32)
        return _with_codes(values, codes)

    def _forget_rare(self) -> None:
        kept = self.distinct.shrunk()
        if kept is None or isinstance(self.feature, TimePart):
            return
        # Values of users and items move with the texts; those that are gone have a text of their own.
        gone = self.distinct.add(as_arrow(np.array([GONE], dtype=TEXT)), np.zeros(1, dtype=np.int64))[0]
        for side in self.sides.values():
            if not isinstance(side.values, Numbers):
                size = int(max(kept.max(initial=0), side.values.codes.max(initial=0))) + 1
                moved = np.full(size + 1, gone, dtype=np.int32)
                moved[kept] = np.arange(len(kept))
                moved[-1] = MISSING
                side.values = _with_codes(side.values, moved[side.values.codes])


def _with_codes(values: Texts | Bags, codes: NDArray[np.int32]) -> Texts | Bags:
    nothing = np.empty(0, dtype=TEXT)
    return Texts(codes, nothing) if isinstance(values, Texts) else Bags(values.starts, codes, nothing)


def _with_texts(values: Texts | Bags, texts: NDArray[Any]) -> Texts | Bags:
    if isinstance(values, Texts):
        return Texts(values.codes, texts)
    return Bags(values.starts, values.codes, texts)
