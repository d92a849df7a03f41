"""Distinct ids and the place of each: what a look-up costs does not depend on how many there are.

Arrow makes its table of hashes anew in each look-up, from all ids. So it does here while they are few;
beyond, one table is kept, and grows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

FEW = 1 << 16
"""Ids from which Arrow makes a table in a millisecond or two."""

NOWHERE = -1
"""The place of an id that is not there."""

SLOTS_EACH = 2
"""Slots of the table for each id that it has room for; a power of two."""


class IdTable:
    """Distinct ids in the order in which they were added.

    Parameters
    ----------
    ids
        A ``pyarrow.Array`` of int64 or large_string, without nulls, each once; it may be empty.

    Examples
    --------
    >>> table = IdTable(pa.array([7, 3]))
    >>> table.add(pa.array([3, 9])), table.find(pa.array([9, 8, 7]))
    (array([1, 2]), array([ 2, -1,  0]))
    """

    def __init__(self, ids: Any) -> None:
        self._store: _Numbers | _Texts = _Texts() if pa.types.is_large_string(ids.type) else _Numbers()
        self._store.append(ids)
        # Slots, and hashes of the ids with room for more; at once, as several threads may look ids up.
        self._table: tuple[NDArray[np.int32], NDArray[np.uint64]] | None = None
        self._by_arrow = False

    def __len__(self) -> int:
        return self._store.size

    @property
    def ids(self) -> Any:
        """All of them, as they are now."""
        return self._store.array()

    def find(self, ids: Any) -> NDArray[np.int64]:
        """The place of each id; :data:`NOWHERE` where it is not there."""
        if len(self) > FEW and not self._by_arrow:
            from unskew.data import id_loops

            (slots, hashes), found = self._roomy(0), np.empty(len(ids), dtype=np.int64)
            id_loops.find(self._store.hashes_of(ids), hashes, slots, found)
            if self._store.agree(ids, found):
                return found
            self._by_arrow = True
        found_there = pc.fill_null(pc.index_in(ids, value_set=self.ids), NOWHERE)
        return np.array(found_there.to_numpy(zero_copy_only=False), dtype=np.int64)

    def add(self, ids: Any) -> NDArray[np.int64]:
        """The place of each of some distinct ids, where those that are new come last, in their order."""
        before = len(self)
        if before <= FEW or self._by_arrow:
            found = self.find(ids)
            new = found == NOWHERE
            found[new] = before + np.arange(int(new.sum()))
            self._store.append(ids.filter(pa.array(new)))
            return found
        from unskew.data import id_loops

        (slots, hashes), found = self._roomy(len(ids)), np.empty(len(ids), dtype=np.int64)
        id_loops.add(self._store.hashes_of(ids), hashes, before, slots, found)
        self._store.append(ids.filter(pa.array(found >= before)))
        if not self._store.agree(ids, found):
            # Two texts have one hash.
            self._by_arrow = True
            self._store.cut(before)
            return self.add(ids)
        return found

    def _roomy(self, more: int) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
        """The table of all ids, with room for more."""
        from unskew.data import id_loops

        size, old = len(self), self._table
        if old is not None and len(old[1]) >= size + more:
            return old
        hashed = old[1][:size] if old is not None else self._store.hashes_of(self.ids)
        room = 1 << (size + more - 1).bit_length()
        slots, hashes = np.zeros(SLOTS_EACH * room, dtype=np.int32), np.empty(room, dtype=np.uint64)
        id_loops.add(hashed, hashes, 0, slots, np.empty(size, dtype=np.int64))
        self._table = slots, hashes
        return self._table


class _Numbers:
    """Whole numbers, whose hashes are all different."""

    def __init__(self) -> None:
        self.size = 0
        self._numbers = np.empty(0, dtype=np.int64)

    def append(self, ids: Any) -> None:
        self._numbers = grown(self._numbers, self.size, ids.to_numpy())
        self.size += len(ids)

    def cut(self, size: int) -> None:
        self.size = size

    def array(self) -> Any:
        return pa.array(self._numbers[: self.size])

    def hashes_of(self, ids: Any) -> NDArray[np.uint64]:
        from unskew.data import id_loops

        hashes = np.empty(len(ids), dtype=np.uint64)
        id_loops.hash_numbers(ids.to_numpy(), hashes)
        return hashes

    def agree(self, ids: Any, places: NDArray[np.int64]) -> bool:
        """Whether ids are those at places that their hashes say."""
        return True


class _Texts:
    """Texts, one after the other."""

    def __init__(self) -> None:
        self.size = 0
        self._ends = np.zeros(1, dtype=np.int64)
        self._letters = np.empty(0, dtype=np.uint8)

    def append(self, ids: Any) -> None:
        offsets, letters = text_buffers(ids)
        last = int(self._ends[self.size])
        self._letters = grown(self._letters, last, letters[offsets[0] : offsets[-1]])
        self._ends = grown(self._ends, self.size + 1, last + offsets[1:] - offsets[0])
        self.size += len(ids)

    def cut(self, size: int) -> None:
        self.size = size

    def array(self) -> Any:
        buffers = [None, pa.py_buffer(self._ends), pa.py_buffer(self._letters)]
        return pa.Array.from_buffers(pa.large_string(), self.size, buffers)

    def hashes_of(self, ids: Any) -> NDArray[np.uint64]:
        from unskew.data import id_loops

        hashes = np.empty(len(ids), dtype=np.uint64)
        id_loops.hash_texts(*text_buffers(ids), hashes)
        return hashes

    def agree(self, ids: Any, places: NDArray[np.int64]) -> bool:
        """Whether ids are those at places that their hashes say."""
        from unskew.data import id_loops

        return bool(id_loops.are_same(*text_buffers(ids), places, self._ends, self._letters))


def text_buffers(text: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Of a ``pyarrow.Array`` of large_string: where each text begins and the last ends, and all letters."""
    _, offsets, data = text.buffers()
    if offsets is None:
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    first, last = text.offset, text.offset + len(text)
    letters = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return np.frombuffer(offsets, dtype=np.int64)[first : last + 1], letters


def grown(array: NDArray[Any], size: int, more: NDArray[Any]) -> NDArray[Any]:
    """An array of which ``size`` are taken, with more after them: copied where there is no room left."""
    if size + len(more) > len(array):
        wider = np.empty(max(size + len(more), 2 * len(array)), dtype=array.dtype)
        wider[:size] = array[:size]
        array = wider
    array[size : size + len(more)] = more
    return array
