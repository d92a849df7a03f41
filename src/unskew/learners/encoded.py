"""Rows as columns of numbers: numbers as they are, and smoothed means of the target of ids and categories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.base.estimator import require_whole
from unskew.base.seeds import splitmix64
from unskew.learners.learner import Arrays, TableLearner
from unskew.learners.table import CodedField, EncodedTable, Examples, Floats
from unskew.learners.target_encoding import FOLDS, Codes, Encoding, as_arrays, combined, from_arrays

COUNTED = 64
"""Fields with more codes than these also enter with the number of rows of a code."""

SCREENED_ROWS = 50_000
"""Of more rows than these a random sample decides which pairs of fields earn an encoding."""

SCREENED_CELLS = 1 << 16
"""Pairs of codes are hashed to so many cells while they are screened."""

SURE = 4.0
"""A pair earns its encoding where it lowers the out-of-fold loss by so many standard errors."""


BOTH, FIRST, SECOND = 0, 1, 2
"""What the prior of a pair is made of: the effects of both fields, which add up, or one of them alone, where
it tells the other."""


class Pair(NamedTuple):
    """Two fields whose codes are encoded together."""

    first: int
    second: int
    prior: int
    key: Codes
    """The pairs of codes that training had, rising."""


@dataclass(kw_only=True)
class EncodedLearner(TableLearner):
    """A learner of columns of numbers.

    Every id, category and bag enters with the mean target of its code, :class:`Encoding`, counted on other
    folds than the row's own: a code tells a row nothing of its own target. Codes that training never saw are
    at the prior. Pairs of fields enter likewise where this lowers the out-of-fold loss for certain; their
    prior is what both fields say by themselves.

    Parameters
    ----------
    pairs
        Pairs of fields that may have an encoding, at most; 0 for none.
    """

    pairs: int = 8

    def check(self) -> None:
        """Raise a ParameterError for a parameter out of range."""
        super().check()
        require_whole(0, pairs=self.pairs)

    def _encoded(self, examples: Examples, seed: int) -> Floats:
        """Fit the encodings, and return the columns of the training rows, cross-fitted."""
        rows, target = examples.rows, examples.target
        weight = examples.weight / examples.weight.mean()
        self.prior_ = float(np.average(target, weights=weight))
        fold = rows.folds(FOLDS, seed)
        columns = self._encode(rows, target, weight, fold)
        columns += self._encode_pairs(rows, target, weight, fold, seed)
        return self._joined(rows, columns)

    def _encode(self, rows: EncodedTable, target: Floats, weight: Floats, fold: Codes) -> list[Floats]:
        """Fit the encodings of all fields of codes, and return their columns for the training rows."""
        self.encodings_: list[Encoding] = []
        columns = []
        for coded in rows.coded:
            row, code = _values(coded)
            share = weight[row] / _lengths(coded)[row]
            encoding = Encoding.fit(code, coded.field.size, target[row], share, fold[row])
            self.encodings_.append(encoding)
            columns.append(_mean(row, encoding.cross_fitted(code, fold[row], self.prior_), len(rows)))
            if coded.field.size > COUNTED:
                columns.append(_mean(row, encoding.count(code, fold[row]), len(rows)))
        return columns

    def _encode_pairs(
        self, rows: EncodedTable, target: Floats, weight: Floats, fold: Codes, seed: int
    ) -> list[Floats]:
        """Fit the encodings of the pairs that earn one, and return their columns for the training rows."""
        self.pairs_: list[Pair] = []
        self.pair_encodings_: list[Encoding] = []
        columns = []
        alone = {
            number: encoding.cross_fitted(coded.codes[:, 0].astype(np.int64), fold, self.prior_)
            for number, (coded, encoding) in enumerate(zip(rows.coded, self.encodings_, strict=True))
            if coded.field.width == 1
        }
        for first, second, kind in self._earned(rows, target, weight, fold, alone, seed):
            code = _pair_code(rows.coded[first], rows.coded[second])
            key, index = np.unique(code, return_inverse=True)
            prior = self._prior(alone[first], alone[second], kind)
            encoding = Encoding.fit(index, len(key), target, weight, fold, prior)
            self.pairs_.append(Pair(first, second, kind, key))
            self.pair_encodings_.append(encoding)
            columns.append(encoding.cross_fitted(index, fold, prior))
        return columns

    def _earned(
        self,
        rows: EncodedTable,
        target: Floats,
        weight: Floats,
        fold: Codes,
        alone: Mapping[int, Floats],
        seed: int,
    ) -> list[tuple[int, int, int]]:
        """Return the pairs of fields whose encoding lowers the out-of-fold loss for certain, best first."""
        some = np.arange(len(rows))
        if len(rows) > SCREENED_ROWS:
            some = np.random.default_rng(seed).choice(len(rows), SCREENED_ROWS, replace=False)
        coded, t, w, f = rows.take(some).coded, target[some], weight[some], fold[some]
        gains = []
        for first, second in combinations(alone, 2) if self.pairs else ():
            # The ids together are what folds hold out.
            if (coded[first].field.kind, coded[second].field.kind) == ("id", "id"):
                continue
            hashed = splitmix64(_pair_code(coded[first], coded[second]).view(np.uint64))
            code = (hashed % np.uint64(SCREENED_CELLS)).astype(np.int64)
            priors = [self._prior(alone[first][some], alone[second][some], kind) for kind in range(3)]
            losses = [w * self._loss(t, prior) for prior in priors]
            kind = int(np.argmin([loss.mean() for loss in losses]))
            encoding = Encoding.fit(code, SCREENED_CELLS, t, w, f, priors[kind])
            gain = losses[kind] - w * self._loss(t, encoding.cross_fitted(code, f, priors[kind]))
            if gain.mean() > SURE * gain.std() / np.sqrt(len(gain)):
                gains.append((gain.mean(), (first, second, kind)))
        return [pair for _, pair in sorted(gains, reverse=True)[: self.pairs]]

    def _prior(self, first: Floats, second: Floats, kind: int) -> Floats:
        """Return what two fields say without their pair."""
        if kind == BOTH:
            return combined(first, second, self.prior_, logits=self.errors_ == "ce")
        return first if kind == FIRST else second

    def _loss(self, target: Floats, expected: Floats) -> Floats:
        if self.errors_ == "squared":
            return np.asarray((target - expected) ** 2)
        p = np.clip(expected, 1e-6, 1.0 - 1e-6)
        return np.asarray(-(target * np.log(p) + (1.0 - target) * np.log1p(-p)))

    def _inputs(self, rows: EncodedTable) -> Floats:
        """Return what the trees read of new rows."""
        columns, alone = [], {}
        for number, (coded, encoding) in enumerate(zip(rows.coded, self.encodings_, strict=True)):
            row, code = _values(coded)
            alone[number] = _mean(row, encoding.known(code, self.prior_), len(rows))
            columns.append(alone[number])
            if coded.field.size > COUNTED:
                columns.append(_mean(row, encoding.count(code), len(rows)))
        for (first, second, kind, key), encoding in zip(self.pairs_, self.pair_encodings_, strict=True):
            code = _pair_code(rows.coded[first], rows.coded[second])
            index = np.minimum(np.searchsorted(key, code), len(key) - 1)
            prior = self._prior(alone[first], alone[second], kind)
            columns.append(encoding.known(np.where(key[index] == code, index, -1), prior))
        return self._joined(rows, columns)

    @staticmethod
    def _joined(rows: EncodedTable, columns: list[Floats]) -> Floats:
        return np.column_stack([rows.numbers.astype(np.float64), *columns])

    def _encoding_arrays(self) -> Arrays:
        """Return the encodings of fields and pairs as plain arrays."""
        groups = {"encoding": self.encodings_, "pair_encoding": self.pair_encodings_}
        encodings = {
            f"{group}_{name}": values
            for group, fitted in groups.items()
            for name, values in as_arrays(fitted).items()
        }
        return {
            "prior": np.array(self.prior_),
            **encodings,
            "pairs": np.array([pair[:3] for pair in self.pairs_], dtype=np.int64),
            "pair_key": np.concatenate([np.empty(0, np.int64), *(pair.key for pair in self.pairs_)]),
        }

    def _restore_encodings(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take what :meth:`_encoding_arrays` gave."""
        self.prior_ = float(arrays["prior"])
        self.encodings_, self.pair_encodings_ = (
            from_arrays(
                {name: arrays[f"{group}_{name}"] for name in ("sums", "weights", "smoothing", "sizes")}
            )
            for group in ("encoding", "pair_encoding")
        )
        keys = np.split(arrays["pair_key"], np.cumsum(arrays["pair_encoding_sizes"])[:-1])
        pairs = np.asarray(arrays["pairs"]).reshape(-1, 3).tolist()
        self.pairs_ = [Pair(a, b, kind, key) for (a, b, kind), key in zip(pairs, keys, strict=False)]


def _values(coded: CodedField) -> tuple[Codes, Codes]:
    """Return the row and the code of every value of a field."""
    row, slot = np.nonzero((coded.codes >= 0) & (coded.codes < coded.field.size))
    return row, coded.codes[row, slot].astype(np.int64)


def _lengths(coded: CodedField) -> Floats:
    """Return how many values each row has."""
    return np.asarray((coded.codes >= 0).sum(axis=1), dtype=np.float64)


def _mean(row: Codes, values: Floats, n: int) -> Floats:
    """Return the mean of each row's values."""
    if len(row) == n:
        return values
    return np.bincount(row, values, n) / np.maximum(np.bincount(row, minlength=n), 1)


def _pair_code(first: CodedField, second: CodedField) -> Codes:
    """Return one code for two."""
    return first.codes[:, 0].astype(np.int64) * second.field.size + second.codes[:, 0]
