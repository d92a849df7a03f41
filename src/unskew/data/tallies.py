"""Counts of one pass over a stream, in bounded memory: ids, texts, numbers, and whose value each is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.data.distinct import TEXT, as_arrow
from unskew.data.encoder import MOST_VALUES
from unskew.data.id_table import IdTable, grown
from unskew.data.kinds import Feature, TimePart
from unskew.data.schema import ROLES_OF_IDS, Role
from unskew.data.values import (
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

TEXTS_AT_ONCE = 1 << 14
"""Texts that are copied from Arrow at a time."""

SPARE_LISTS = 2
"""Lists that are held for each user (item) before those that are no longer the last are dropped."""


class Distinct:
    """Distinct values in the order in which they came, and how often each did.

    Exact while there are at most twice ``most``. Beyond, Misra and Gries (1982): the count of the
    ``most + 1``-th is taken from all, and those without a rest are forgotten, so that a value that is kept
    was there at least as often as it says, and one that was there more than rows / ``most`` times is kept.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.truncated = self.repeats = False
        self._table: IdTable | None = None

    def __len__(self) -> int:
        return 0 if self._table is None else len(self._table)

    @property
    def values(self) -> Any:
        """All of them, as a ``pyarrow.Array``; None before the first."""
        return None if self._table is None else self._table.ids

    def add(self, values: Any, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places of distinct values (a ``pyarrow.Array``), each of which came so many times more."""
        if self._table is None:
            self._table = IdTable(values.slice(0, 0))
        place = self._table.add(values)
        if len(self._table) > len(self.counts):
            new = np.zeros(len(self._table) - len(self.counts), dtype=np.int64)
            self.counts = np.concatenate([self.counts, new])
        self.counts[place] += counts
        # Counts that are cut forget it.
        self.repeats = self.repeats or bool((self.counts[place] > 1).any())
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
        self._table = IdTable(self.values.take(pa.array(kept)))
        self.counts = np.maximum(self.counts[kept] - least, 1)
        return kept


class Side:
    """Whether a feature never changes within a user (or within an item), and the last value of each.

    What some rows cost does not depend on the number of users. A number, and the code of a text, is its own
    key (:meth:`~unskew.data.values.Numbers.keys`); lists lie one after the other as they came.
    """

    def __init__(self, feature: Feature) -> None:
        self.constant = True
        self._size = 0
        self._keys = np.empty(0, dtype=np.int64)
        self._kind = feature.kind
        self._lists = [no_values(feature)]
        self._place_of_list = np.empty(0, dtype=np.int64)

    def add(self, at: Occurrences, values: Values) -> None:
        """Some rows more."""
        keys = values.keys()
        self.constant = (
            self.constant
            and bool((keys == keys[at.first_of_row]).all())
            and bool((keys[at.known] == self._keys[at.code[at.known]]).all())
        )
        before, self._size = self._size, at.size
        self._keys = grown(self._keys, before, np.zeros(at.size - before, dtype=np.int64))
        last, places = at.last, at.code[at.last]
        if self._kind == "bag":
            self._place_of_list = grown(self._place_of_list, before, np.full(at.size - before, MISSING))
            moved = (self._place_of_list[places] == MISSING) | (self._keys[places] != keys[last])
            self._append(values.take(last[moved]), places[moved])
        self._keys[places] = keys[last]

    def take(self, places: NDArray[np.int64]) -> Values:
        """The last values of some users (items); :data:`MISSING` has none."""
        if self._kind == "bag":
            at = np.append(self._place_of_list[: self._size], MISSING)[places]
            return joined(self._lists).take(at)
        keys = self._keys[: self._size]
        if self._kind == "number":
            return Numbers(keys.view(np.float64)).take(places)
        return Texts(keys.astype(np.int32), np.empty(0, dtype=TEXT)).take(places)

    def keep(self, kept: NDArray[np.int64]) -> None:
        """Some of the users (items) alone."""
        self._size = len(kept)
        self._keys = self._keys[kept]
        if self._kind == "bag":
            self._place_of_list = self._place_of_list[kept]

    def recode(self, code_of: NDArray[np.int32]) -> None:
        """Other codes of the texts; the last is that of :data:`MISSING`."""
        if self._kind == "category":
            self._keys = code_of[self._keys[: self._size]].astype(np.int64)
        if self._kind == "bag":
            lists = self.take(np.arange(self._size))
            assert isinstance(lists, Bags)
            self._lists = [_with_codes(lists, code_of[lists.codes])]
            self._place_of_list = np.arange(self._size)
            self._keys = self._lists[0].keys()

    def _append(self, lists: Values, places: NDArray[np.int64]) -> None:
        first = sum(map(len, self._lists))
        self._place_of_list[places] = first + np.arange(len(places))
        self._lists.append(lists)
        if first + len(places) > SPARE_LISTS * self._size + SAMPLED_NUMBERS:
            # Of users whose list changes all the time, the last alone.
            self._lists = [self.take(np.arange(self._size))]
            self._place_of_list = np.arange(self._size)


class Occurrences:
    """Where the users (or items) of some rows are among those that are known by now.

    Attributes
    ----------
    code
        By row: the place of its user (or item).
    size
        How many are known by now.
    first_of_row
        By row: the first row of the same user (or item).
    last
        Of each of them, the last row.
    known
        Rows of those who were there before.
    """

    def __init__(self, code: NDArray[np.int64], before: int, size: int) -> None:
        self.code, self.size = code, size
        rows = np.arange(len(code))
        # Only places that are written are read: however many users there are, these rows alone cost.
        row_of = np.empty(size, dtype=np.int64)
        row_of[code[::-1]] = rows[::-1]
        # Every feature asks for these.
        self.first_of_row = row_of[code]
        row_of[code] = rows
        self.last = np.flatnonzero(row_of[code] == rows)
        self.known = np.flatnonzero(code < before)


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
        values = self.sides[role].take(places)
        return values if isinstance(values, Numbers) else replace(values, texts=self.texts)

    def learned(self) -> Values | TextTally:
        """What an encoder of the rows' values is fitted on."""
        share = self.missing / self.rows
        if self.feature.kind == "number":
            return NumberSample(np.concatenate(self.numbers), share)
        texts, example = self.texts, self.example
        if self.feature.kind == "category" and self.distinct.counts.any():
            example = str(texts[int(self.distinct.counts.argmax())])
        return TextTally(texts, self.distinct.counts, share, example, self.longest)

    @property
    def texts(self) -> NDArray[Any]:
        """The distinct texts."""
        values = self.distinct.values
        texts = np.empty(len(self.distinct), dtype=TEXT)
        # As objects of Python, which take as much again, a few at a time.
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            texts[start : start + TEXTS_AT_ONCE] = values.slice(start, TEXTS_AT_ONCE).to_pylist()
        return texts

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
        before = len(self.distinct)
        kept = self.distinct.shrunk()
        if kept is None or isinstance(self.feature, TimePart):
            return
        # Values of users and items move with the texts; those that are gone have a text of their own.
        gone = self.distinct.add(as_arrow(np.array([GONE], dtype=TEXT)), np.zeros(1, dtype=np.int64))[0]
        moved = np.full(before + 1, gone, dtype=np.int32)
        moved[kept] = np.arange(len(kept))
        moved[-1] = MISSING
        for side in self.sides.values():
            side.recode(moved)


def _with_codes(values: Texts | Bags, codes: NDArray[np.int32]) -> Texts | Bags:
    return replace(values, codes=codes, texts=np.empty(0, dtype=TEXT))
