"""The semi-synthetic benchmark of estimators: how far off each is, with raw and calibrated propensities.

Nothing is trained but a calibrator: predictions of a complete matrix of conversion rates are given, and an
imputer is one number. Rates come from the synthetic world, or from MovieLens-100K completed by matrix
factorisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import logit

from unskew.calibration import make_calibrator
from unskew.datasets import load
from unskew.errors import DataError
from unskew.estimator import require_at_least
from unskew.metrics.sample_weight import bias_weight, inverse_weight, variance_weight
from unskew.study.shown_table import Shown

Floats = NDArray[np.float64]

RATES = (0.1, 0.3, 0.5, 0.7, 0.9)
SHARES = (0.53, 0.24, 0.14, 0.07, 0.02)
"""Conversion rates of a complete matrix and how many pairs have each, as in MRDR's study: about the
distribution of ratings in the randomly shown part of Yahoo! R3."""

PREDICTIONS = ("ONE", "THREE", "FIVE", "SKEW", "CRS")

MOVIELENS = "u.data"
FACTORS, PENALTY, SWEEPS = 16, 5.0, 15
"""Alternating least squares that completes MovieLens: dimension, ridge penalty, sweeps."""


def conversion_rates(root: str | Path | None, seed: int, **world: Any) -> Floats:
    """One of :data:`RATES` for every pair ``[|D|]``, by rank of a score: the synthetic world's conversion
    probability, or the completed rating where ``root`` has MovieLens-100K."""
    if root is None:
        truth = load("synthetic", **{"seed": seed, **world}).truth
        assert truth is not None
        score = truth.conversion.ravel()
    else:
        score = _completed_ratings(Path(root), seed)
    bounds = np.floor(len(score) * np.cumsum((0.0, *SHARES)) + 1e-9).astype(np.int64)
    rates = np.empty(len(score))
    rates[np.argsort(score, kind="stable")] = np.repeat(RATES, np.diff(bounds))
    return rates


def predictions_of(rates: Floats, random: np.random.Generator) -> dict[str, Floats]:
    """Five flawed predictions of the rates, with the names of the study they come from.

    ONE, THREE, FIVE: as many pairs of rate 0.1 (0.3, 0.5) as there are of 0.9 are taken for 0.9. SKEW: normal
    around the rate with deviation (1 − rate)/2, clipped to [0.1, 0.9]. CRS: 0.1 where the rate is at least
    0.7, else 0.5.
    """
    highest = int((rates == RATES[-1]).sum())
    result = {}
    for name, rate in zip(PREDICTIONS[:3], RATES, strict=False):
        flipped = rates.copy()
        flipped[random.choice(np.flatnonzero(rates == rate), highest, replace=False)] = RATES[-1]
        result[name] = flipped
    result["SKEW"] = np.clip(random.normal(rates, (1 - rates) / 2), RATES[0], RATES[-1])
    result["CRS"] = np.where(rates >= 0.7, 0.1, 0.5)
    return result


def _completed_ratings(root: Path, seed: int) -> Floats:
    path = root / MOVIELENS if root.is_dir() else root
    if not path.is_file():
        raise DataError(
            f"{MOVIELENS} of MovieLens-100K is not there",
            where=str(root),
            remedy="download ml-100k.zip from https://grouplens.org/datasets/movielens/100k/ and unpack it",
        )
    try:
        table = np.loadtxt(path, usecols=(0, 1, 2), dtype=np.float64, ndmin=2)
    except ValueError as error:
        raise DataError(
            f"is not MovieLens-100K: {error}", where=str(path), remedy="give ml-100k/u.data as it comes"
        ) from error
    (users, user), (items, item) = (np.unique(table[:, k], return_inverse=True) for k in (0, 1))
    centre = table[:, 2].mean()
    return _factorised(user, item, table[:, 2] - centre, (len(users), len(items)), seed).ravel()


def _factorised(
    user: NDArray[np.int64], item: NDArray[np.int64], rating: Floats, shape: tuple[int, int], seed: int
) -> Floats:
    """Ratings of all pairs by alternating least squares; a constant factor on each side is its bias."""
    random = np.random.default_rng([seed, 5])
    sides = [0.1 * random.standard_normal((size, FACTORS + 2)) for size in shape]
    sides[0][:, 0], sides[1][:, 1] = 1.0, 1.0
    codes = (user, item)
    orders = [np.argsort(code, kind="stable") for code in codes]
    for _ in range(SWEEPS):
        for this, other in ((0, 1), (1, 0)):
            bounds = np.searchsorted(codes[this][orders[this]], np.arange(shape[this] + 1))
            free = np.arange(FACTORS + 2) != this
            for row in range(shape[this]):
                seen = orders[this][bounds[row] : bounds[row + 1]]
                design = sides[other][codes[other][seen]]
                left = rating[seen] - design[:, this]
                design = design[:, free]
                square = design.T @ design + PENALTY * np.eye(FACTORS + 1)
                sides[this][row, free] = np.linalg.solve(square, design.T @ left)
    return np.asarray(sides[0] @ sides[1].T)


DRAWS = 20
SELECTION = 0.5
"""p of a pair is this to the power 1, 2, 3, 4, 4 for the rates 0.9, 0.7, 0.5, 0.3, 0.1 (MRDR's study)."""
POWERS = (4, 4, 3, 2, 1)
BIAS_SHARE = 0.5
"""λ of DR-MSE."""
KINDS = ("raw", "calibrated", "true")


@dataclass(frozen=True)
class Clicks:
    """What an estimator sees: the clicked pairs, and of all pairs only sums that need no conversion."""

    conversion: Floats
    logit: Floats
    """Of the prediction."""
    propensity: Floats
    population: int
    mean_softplus: float
    mean_logit: float
    """Over D; the mean of CE(t, r̂) over D for a constant t is mean_softplus − t·mean_logit."""
    mean_inverse: float
    """Of 1/p over D."""

    @property
    def error(self) -> Floats:
        """e."""
        return self.imputed(self.conversion)

    def imputed(self, rate: Floats | float) -> Floats:
        """CE(rate, r̂) of the clicked pairs."""
        return np.asarray(np.logaddexp(0.0, self.logit) - rate * self.logit)

    def rate(self, weight: Callable[[Floats], Floats]) -> float:
        """r̃ = Σ_O w·r / Σ_O w: the constant that minimises Σ_O w·CE(r, r̃)."""
        w = weight(self.propensity)
        return float((w * self.conversion).sum() / w.sum())

    def mean_imputed(self, rate: float) -> float:
        """(1/|D|) Σ_D CE(rate, r̂)."""
        return self.mean_softplus - rate * self.mean_logit

    def sum_over_clicks(self, values: Floats) -> float:
        """(1/|D|) Σ_O values."""
        return float(values.sum()) / self.population


def naive(clicks: Clicks) -> float:
    """mean_O e."""
    return float(clicks.error.mean())


def ips(clicks: Clicks) -> float:
    """(1/|D|) Σ_O e/p."""
    return clicks.sum_over_clicks(clicks.error / clicks.propensity)


def snips(clicks: Clicks) -> float:
    """Σ_O e/p / Σ_O 1/p."""
    return float(np.average(clicks.error, weights=1.0 / clicks.propensity))


def eib(clicks: Clicks) -> float:
    """(1/|D|) Σ_D [o·e + (1 − o)·ê], r̃ unweighted."""
    rate = clicks.rate(np.ones_like)
    return clicks.mean_imputed(rate) + clicks.sum_over_clicks(clicks.error - clicks.imputed(rate))


def doubly_robust(weight: Callable[[Floats], Floats]) -> Callable[[Clicks], float]:
    """(1/|D|) Σ_D [ê + o·(e − ê)/p] with r̃ by a method's weight."""

    def estimate(clicks: Clicks) -> float:
        rate = clicks.rate(weight)
        correction = (clicks.error - clicks.imputed(rate)) / clicks.propensity
        return clicks.mean_imputed(rate) + clicks.sum_over_clicks(correction)

    return estimate


def stable_dr(clicks: Clicks) -> float:
    """(1/|D|) Σ_D ê + Σ_O (e − ê)/p / Σ_O 1/p."""
    rate = clicks.rate(inverse_weight)
    deviation = clicks.error - clicks.imputed(rate)
    return clicks.mean_imputed(rate) + float(np.average(deviation, weights=1.0 / clicks.propensity))


def tdr(clicks: Clicks) -> float:
    """DR with ê* = ê + ε·(1/p − 1), ε by least squares over O."""
    rate = clicks.rate(inverse_weight)
    odds = 1.0 / clicks.propensity - 1.0
    deviation = clicks.error - clicks.imputed(rate)
    epsilon = float(deviation @ odds / (odds @ odds))
    targeted = clicks.mean_imputed(rate) + epsilon * (clicks.mean_inverse - 1.0)
    return targeted + clicks.sum_over_clicks((deviation - epsilon * odds) / clicks.propensity)


def _mse_weight(propensity: Floats) -> Floats:
    return BIAS_SHARE * bias_weight(propensity) + (1.0 - BIAS_SHARE) * variance_weight(propensity)


ESTIMATORS: dict[str, Callable[[Clicks], float]] = {
    "naive": naive,
    "ips": ips,
    "snips": snips,
    "eib": eib,
    "dr": doubly_robust(inverse_weight),
    "mrdr": doubly_robust(variance_weight),
    "dr-bias": doubly_robust(bias_weight),
    "dr-mse": doubly_robust(_mse_weight),
    "stable-dr": stable_dr,
    "tdr": tdr,
}


def estimator_study(
    root: str | Path | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    calibrator: str = "platt",
    **world: Any,
) -> pa.Table:
    """Relative error |estimate − truth| / truth of each estimator's loss of five predictions.

    A complete matrix of conversion rates is made from the synthetic world (``world`` are its options) or
    from MovieLens-100K in ``root``. In each draw conversions r ~ Bernoulli(rate) and clicks o ~ Bernoulli(p)
    are drawn anew. Raw propensities are half-way to the mean, 1/p̂ = ½/p + ½/p̄; calibrated ones come from a
    calibrator fitted on the clicks of the other half of the pairs. An imputer is one conversion rate, fitted
    to the clicks by its method's weight.

    Returns
    -------
    pyarrow.Table
        ``propensity`` ("raw", "calibrated", "true"), ``estimator``, ``prediction``, ``relative_error`` (mean
        over draws) and its ``deviation`` (standard deviation over draws); ``naive`` and ``eib`` use none and
        are the same under each.

    Examples
    --------
    >>> table = estimator_study(draws=2, n_users=60, n_items=40)
    >>> table.num_rows == 3 * 10 * 5
    True
    """
    require_at_least(1, draws=draws)
    rates = conversion_rates(root, seed, **world)
    propensity = SELECTION ** np.asarray(POWERS)[np.searchsorted(RATES, rates)].astype(np.float64)
    predictions = predictions_of(rates, np.random.default_rng([seed, 3]))
    errors: dict[tuple[str, str, str], list[float]] = {}
    for random in np.random.default_rng([seed, 4]).spawn(draws):
        label = (random.random(len(rates)) < rates).astype(np.float64)
        click = random.random(len(rates)) < propensity
        for kind, used in _propensities(propensity, click, calibrator, random).items():
            for name, prediction in predictions.items():
                clicks, truth = clicks_and_truth(label, click, logit(prediction), used)
                for estimator, estimate in ESTIMATORS.items():
                    off = abs(estimate(clicks) - truth) / truth
                    errors.setdefault((kind, estimator, name), []).append(off)
    rows = [
        {
            "propensity": kind,
            "estimator": estimator,
            "prediction": name,
            "relative_error": float(np.mean(values)),
            "deviation": float(np.std(values, ddof=1)) if draws > 1 else None,
        }
        for (kind, estimator, name), values in errors.items()
    ]
    source = "synthetic" if root is None else "MovieLens-100K"
    return pa.Table.from_pylist(rows).replace_schema_metadata(
        {"draws": str(draws), "calibrator": calibrator, "source": source}
    )


def show_estimators(table: pa.Table) -> Shown:
    """The result of :func:`estimator_study` as a table to read."""
    draws, calibrator, source = (
        table.schema.metadata[key].decode() for key in (b"draws", b"calibrator", b"source")
    )
    values = {(r["propensity"], r["estimator"], r["prediction"]): r for r in table.to_pylist()}
    rows = []
    for kind in KINDS:
        for estimator in ESTIMATORS:
            cells = (values[kind, estimator, name] for name in PREDICTIONS)
            rows.append((kind, estimator, *map(_percentage, cells)))
    return Shown(
        title=f"Relative error of the loss of five predictions ({source}, {draws} draws)",
        columns=("propensity", "estimator", *PREDICTIONS),
        rows=tuple(rows),
        caption=f"per cent, mean ± standard deviation over draws; calibrated by {calibrator}, cross-fitted",
        text_columns=2,
    )


def _propensities(
    p: Floats, click: NDArray[np.bool_], calibrator: str, random: np.random.Generator
) -> dict[str, Floats]:
    raw = 1.0 / (0.5 / p + 0.5 / click.mean())
    half = random.random(len(p)) < 0.5
    calibrated = np.empty_like(raw)
    for held_out in (half, ~half):
        fitted = make_calibrator(calibrator).fit(raw[~held_out], click[~held_out])
        calibrated[held_out] = fitted.predict(raw[held_out])
    return {"raw": raw, "calibrated": calibrated, "true": p}


def clicks_and_truth(
    label: Floats, click: NDArray[np.bool_], a: Floats, used: Floats
) -> tuple[Clicks, float]:
    """What is seen of a draw, and the mean error of all its pairs."""
    mean_softplus = float(np.logaddexp(0.0, a).mean())
    clicks = Clicks(
        conversion=label[click],
        logit=a[click],
        propensity=used[click],
        population=len(label),
        mean_softplus=mean_softplus,
        mean_logit=float(a.mean()),
        mean_inverse=float((1.0 / used).mean()),
    )
    return clicks, mean_softplus - float((label * a).mean())


def _percentage(row: dict[str, Any]) -> str:
    spread = "" if row["deviation"] is None else f" ± {100 * row['deviation']:.2f}"
    return f"{100 * row['relative_error']:.2f}{spread}"
