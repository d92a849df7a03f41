"""Look-ups in a table of hashes as compiled loops, behind :mod:`unskew.data.id_table`.

A table is ``slots``, of which each is a place + 1, or 0 where it is free; it is searched from the slot of a
hash on. It is spread over memory: a slot, and the hash it stands for, is asked for before it is compared.
Imported only where needed: numba is slow to load.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.base.compiled import compiled

_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_THIRTY, _TWENTY_SEVEN, _THIRTY_ONE = np.uint64(30), np.uint64(27), np.uint64(31)
_THIRTY_TWO, _ZERO, _ONE = np.uint64(32), np.uint64(0), np.uint64(1)
_BITS = (np.arange(8) * 8).astype(np.uint64)


@compiled()
def mix(x: Any) -> Any:
    """SplitMix64's bijection of 64 bits, after its addition."""
    x = (x ^ (x >> _THIRTY)) * _MIX_1
    x = (x ^ (x >> _TWENTY_SEVEN)) * _MIX_2
    return x ^ (x >> _THIRTY_ONE)


@compiled()
def hash_numbers(numbers: Any, out: Any) -> None:
    """Hashes of whole numbers: no two numbers have the same."""
    for place in range(len(out)):
        out[place] = mix(np.uint64(numbers[place]) + _GOLDEN)


@compiled()
def hash_texts(offsets: Any, letters: Any, out: Any) -> None:
    """Hashes of texts, eight bytes at a time; two texts hardly ever have the same."""
    for place in range(len(out)):
        at, stop = offsets[place], offsets[place + 1]
        total = np.uint64(stop - at) * _GOLDEN
        while at + 8 <= stop:
            word = _ZERO
            for byte in range(8):
                word |= np.uint64(letters[at + byte]) << _BITS[byte]
            total = (total ^ word) * _MIX_1
            total ^= total >> _THIRTY_TWO
            at += 8
        word = _ZERO
        for byte in range(stop - at):
            word |= np.uint64(letters[at + byte]) << _BITS[byte]
        out[place] = mix((total ^ word) * _MIX_2 + _GOLDEN)


@compiled()
def find(wanted: Any, hashes: Any, slots: Any, found: Any) -> None:
    """Where each of the ``wanted`` hashes is among ``hashes``; −1 where it is not."""
    mask = np.uint64(len(slots) - 1)
    for place in range(len(wanted)):
        at = wanted[place] & mask
        found[place] = -1
        while slots[np.int64(at)] != 0:
            other = np.int64(slots[np.int64(at)]) - 1
            if hashes[other] == wanted[place]:
                found[place] = other
                break
            at = (at + _ONE) & mask


@compiled()
def add(wanted: Any, hashes: Any, count: Any, slots: Any, found: Any) -> Any:
    """The same, and those that are not there come after the first ``count``; how many there are then."""
    mask = np.uint64(len(slots) - 1)
    for place in range(len(wanted)):
        at = wanted[place] & mask
        while True:
            slot = slots[np.int64(at)]
            if slot == 0:
                hashes[count] = wanted[place]
                found[place] = count
                count += 1
                slots[np.int64(at)] = count
                break
            if hashes[np.int64(slot) - 1] == wanted[place]:
                found[place] = np.int64(slot) - 1
                break
            at = (at + _ONE) & mask
    return count


@compiled()
def are_same(offsets: Any, letters: Any, places: Any, other_offsets: Any, other_letters: Any) -> Any:
    """Whether each text is the one that the other texts have at its place; places of −1 are left out."""
    for place in range(len(places)):
        other = places[place]
        if other < 0:
            continue
        start, other_start = offsets[place], other_offsets[other]
        size = offsets[place + 1] - start
        if other_offsets[other + 1] - other_start != size:
            return False
        for byte in range(size):
            if letters[start + byte] != other_letters[other_start + byte]:
                return False
    return True
