"""Groups of rows that one value of a feature, or a range of its numbers, singles out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.data.values import MISSING, Numbers, Texts, Values

LEAST_COVER = 0.01
"""One value of several, or a range of numbers, must hold this share of all rows with the outcome: a small
segment in which everybody converts is none of a leak's making."""
MOST_BESIDE = 0.5
"""The rows beside a range have the outcome in at most half of the cases. The score of a good model rises
smoothly, so that the rows beside its highest ones have it nearly as often; what is written after the outcome
begins with a jump."""
BESIDE = 4
"""Looked at beside a range are a quarter as many rows as it holds, rounded up to whole values."""

Mask = NDArray[np.bool_]
Members = Callable[[], Mask]
Places = NDArray[np.int64]


class ValueGroup(NamedTuple):
    """Rows that a value singles out.

    Attributes
    ----------
    words
        Where these rows are, such as ``"it is '1'"``.
    rows, hits
        How many there are, and how many of them have the outcome.
    members
        Returns which rows they are.
    """

    words: str
    rows: int
    hits: int
    members: Members

    @property
    def share(self) -> float:
        """Return the share of the rows that have the outcome."""
        return self.hits / self.rows


def groups_of(values: Values, positive: Mask, share: float) -> list[ValueGroup]:
    """Return the groups in which at least a share of the rows have the outcome, the largest one first."""
    numbers = _as_numbers(values)
    if numbers is not None:
        groups = _of_numbers(numbers, positive, share)
    else:
        assert isinstance(values, Texts)
        groups = _of_texts(values, positive) if values.starts is None else _of_bags(values, positive)
    found = [group for group in groups if group.rows and group.share >= share]
    return sorted(found, key=lambda group: -group.hits)


def _as_numbers(values: Values) -> NDArray[np.float64] | None:
    """Return numbers, also those of a category whose values are all numbers: counts, ranks, codes."""
    if isinstance(values, Numbers):
        return values.values
    if values.starts is not None:
        return None
    try:
        known = values.texts.astype(np.float64)
    except ValueError:
        return None
    return np.append(known, np.nan)[values.codes] if np.isfinite(known).all() else None


def _of_texts(values: Texts, positive: Mask) -> Iterator[ValueGroup]:
    rows, hits = _counts(values.codes - MISSING, positive, len(values.texts) + 1)

    def named(place: int, other: bool) -> str:
        if place == 0:
            return "it is filled in" if other else "it is missing"
        return f"it is {'not ' if other else ''}'{values.texts[place + MISSING]}'"

    def where(place: int, other: bool) -> Members:
        return lambda: (values.codes - MISSING == place) != other

    least = LEAST_COVER * positive.sum()
    for place in np.flatnonzero(hits >= max(least, 1.0)).tolist():
        yield ValueGroup(named(place, False), int(rows[place]), int(hits[place]), where(place, False))
    usual = int(rows.argmax())
    others = len(positive) - int(rows[usual]), int(positive.sum()) - int(hits[usual])
    yield ValueGroup(named(usual, True), *others, where(usual, True))


def _of_bags(values: Texts, positive: Mask) -> Iterator[ValueGroup]:
    empty = values.missing()
    yield ValueGroup("it is empty", int(empty.sum()), int((empty & positive).sum()), lambda: empty)
    yield ValueGroup("it is not empty", int((~empty).sum()), int((~empty & positive).sum()), lambda: ~empty)
    row = np.repeat(np.arange(len(values)), values.lengths)
    # A value that a row holds twice counts once.
    row, code = np.divmod(
        np.unique(row * max(len(values.texts), 1) + values.codes), max(len(values.texts), 1)
    )
    rows, hits = _counts(code, positive[row], len(values.texts))

    def where(place: int) -> Members:
        return lambda: np.isin(np.arange(len(values)), row[code == place])

    for place in np.flatnonzero(hits >= max(LEAST_COVER * positive.sum(), 1.0)).tolist():
        yield ValueGroup(
            f"it holds '{values.texts[place]}'", int(rows[place]), int(hits[place]), where(place)
        )


def _of_numbers(x: NDArray[np.float64], positive: Mask, share: float) -> Iterator[ValueGroup]:
    missing = np.isnan(x)
    order = np.flatnonzero(~missing)
    order = order[np.argsort(x[order], kind="stable")]
    hits = np.concatenate([[0], np.cumsum(positive[order])])
    absent, lost = int(missing.sum()), int(positive.sum() - hits[-1])
    yield ValueGroup("it is missing", absent, lost, lambda: missing)
    if not len(order):
        return
    ordered = x[order]
    # Where each distinct value begins, and the end.
    starts = np.append(np.flatnonzero(np.append(True, np.diff(ordered) > 0)), len(order))
    least = LEAST_COVER * positive.sum()
    for low, high in _ranges(starts, hits, share):
        count = int(hits[high] - hits[low])
        if count >= least and _begins_with_a_jump(low, high, starts, hits):
            first, last = ordered[low], ordered[high - 1]
            words = f"it is {first:.6g}" if first == last else f"it is {first:.6g} to {last:.6g}"
            yield ValueGroup(words, high - low, count, partial(_between, x, first, last))
    yield ValueGroup("it is filled in", len(order), int(hits[-1]), lambda: ~missing)
    usual = int(np.diff(starts).argmax())
    low, high = int(starts[usual]), int(starts[usual + 1])
    common = ordered[low]
    others = len(x) - (high - low), int(positive.sum() - (hits[high] - hits[low]))
    yield ValueGroup(f"it is not {common:.6g}", *others, lambda: x != common)


def _ranges(starts: Places, hits: Places, share: float) -> Iterator[tuple[int, int]]:
    """Yield ranges in which a share have the outcome: the largest at either end, and runs of such values."""
    low, high, end = starts[:-1], starts[1:], int(starts[-1])
    to = np.flatnonzero(hits[high] >= share * high)
    if len(to):
        yield 0, int(high[to[-1]])
    since = np.flatnonzero(hits[end] - hits[low] >= share * (end - low))
    if len(since):
        yield int(low[since[0]]), end
    pure = hits[high] - hits[low] >= share * (high - low)
    edges = np.flatnonzero(np.diff(pure, prepend=False, append=False))
    first, last = low[edges[::2]], high[edges[1::2] - 1]
    enough = hits[last] - hits[first] >= LEAST_COVER * hits[end]
    yield from zip(first[enough].tolist(), last[enough].tolist(), strict=True)


def _begins_with_a_jump(low: int, high: int, starts: Places, hits: Places) -> bool:
    """Return whether the rows beside a range, below and above it, seldom have the outcome."""
    end = int(starts[-1])
    size = -(-(high - low) // BESIDE)
    rates = []
    if low > 0:
        first = int(starts[np.searchsorted(starts, max(low - size, 0), side="right") - 1])
        rates.append((hits[low] - hits[first]) / (low - first))
    if high < end:
        last = int(starts[np.searchsorted(starts, min(high + size, end))])
        rates.append((hits[last] - hits[high]) / (last - high))
    return bool(rates) and max(rates) <= MOST_BESIDE


def _between(x: NDArray[np.float64], first: float, last: float) -> Mask:
    return np.asarray((x >= first) & (x <= last))


def _counts(code: NDArray[np.integer[Any]], positive: Mask, size: int) -> tuple[Places, Places]:
    """Return the rows of each code, and those with the outcome."""
    return np.bincount(code, minlength=size), np.bincount(code[positive], minlength=size)
