"""The pairs that an off-policy estimate reads: held-out clicks with their weights, and candidates to rank
them among. Which scores the pairs get, and what is made of them, is left to estimates.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unskew.base.seeds import stream
from unskew.data import Log

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_CANDIDATES = 1 << 17
"""About so many candidates are scored in all: every pair of Coat, some of each user of a large log."""
LEAST_CANDIDATES = 2
"""But at least so many slates' worth for each user."""
MOST_GROUPS = 1000
"""More users than this are dealt into so many groups at random, and groups are resampled: the spread of a
thousand groups tells a standard error to 2 %, and the matrices of the AUC stay small."""


@dataclass(frozen=True, eq=False)
class Atoms:
    """One seed's held-out clicks and unseen candidates, each pair once.

    Attributes
    ----------
    position
        Where the pair is among ``Evidence.pairs``.
    user, group
        Its user, numbered from 0 over the population's users, and the group that the user is resampled with.
    conversion
        r of a held-out click; 0 elsewhere, where the weight is 0 too.
    weight
        w of a held-out click.
    stands_for
        How many unseen pairs of the user a candidate stands for; 0 for a held-out click that is none.
    others
        Candidates of the user beside this pair.
    tie_break
        The order among equal scores.
    size
        Unseen pairs of each user ``[users]``.
    """

    position: Integers
    user: Integers
    group: Integers
    conversion: Floats
    weight: Floats
    stands_for: Floats
    others: Integers
    tie_break: Integers
    size: Integers

    def above(self, score: Floats) -> Integers:
        """Return how many of the user's candidates have a higher score than each pair."""
        order = np.lexsort((self.tie_break, -score, self.user))
        candidate = (self.stands_for[order] > 0).astype(np.int64)
        before = np.cumsum(candidate) - candidate
        user = self.user[order]
        first = np.searchsorted(user, user, side="left")
        above = np.empty(len(order), dtype=np.int64)
        above[order] = before - before[first]
        return above

    @property
    def effective_sample_size(self) -> float:
        """(Σw)² / Σw²."""
        return float(self.weight.sum() ** 2 / (self.weight @ self.weight))

    @property
    def weight_check(self) -> float:
        """Σw over the unseen pairs, 1 for honest propensities."""
        return float(self.weight.sum() / self.size.sum())


@dataclass(frozen=True, eq=False)
class Evidence:
    """All pairs to score, and each seed's atoms among them.

    Attributes
    ----------
    pairs
        The clicked rows of the log, then the candidates.
    row
        The log's row of each pair; −1 for a candidate that the log does not list.
    group_of
        The group of each user of the population; every user is one of its own if they are few.
    rows
        Held-out clicks of each seed.
    """

    pairs: Log
    row: Integers
    seeds: tuple[Atoms, ...]
    group_of: Integers
    rows: int

    @property
    def users(self) -> int:
        """Return how many users the population has."""
        return len(self.group_of)

    @property
    def groups(self) -> int:
        """Return how many groups are resampled."""
        return min(self.users, MOST_GROUPS)

    def by_group(self, of_user: Integers | None = None) -> Floats:
        """Return sums over the users of each group; without an argument, how many they are."""
        sums = np.bincount(self.group_of, weights=of_user, minlength=self.groups)
        return sums.astype(np.float64)


def evidence_of(
    log: Log,
    held_out: Integers,
    propensity: Floats,
    *,
    seeds: Sequence[int],
    slate: int,
    seed: int,
) -> Evidence:
    r"""Weigh the held-out clicks and draw candidates.

    .. math::
        w = \frac{1 - (1 - s) p}{s p} = 1 + \frac{1 - p}{s p}, \qquad s = \frac{|V|}{|O|}

    A random share s of the clicks O is held out (V); the others, T, trained the model. A pair that is not in
    T was clicked and held out with chance s·p/(1 − (1 − s)·p), so w times the held-out pairs are the
    *unseen* pairs D∖T, on which a model cannot have memorised an answer. With s = 1 the weight is 1/p.

    Of a log of shown rows with known propensities each row is an occasion of its own, with ``actions`` items
    to choose from: the held-out rows stand for all that could have been shown on their occasions, w is 1/p,
    and there are no candidates.

    Parameters
    ----------
    held_out
        Row numbers ``[seeds, n]``.
    propensity
        Of the clicked rows ``[seeds, |O|]``, clipped.
    """
    clicked = log.clicked
    known = log.known_propensity is not None
    people, user_of_row = _users(log)
    cell_of_row = log.cell if log.space == "matrix" else np.arange(len(log), dtype=np.int64)
    candidate = np.empty(0, dtype=np.int64) if known else _candidates(log, people, user_of_row, slate, seed)
    cells = np.concatenate([cell_of_row[clicked], candidate])
    pairs = pairs_of(log, cells)
    order = np.argsort(cell_of_row, kind="stable")
    listed = order[np.minimum(np.searchsorted(cell_of_row[order], candidate), len(order) - 1)]
    row = np.concatenate([clicked, np.where(cell_of_row[listed] == candidate, listed, -1)])
    user = np.searchsorted(people, pairs.user)
    population = (
        np.full(len(people), log.n_items)
        if log.space == "matrix"
        else np.bincount(user_of_row, minlength=len(people))
    )
    conversion = log.known_conversion().astype(np.float64)
    group_of = np.arange(len(people))
    if len(people) > MOST_GROUPS:
        group_of = np.random.default_rng(stream(seed, "groups")).permutation(group_of) % MOST_GROUPS
    atoms = []
    for rows, p, number in zip(held_out, propensity, seeds, strict=True):
        held = np.searchsorted(clicked, rows)
        trains = np.ones(len(clicked), dtype=bool)
        trains[held] = False
        size = population - np.bincount(user[: len(clicked)][trains], minlength=len(people))
        size *= (log.actions or 1) if known else 1
        share = 1.0 if known else len(held) / len(clicked)
        unseen = ~np.isin(candidate, cells[: len(clicked)][trains])
        is_candidate = np.isin(cells[held], candidate)
        further = len(clicked) + np.flatnonzero(unseen & ~np.isin(candidate, cells[held]))
        position = np.concatenate([held, further])
        counts = np.bincount(user[len(clicked) :][unseen], minlength=len(people))
        counted = np.concatenate([is_candidate, np.ones(len(further), dtype=bool)])
        people_of = user[position]
        nothing = np.zeros(len(further))
        atoms.append(
            Atoms(
                position=position,
                user=people_of,
                group=group_of[people_of],
                conversion=np.concatenate([conversion[held], nothing]),
                weight=np.concatenate([1.0 + (1.0 / p[held] - 1.0) / share, nothing]),
                stands_for=np.where(counted, size[people_of] / np.maximum(counts[people_of], 1), 0.0),
                others=counts[people_of] - counted,
                tie_break=np.random.default_rng(stream(seed, "ties", number)).permutation(len(position)),
                size=size,
            )
        )
    return Evidence(pairs=pairs, row=row, seeds=tuple(atoms), group_of=group_of, rows=held_out.shape[1])


def _users(log: Log) -> tuple[Integers, Integers]:
    """Return the codes of the population's users, and each row's place among them."""
    if log.space == "matrix":
        return np.arange(log.n_users), log.user.astype(np.int64)
    people, code = np.unique(log.user, return_inverse=True)
    return people.astype(np.int64), code


def _candidates(log: Log, people: Integers, user_of_row: Integers, slate: int, seed: int) -> Integers:
    """Draw cells at random from each user's part of D, all of them if they are few."""
    most = max(LEAST_CANDIDATES * slate, MOST_CANDIDATES // len(people))
    random = np.random.default_rng(stream(seed, "candidates"))
    if log.space == "impressions":
        order = np.lexsort((random.permutation(len(log)), user_of_row))
        start = np.searchsorted(user_of_row[order], np.arange(len(people)))
        rank = np.arange(len(log)) - start[user_of_row[order]]
        return np.sort(order[rank < most])
    if most >= log.n_items:
        return np.arange(log.population_size, dtype=np.int64)
    block = max(1, MOST_CANDIDATES * 8 // log.n_items)
    drawn = [
        users[:, None] * log.n_items
        + np.argpartition(random.random((len(users), log.n_items), dtype=np.float32), most)[:, :most]
        for users in np.split(people, range(block, len(people), block))
    ]
    return np.sort(np.concatenate(drawn).ravel())


def pairs_of(log: Log, cells: Integers) -> Log:
    """Return pairs of the population by their cells; of impressions, rows of the log."""
    if log.space == "impressions":
        return log.take(cells)
    return replace(
        log,
        user=(cells // log.n_items).astype(np.int32),
        item=(cells % log.n_items).astype(np.int32),
        click=np.zeros(len(cells), dtype=np.uint8),
        conversion=None,
        columns={},
    )
