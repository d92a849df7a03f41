"""Distinct values: where each is (look-ups by hash), and how often each came (counts in bounded memory)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.base.seeds import splitmix64

TEXT = np.dtypes.StringDType()
"""How text is held: each id in as many bytes as it has. NumPy's older ``U`` gives all ids the width of the
longest, and takes "a" and "a\\0" for one."""

NOWHERE = -1
"""The place of a value that is not there."""

AT_ONCE = 1 << 16
"""Texts that are hashed, or copied from Arrow, at a time."""

MOST_PAIRS = 1 << 23
"""Pairs of ids whose hashes are held at once: 64 MB."""

BYTES_AT_ONCE = 1 << 20
"""Bytes of text that are hashed at once."""


def hashes_of(texts: Any) -> NDArray[np.int64]:
    """Return mix(Σ_j (c_j + 1)·K_j) of the bytes c of each text (UTF-8), K_j a number for each place j.

    Parameters
    ----------
    texts
        A ``pyarrow.Array`` of large_string, without nulls.
    """
    parts = [_hashes(texts.slice(start, AT_ONCE)) for start in range(0, len(texts), AT_ONCE)]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _hashes(texts: Any) -> NDArray[np.int64]:
    offset, letters = text_buffers(texts)
    total = np.zeros(len(texts), dtype=np.uint64)
    for start in range(int(offset[0]), int(offset[-1]), BYTES_AT_ONCE):
        stop = min(start + BYTES_AT_ONCE, int(offset[-1]))
        edges = np.clip(offset, start, stop)
        position = np.arange(start, stop) - np.repeat(offset[:-1], np.diff(edges))
        terms = (letters[start:stop] + np.uint64(1)) * splitmix64(position.astype(np.uint64))
        # Differences of running sums, which may go past 2⁶⁴: some texts are empty, or in another block.
        running = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(terms, dtype=np.uint64)])
        total += running[edges[1:] - start] - running[edges[:-1] - start]
    return splitmix64(total).view(np.int64)


def text_buffers(text: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where each text of a ``pyarrow.Array`` begins and the last ends, and all letters."""
    _, offsets, data = text.buffers()
    if offsets is None:
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    first, last = text.offset, text.offset + len(text)
    letters = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return np.frombuffer(offsets, dtype=np.int64)[first : last + 1], letters


def as_arrow(ids: NDArray[Any]) -> Any:
    """Return ids as a ``pyarrow.Array`` of whole numbers or text, which may be of more than 2 GB in all."""
    if ids.dtype != TEXT:
        return pa.array(ids)
    starts = range(0, max(len(ids), 1), AT_ONCE)
    texts = (ids[start : start + AT_ONCE].astype(object) for start in starts)
    return pa.concat_arrays([pa.array(some, type=pa.large_string()) for some in texts])


def as_numpy(ids: Any) -> NDArray[Any]:
    """Return a ``pyarrow.Array`` of whole numbers or large_string as NumPy has them."""
    if not pa.types.is_large_string(ids.type):
        return np.asarray(ids.to_numpy())
    texts = np.empty(len(ids), dtype=TEXT)
    # As objects of Python, which take as much again, a few at a time.
    for start in range(0, len(texts), AT_ONCE):
        texts[start : start + AT_ONCE] = ids.slice(start, AT_ONCE).to_pylist()
    return texts


class ValueIndex:
    """Where distinct values are: the cost of a look-up hardly depends on how many there are.

    Parameters
    ----------
    values
        A ``pyarrow.Array`` of int64 or large_string, without nulls, each once.

    Examples
    --------
    >>> ValueIndex(pa.array([7, 3])).find(pa.array([3, 8]))
    array([ 1, -1])
    """

    def __init__(self, values: Any) -> None:
        self.values = values
        keys = _keys(values)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        self._collide = bool((self._keys[1:] == self._keys[:-1]).any())

    def find(self, wanted: Any) -> NDArray[np.int64]:
        """Return the place of each value; :data:`NOWHERE` where it is not there."""
        if self._collide or not len(self.values):
            result = pc.fill_null(pc.index_in(wanted, value_set=self.values), NOWHERE)
            return np.array(result.to_numpy(zero_copy_only=False), dtype=np.int64)
        position, known = _search(self._keys, _keys(wanted))
        position = np.where(known, self._order[position], NOWHERE)
        if pa.types.is_large_string(wanted.type):
            # Another text may have the same hash.
            same = pc.equal(self.values.take(pa.array(np.maximum(position, 0))), wanted)
            position[~same.to_numpy(zero_copy_only=False)] = NOWHERE
        return position


class Counts:
    """Distinct values in the order in which they came, and how often each did, in bounded memory.

    Exact while there are at most twice ``most``. Beyond, the rarest are forgotten down to ``most`` each time,
    so that a value is counted from its last coming back on.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.truncated = False
        self.counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._parts: list[Any] = []
        self._keys = np.empty(0, dtype=np.int64)
        self._place = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def values(self) -> Any:
        """All of them, as a ``pyarrow.Array``; None before the first."""
        if len(self._parts) > 1:
            self._parts = [pa.concat_arrays(self._parts)]
        return self._parts[0] if self._parts else None

    def add(self, values: Any, counts: NDArray[np.int64]) -> None:
        """Count distinct values (a ``pyarrow.Array``), each of which came so many times more."""
        keys = _keys(values)
        at, known = _search(self._keys, keys)
        self.counts[self._place[at[known]]] += counts[known]
        new = np.flatnonzero(~known)
        if len(new) or not self._parts:
            # Where two of them have one hash, the first stands for both.
            _, first = np.unique(keys[new], return_index=True)
            new = new[np.sort(first)]
            self._parts.append(values.take(pa.array(new)))
            order = np.argsort(keys[new])
            at = np.searchsorted(self._keys, keys[new][order])
            self._keys = np.insert(self._keys, at, keys[new][order])
            self._place = np.insert(self._place, at, len(self.counts) + order)
            self.counts = np.concatenate([self.counts, counts[new]])
        if len(self) > 2 * self.most:
            self.cut()

    def add_rows(self, column: Any) -> None:
        """Count the values of rows, without nulls."""
        coded = column.dictionary_encode()
        self.add(coded.dictionary, np.bincount(coded.indices.to_numpy(), minlength=len(coded.dictionary)))

    def cut(self) -> None:
        """Forget the rarest beyond ``most``; of those with the same count the first stay."""
        if len(self) <= self.most:
            return
        self.truncated = True
        remaining = np.sort(np.argsort(-self.counts, kind="stable")[: self.most])
        self._parts, self.counts = [self.values.take(pa.array(remaining))], self.counts[remaining]
        keys = _keys(self._parts[0])
        self._place = np.argsort(keys)
        self._keys = keys[self._place]


class Pairs:
    """The pairs of two ids that came, in bounded memory: whether one of them comes again.

    Exact while there are at most :data:`MOST_PAIRS`. Beyond, only pairs with a hash in a smaller and smaller
    share of all are looked at, so that a repetition goes unseen only where very few pairs repeat.

    Examples
    --------
    >>> pairs = Pairs()
    >>> pairs.repeat_with(pa.array([1, 1]), pa.array([1, 2])), pairs.repeat_with(pa.array([1]), pa.array([2]))
    (False, True)
    """

    def __init__(self) -> None:
        self._keys = np.empty(0, dtype=np.uint64)
        self._ignored = np.uint64(0)
        """Bits that are 0 in the hash of all pairs that are looked at."""

    def repeat_with(self, first: Any, second: Any) -> bool:
        """Return whether a pair comes again with these rows of ids (int64 or large_string, no nulls)."""
        one, other = (_keys(ids).astype(np.int64, copy=False).view(np.uint64) for ids in (first, second))
        mixed = splitmix64(splitmix64(one) + splitmix64(~other))
        mixed = mixed[(mixed & self._ignored) == 0]
        # Two sorted runs, which a stable sort merges.
        keys = np.sort(np.concatenate([self._keys, np.sort(mixed)]), kind="stable")
        if (keys[1:] == keys[:-1]).any():
            return True
        while len(keys) > MOST_PAIRS:
            self._ignored = self._ignored << np.uint64(1) | np.uint64(1)
            keys = keys[(keys & self._ignored) == 0]
        self._keys = keys
        return False


def _keys(values: Any) -> NDArray[np.int64]:
    """Return a number for each value, different for all whole numbers and hardly ever equal for texts."""
    return hashes_of(values) if pa.types.is_large_string(values.type) else np.asarray(values.to_numpy())


def _search(
    keys: NDArray[np.int64], wanted: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return where numbers are among sorted ones, and whether they are there."""
    # In ascending order look-ups stay near each other in memory.
    order = np.argsort(wanted)
    at = np.empty(len(wanted), dtype=np.int64)
    at[order] = np.searchsorted(keys, wanted[order])
    if not len(keys):
        return at, np.zeros(len(wanted), dtype=bool)
    np.minimum(at, len(keys) - 1, out=at)
    return at, keys[at] == wanted
