"""Means of a target by code, smoothed and cross-fitted. Importable without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from unskew.learners.table import Floats

FOLDS = 5
"""A row's encoding in training counts the rows of the other folds alone."""

FEWEST, MOST = 1.0, 1e6
"""Bounds of the pseudo-rows that a mean is smoothed with."""

LEAST = 1e-5
"""Expectations keep this far from 0 and 1 where their logits are added."""

Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Encoding:
    """(S_k + m·prior) / (W_k + m) for each code k: a mean that few rows leave at its prior.

    S and W are sums of w·t and w over the rows of a code. m is σ² / τ²: the variance of a target within
    codes, by that of the means between codes, estimated by moments. If means do not vary, m is large.

    Attributes
    ----------
    sums, weights
        By fold and code ``[folds, size]``.
    """

    sums: Floats
    weights: Floats
    smoothing: float

    @classmethod
    def fit(
        cls,
        code: Codes,
        size: int,
        target: Floats,
        weight: Floats,
        fold: Codes,
        prior: Floats | None = None,
    ) -> Encoding:
        """Count the rows of each code.

        Parameters
        ----------
        prior
            What each row's target is expected to be without this encoding; the mean by default.
        """
        at = fold * size + code
        shape = (FOLDS, size)
        sums, weights = (
            np.bincount(at, values, FOLDS * size).reshape(shape).astype(np.float64)
            for values in (weight * target, weight)
        )
        mean = np.average(target, weights=weight) if prior is None else prior
        return cls(sums, weights, _smoothing(code, size, target - mean, weight))

    def known(self, code: Codes, prior: Floats | float) -> Floats:
        """Return the encoding of new rows; codes of −1 are at the prior."""
        return self._smoothed(self.sums.sum(axis=0), self.weights.sum(axis=0), code, prior)

    def cross_fitted(self, code: Codes, fold: Codes, prior: Floats | float) -> Floats:
        """Return the encoding of training rows, by the rows of the other folds."""
        sums, weights = (values.sum(axis=0) - values for values in (self.sums, self.weights))
        at = fold * self.sums.shape[1] + code
        return self._smoothed(sums.ravel(), weights.ravel(), at, prior)

    def _smoothed(self, sums: Floats, weights: Floats, at: Codes, prior: Floats | float) -> Floats:
        if not len(sums):
            return np.broadcast_to(prior, at.shape).astype(np.float64)
        known = at >= 0
        top = np.where(known, sums[at], 0.0) + self.smoothing * prior
        return np.asarray(top / (np.where(known, weights[at], 0.0) + self.smoothing))

    def count(self, code: Codes, fold: Codes | None = None) -> Floats:
        """Return log(1 + W) of each row's code; of training rows by the other folds, scaled up."""
        total = self.weights.sum(axis=0)
        if fold is None:
            return np.where(code >= 0, np.log1p(total[code]), 0.0)
        others = (total - self.weights) * FOLDS / (FOLDS - 1)
        return np.asarray(np.log1p(np.maximum(others, 0.0))[fold, code])

    def merged(self) -> tuple[Floats, Floats, float]:
        """Return what new rows need: sums, weights and m."""
        return self.sums.sum(axis=0), self.weights.sum(axis=0), self.smoothing


def _smoothing(code: Codes, size: int, residual: Floats, weight: Floats) -> float:
    """Return m = σ²/τ² by moments (DerSimonian and Laird), for residuals against the prior."""
    total = np.bincount(code, weight, size)
    sums = np.bincount(code, weight * residual, size)
    seen = total > 0
    total, sums = total[seen], sums[seen]
    variance = max(float(np.average(residual**2, weights=weight)), 1e-12)
    excess = (sums**2 / total).sum() - len(total) * variance
    between = excess / max(total.sum() - (total**2).sum() / total.sum(), 1e-12)
    return float(np.clip(variance / between, FEWEST, MOST)) if between > 0 else MOST


def combined(first: Floats, second: Floats, prior: float, *, logits: bool) -> Floats:
    """Return what two encodings say together if their effects add up, on logits or as they are."""
    if not logits:
        return first + second - prior
    parts = [logit(np.clip(values, LEAST, 1.0 - LEAST)) for values in (first, second)]
    return np.asarray(expit(parts[0] + parts[1] - logit(np.clip(prior, LEAST, 1.0 - LEAST))))


def as_arrays(encodings: list[Encoding]) -> dict[str, NDArray[Any]]:
    """Return what new rows need of several encodings, one after another."""
    merged = [encoding.merged() for encoding in encodings]
    return {
        "sums": np.concatenate([np.empty(0), *(sums for sums, _, _ in merged)]),
        "weights": np.concatenate([np.empty(0), *(weights for _, weights, _ in merged)]),
        "smoothing": np.array([smoothing for _, _, smoothing in merged], dtype=np.float64),
        "sizes": np.array([len(sums) for sums, _, _ in merged], dtype=np.int64),
    }


def from_arrays(arrays: dict[str, NDArray[Any]]) -> list[Encoding]:
    """Return encodings of new rows from what :func:`as_arrays` gave."""
    ends = np.cumsum(arrays["sizes"])
    return [
        Encoding(arrays["sums"][None, end - size : end], arrays["weights"][None, end - size : end], float(m))
        for end, size, m in zip(ends, arrays["sizes"], arrays["smoothing"], strict=True)
    ]
