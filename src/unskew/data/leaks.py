"""Features that give the outcome away: written after it, or a name of the row. Looked for before training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from unskew.base.errors import DataError, LeakWarning, ParameterError
from unskew.base.plain_text import listed
from unskew.base.seeds import splitmix64
from unskew.data import Feature, Log, require_log
from unskew.data.arrays import pieces
from unskew.data.described import MOST_VALUES, Described
from unskew.data.kinds import TimePart
from unskew.data.values import MISSING, Numbers, Texts, Values
from unskew.metrics.proper import auc_of_groups

LeakKind = Literal["filled", "later", "id", "auc", "value"]
OutcomeName = Literal["click", "conversion"]

LEAK_AUC = 0.99
"""A feature that ranks rows by an outcome so well, alone, gives it away."""
LEAK_SHARE = 0.99
"""Of the rows in which a column is filled (or late), so many have the outcome: it was written after it."""
LEAST_LIMIT = 0.8
SIGNIFICANCE = 0.001
"""A figure counts only where its lower limit at this level is 0.8 or more: 31 rows with the outcome at
least, so that a handful of conversions raises no alarm."""
SUSPECT_SHARE = 0.95
SUSPECT_LIFT = 1.5
"""A value whose rows have the outcome so often, and so many times as often as all rows, is warned of."""
VALUE_ODDS = 10.0
"""At the lower limit of a value's share the odds of the outcome are at least so many times those of all rows:
where 98 % have the outcome anyway, a share of 99 % says nothing."""
VALUE_SIGNIFICANCE = 1e-5
"""The level of that limit, because there are many values in many columns."""
VALUE_ROWS = 1 << 19
"""Rows at random in which values are looked at, at most."""
LOOKED_ROWS = 1 << 21
"""Rows at random in which all else is looked for, at most; for names of rows all of them are."""
SAMPLE = 100_000
"""Rows with the outcome, and rows without, that AUCs are measured on at most; AUC does not depend on how
many there are of each."""
FOLDS = 5
"""Rates of a category's values are those of other folds; all rows of a pair share one."""
ROW_ID_SHARE = 0.99
"""A column with so many distinct values in its distinct (value, user, item) lines names the row."""
MOST_REPEATS = 3
"""Rows of one value, on average, up to which it can still be the name of one row that was logged again."""
LEAST_ROWS = 100
"""Rows below which distinct values say nothing."""
COUNTER_ROWS = 10_000
COUNTER_RANGE = 10
"""Whole numbers that are all distinct are names where there are so many of them, or where they span less
than ten times their number, as a counter does: an amount of money repeats by then."""


@dataclass(frozen=True)
class Leak:
    """A column that gives an outcome away.

    Attributes
    ----------
    column
        Its name.
    kind
        ``"filled"``: it is filled in only where the outcome is. ``"later"``: it is a time, after the row's
        only where the outcome is. ``"id"``: it is a name of the row. ``"auc"``: alone it ranks rows by the
        outcome. ``"value"``: nearly all rows of one value, or of a range of numbers, have the outcome.
    outcome
        What it gives away; None for an id.
    found
        What was found, with its numbers.
    value
        The AUC, the share of the rows that have the outcome, or the share of distinct values.
    stops
        Whether a run stops for it; otherwise it warns.
    """

    column: str
    kind: LeakKind
    outcome: OutcomeName | None
    found: str
    value: float
    stops: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for files."""
        return asdict(self)


def check_leaks(log: Log) -> list[Leak]:
    r"""Find features that give an outcome away, at most one finding for each column.

    Looked at are clicks, in the space ``"impressions"`` alone (in a matrix the unclicked pairs have no rows),
    and conversions among the clicked rows.

    - *filled*: a share s ≥ .99 of the rows in which the column holds something have the outcome, and its
      lower limit at 99.9 % (Clopper–Pearson) is .8 or more and at least half-way from the overall rate to 1.
    - *later*: the same of the rows in which a column of times is after the log's ``time``.
    - *id*: at least 99 % of the distinct (value, user, item) lines have a value of their own, with at most 3
      rows a value on average; whole numbers must all be distinct, and 10,000 or as dense as a counter.
      Features of users and items are none.
    - *auc*: the feature alone has an AUC of .99 or more for the outcome: a number by its rank, in either
      direction, missing ones first or last; a category by the rate of its value in other folds of pairs, so
      that values which were seen once tell nothing; a bag by its best single value. Its lower limit, as of a
      share of min(positives, negatives) trials, must be .8 or more.
    - *value*: a share s ≥ .99 of the rows of one value have the outcome (a category, an element of a bag, a
      single number, a range of numbers at either end, or all values but the most frequent one), and at the
      lower limit of s at level 10⁻⁵, which must be .8 or more, the odds of the outcome are ten times those of
      all rows. A share of .95 to .99 that is 1.5 times the overall rate or more is a warning. A single value
      or a range must hold 1 % of all rows with the outcome; beside a range or a single number, at most half
      of the rows have it. For a feature of users or items the limit counts these instead of rows.

    With fewer than 31 rows of an outcome nothing is found for it. AUCs are measured on at most 100,000 rows
    with the outcome and 100,000 without, values on at most 524,288 rows; the same ones are drawn every time.

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> click = random.random(1000) < 0.2
    >>> columns = {"seconds": np.where(click, random.random(1000), np.nan), "age": random.random(1000)}
    >>> user, item = random.integers(50, size=(2, 1000))
    >>> log = Log.from_arrays(
    ...     user=user, item=item, click=click, space="impressions", columns=columns, features="auto"
    ... )
    >>> [(leak.column, leak.kind, leak.outcome) for leak in check_leaks(log)]
    [('seconds', 'filled', 'click')]
    """
    require_log(log, "what is looked at for leaks")
    described = log.features
    if described is None:
        return []
    whole, all_values = log, described.values
    if len(log) > LOOKED_ROWS:
        rows = np.random.default_rng(0).choice(len(log), LOOKED_ROWS, replace=False, shuffle=False)
        log = log.take(np.sort(rows))
        assert log.features is not None
        described = log.features
    outcomes = list(_outcomes(log))
    samples = [(outcome, _sampled(outcome)) for outcome in outcomes if outcome.enough]
    thinned = [_thinned(outcome) for outcome in outcomes if outcome.enough]
    result: dict[str, Leak] = {}
    for feature in described.declared:
        before = result.get(feature.source)
        if before is not None and before.stops:
            continue
        leak = (
            _written_after(log, described, feature, outcomes)
            or _row_id(whole, feature, all_values[feature.name])
            or _auc_leak(log, described, feature, samples)
            or _value_leak(feature, described.values[feature.name], _places(log, feature), thinned)
        )
        if leak is not None and (before is None or leak.stops):
            result[feature.source] = leak
    return list(result.values())


def require_no_leaks(log: Log, allow: Iterable[str] = ()) -> list[Leak]:
    """Raise a :class:`DataError` for a leak that is not allowed, and warn of what only looks like one.

    Returned are the leaks that are allowed and those that were warned of.

    Parameters
    ----------
    allow
        Columns that may give an outcome away, because they are known before it.
    """
    allowed = set(allow)
    sources = set() if log.features is None else {each.source for each in log.features.declared}
    for name in sorted(allowed - sources):
        raise ParameterError(
            f"the leak of '{name}' is allowed, which is no feature",
            remedy=f"name one of {listed(sorted(sources))}" if sources else "leave it out",
        )
    leaks = check_leaks(log)
    others = [leak for leak in leaks if leak.stops and leak.column not in allowed]
    if not others:
        for leak in leaks:
            if leak.column not in allowed:
                warnings.warn(
                    f"column '{leak.column}': {leak.found}. If it was written after the {leak.outcome},"
                    " leave it"
                    f" out (--ignore {leak.column}); if it is known before, allow it (--allow-leak"
                    f" {leak.column})",
                    LeakWarning,
                    stacklevel=2,
                )
        return leaks
    first, *more = others
    verb = "leaks" if len(more) == 1 else "leak"
    also = f" ({listed(leak.column for leak in more)} {verb} too)" if more else ""
    raise DataError(
        f"{first.found}{also}",
        where=f"column '{first.column}'",
        remedy=f"leave it out (--ignore {first.column}), or allow it if it is known before the outcome"
        f" (--allow-leak {first.column})",
    )


class _Outcome(NamedTuple):
    """An outcome that a feature may give away: the rows of the log where it is known, and where it is 1."""

    name: OutcomeName
    rows: NDArray[np.int64]
    positive: NDArray[np.bool_]

    @property
    def enough(self) -> bool:
        """True where an AUC could count."""
        return lower_limit(1.0, self.fewer) >= LEAST_LIMIT

    @property
    def fewer(self) -> int:
        """Rows with it, or without, whichever is less."""
        positives = int(self.positive.sum())
        return min(positives, len(self.positive) - positives)


def _outcomes(log: Log) -> Iterator[_Outcome]:
    # What only conversions have, only clicks have too: conversions say it better.
    if log.conversion is not None:
        yield _Outcome("conversion", log.clicked, log.known_conversion() == 1)
    if log.space == "impressions" and log.known_propensity is None:
        yield _Outcome("click", np.arange(len(log)), log.click == 1)


def _written_after(log: Log, described: Described, feature: Feature, outcomes: list[_Outcome]) -> Leak | None:
    """Return a leak if a column is filled in, or late, only where an outcome is."""
    values = described.values[feature.name]
    position = _places(log, feature)
    filled, late = _filled(values), _late(log, described, feature)
    for outcome in outcomes:
        if leak := _only_where(feature, outcome, filled[position[outcome.rows]], "filled", "it is filled in"):
            return leak
        if late is not None:
            after = f"it is after '{log.time}' in"
            if leak := _only_where(feature, outcome, late[outcome.rows], "later", after):
                return leak
    return None


def _auc_leak(
    log: Log, described: Described, feature: Feature, samples: list[tuple[_Outcome, _Outcome]]
) -> Leak | None:
    """Return a leak if a feature alone ranks rows by an outcome."""
    values, position = described.values[feature.name], _places(log, feature)
    for outcome, sample in samples:
        pair = log.cell[sample.rows].astype(np.uint64)
        looked, by = values.take(position[sample.rows]), ""
        if isinstance(looked, Numbers):
            columns = np.atleast_2d(looked.values.T).astype(np.float64)
            result = max(auc_of_number(each, sample.positive) for each in columns)
        elif looked.starts is None:
            result = _auc_of_scores(_rates(looked.codes, sample.positive, splitmix64(pair)), sample.positive)
        else:
            result, by = _auc_of_bag(looked, sample.positive)
        if result >= LEAK_AUC and lower_limit(result, outcome.fewer) >= LEAST_LIMIT:
            what = "clicked rows" if outcome.name == "click" else "converted clicks"
            text = f"alone{by} it tells {what} from others with an AUC of {result:.4f}"
            return Leak(feature.source, "auc", outcome.name, text, result)
    return None


def _places(log: Log, feature: Feature) -> NDArray[np.integer[Any]]:
    """Return, for each row of the log, which of a feature's values is its."""
    if feature.role == "row":
        return np.arange(len(log))
    return log.user if feature.role == "user" else log.item


def lower_limit(share: float, trials: int, level: float = SIGNIFICANCE) -> float:
    """Return the lower limit of a share, after Clopper and Pearson."""
    hits = share * trials
    return float(betaincinv(hits, trials - hits + 1.0, level)) if hits > 0 else 0.0


def _filled(values: Values) -> NDArray[np.bool_]:
    """Return where there is a value; an empty text is none."""
    there = ~values.missing()
    if isinstance(values, Texts) and values.starts is None:
        for code in np.flatnonzero(values.texts == ""):
            there &= values.codes != code
    return there


def _late(log: Log, described: Described, feature: Feature) -> NDArray[np.bool_] | None:
    """Return where a column of times is after the log's own."""
    if not isinstance(feature, TimePart) or log.time in (None, feature.source):
        return None
    own = described.times.get(str(log.time), log.columns.get(str(log.time)))
    when = described.times.get(feature.source)
    if own is None or when is None or own.dtype.kind != "M":
        return None
    # What is missing is after nothing.
    return np.asarray(when > own)


def _only_where(
    feature: Feature, outcome: _Outcome, there: NDArray[np.bool_], kind: LeakKind, verb: str
) -> Leak | None:
    """Return a leak, if rows in which something is there have the outcome, and others have not."""
    rows = int(there.sum())
    hits = int((there & outcome.positive).sum())
    share = hits / rows if rows else 0.0
    halfway = (1.0 + float(outcome.positive.mean())) / 2 if len(outcome.positive) else 1.0
    if share < LEAK_SHARE or lower_limit(share, rows) < max(LEAST_LIMIT, halfway):
        return None
    positives = int(outcome.positive.sum())
    text = (
        f"{verb} {hits:,} of {positives:,} rows with a {outcome.name} and in"
        f" {rows - hits:,} of {len(there) - positives:,} without: it was written after the {outcome.name}"
    )
    return Leak(feature.source, kind, outcome.name, text, share)


def _value_leak(
    feature: Feature, values: Values, place: NDArray[np.integer[Any]], outcomes: list[_Outcome]
) -> Leak | None:
    """Return a leak if one value, or a range, singles out rows with an outcome: one that stops, if any."""
    if isinstance(values, Numbers) and values.is_vector:
        return None
    kinds = [(True, outcome) for outcome in outcomes] + [(False, outcome) for outcome in outcomes]
    for stops, outcome in kinds:
        at, rate = place[outcome.rows], float(outcome.positive.mean())
        share = LEAK_SHARE if stops else max(SUSPECT_SHARE, SUSPECT_LIFT * rate)
        least = max(LEAST_LIMIT, VALUE_ODDS * rate / (VALUE_ODDS * rate + 1 - rate))
        for group in groups_of(values.take(at), outcome.positive, share):
            # Rows of one user are not so many trials of what is known of the user.
            trials = group.rows if feature.role == "row" else len(np.unique(at[group.members()]))
            if lower_limit(group.share, trials, VALUE_SIGNIFICANCE) >= least:
                text = (
                    f"where {group.words}, {group.hits:,} of {group.rows:,} rows have a {outcome.name}"
                    f" ({group.share:.1%}; {rate:.1%} of all)"
                )
                return Leak(feature.source, "value", outcome.name, text, group.share, stops)
    return None


def _thinned(outcome: _Outcome) -> _Outcome:
    """Return the rows in which values are looked at: all, or as many at random as of a stream."""
    if len(outcome.rows) <= VALUE_ROWS:
        return outcome
    at = np.sort(np.random.default_rng(0).choice(len(outcome.rows), VALUE_ROWS, replace=False))
    return outcome._replace(rows=outcome.rows[at], positive=outcome.positive[at])


def _row_id(log: Log, feature: Feature, values: Values) -> Leak | None:
    """Return a leak if the values name the row."""
    if feature.role != "row" or feature.kind in ("bag", "vector") or isinstance(feature, TimePart):
        return None
    known = sum(int((~values.take(piece).missing()).sum()) for piece in pieces(len(log)))
    if known < LEAST_ROWS or (isinstance(values, Numbers) and not _may_be_names(values, known)):
        return None
    # All rows of some of the values: how often a value repeats does not depend on how many are looked at.
    step = np.uint64(-(-known // SAMPLE))
    keys, pairs = [], []
    for piece in pieces(len(log)):
        some = values.take(piece)
        key = some.keys().view(np.uint64)
        looked = ~some.missing() & (splitmix64(key) % step == 0)
        if isinstance(some, Texts) and len(some.texts) > MOST_VALUES:
            # The last text stands for all those that were too rare to be kept.
            looked &= some.codes != len(some.texts) - 1
        keys.append(key[looked])
        cell = log.user[piece].astype(np.int64) * log.n_items + log.item[piece]
        pairs.append(cell[looked].astype(np.uint64))
    key, pair = np.concatenate(keys), np.concatenate(pairs)
    distinct = len(np.unique(key))
    lines = len(np.unique(splitmix64(splitmix64(key) ^ pair)))
    least = 1.0 if isinstance(values, Numbers) else ROW_ID_SHARE
    if lines < LEAST_ROWS / 2 or distinct < least * lines or distinct * MOST_REPEATS < len(key):
        return None
    share = distinct / len(key)
    text = f"it has {share:.1%} as many values as rows: an id of the row, from which nothing can be learned"
    return Leak(feature.source, "id", None, text, share)


def _may_be_names(numbers: Numbers, known: int) -> bool:
    """Return whether numbers are whole, and dense or many enough to be names of rows."""
    least, most = np.inf, -np.inf
    for piece in pieces(len(numbers)):
        some = numbers.values[piece]
        some = some[~np.isnan(some)]
        if (some != np.floor(some)).any():
            return False
        least, most = min(least, some.min(initial=np.inf)), max(most, some.max(initial=-np.inf))
    return bool(most - least < COUNTER_RANGE * known) or known >= COUNTER_ROWS


def _sampled(outcome: _Outcome) -> _Outcome:
    """Return all rows with the outcome and all without, or as many as are looked at."""
    random = np.random.default_rng(0)
    parts = []
    for which in (True, False):
        rows = np.flatnonzero(outcome.positive == which)
        if len(rows) > SAMPLE:
            rows = np.sort(random.choice(rows, SAMPLE, replace=False))
        parts.append(rows)
    at = np.concatenate(parts)
    return outcome._replace(rows=outcome.rows[at], positive=outcome.positive[at])


def _auc_of_scores(score: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    _, group = np.unique(score, return_inverse=True)
    counts = np.bincount(2 * group + positive, minlength=2 * (int(group.max()) + 1))
    return float(auc_of_groups(counts.reshape(-1, 2).astype(np.float64)))


def auc_of_number(score: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Return the AUC of its rank, the higher of both directions, missing ones first or last."""
    missing = np.isnan(score)
    ends = (-np.inf, np.inf) if missing.any() else (0.0,)
    result = [_auc_of_scores(np.where(missing, end, score), positive) for end in ends]
    return max(max(each, 1.0 - each) for each in result)


def _rates(
    codes: NDArray[np.int32], positive: NDArray[np.bool_], pair: NDArray[np.uint64]
) -> NDArray[np.float64]:
    """Return the rate of each row's value in the other folds, shrunk to the overall rate by one row."""
    _, code = np.unique(codes, return_inverse=True)
    fold = (pair % np.uint64(FOLDS)).astype(np.int64)
    shape = (FOLDS, int(code.max()) + 1)
    size = shape[0] * shape[1]
    rows, hits = (
        np.bincount(fold * shape[1] + code, weights=each, minlength=size).reshape(shape)
        for each in (np.ones(len(code)), positive.astype(np.float64))
    )
    others, positives = rows.sum(axis=0) - rows, hits.sum(axis=0) - hits
    # One constant for all folds: a fold's own rate would tell of what is held out.
    rate: NDArray[np.float64] = (positives + positive.mean()) / (others + 1.0)
    return rate[fold, code]


def _auc_of_bag(bags: Texts, positive: NDArray[np.bool_]) -> tuple[float, str]:
    """Return the AUC of the value that tells most: ½ + |its share among positives − among negatives| / 2."""
    if not len(bags.codes):
        return 0.5, ""
    size = len(bags.texts)
    row = np.repeat(np.arange(len(bags)), bags.lengths)
    # A value that a row holds twice counts once.
    row, code = np.divmod(np.unique(row * size + bags.codes), size)
    shares = [
        np.bincount(code[positive[row] == which], minlength=size) / (positive == which).sum()
        for which in (True, False)
    ]
    gap = np.abs(shares[0] - shares[1])
    best = int(gap.argmax())
    return 0.5 + float(gap[best]) / 2, f" by its value '{bags.texts[best]}'"


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
    result = [group for group in groups if group.rows and group.share >= share]
    return sorted(result, key=lambda group: -group.hits)


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
