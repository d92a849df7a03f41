"""How far off each estimator is, with raw and calibrated propensities: ``python -m benchmarks.estimators``

The semi-synthetic benchmark of the MRDR paper on the synthetic world. A complete matrix of conversion rates
is given, with five flawed predictions of it. In each draw conversions r ~ Bernoulli(rate) and clicks
o ~ Bernoulli(p) are drawn anew; the figure is |estimate − truth| / truth of each estimator's loss of a
prediction. Raw propensities are half-way to the mean, 1/p̂ = ½/p + ½/p̄; calibrated ones come from a
calibrator fitted on the clicks of the other half of the pairs. An imputer is one conversion rate, fitted by
its method's weight.

``--write PAGE.md`` puts the table between the page's marks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from benchmarks.common import markdown, put
from unskew.calibration import make_calibrator
from unskew.data.datasets import load
from unskew.metrics.sample_weight import bias_weight, error_weight, inverse_weight, variance_weight

Floats = NDArray[np.float64]

RATES = (0.1, 0.3, 0.5, 0.7, 0.9)
SHARES = (0.53, 0.24, 0.14, 0.07, 0.02)
"""Conversion rates of a complete matrix and how many pairs have each, as in MRDR's study: about the
distribution of ratings in the randomly shown part of Yahoo! R3."""

PREDICTIONS = ("ONE", "THREE", "FIVE", "SKEW", "CRS")

SELECTION = 0.5
"""p of a pair is this to the power 1, 2, 3, 4, 4 for the rates 0.9, 0.7, 0.5, 0.3, 0.1 (MRDR's study)."""
POWERS = (4, 4, 3, 2, 1)


def conversion_rates(seed: int, **world: int) -> Floats:
    """One of :data:`RATES` for every pair ``[|D|]``, by rank of its conversion probability."""
    truth = load("synthetic", seed=seed, **world).truth
    assert truth is not None
    score = truth.conversion.ravel()
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


ESTIMATORS: dict[str, Callable[[Clicks], float]] = {
    "naive": naive,
    "ips": ips,
    "snips": snips,
    "eib": eib,
    "dr": doubly_robust(inverse_weight),
    "mrdr": doubly_robust(variance_weight),
    "dr-bias": doubly_robust(bias_weight),
    "dr-mse": doubly_robust(error_weight),
    "stable-dr": stable_dr,
    "tdr": tdr,
}


def study(draws: int = 20, seed: int = 0, calibrator: str = "platt", **world: int) -> list[tuple[str, ...]]:
    """Return the rows of the table, in per cent; ``world`` are options of the synthetic data."""
    rates = conversion_rates(seed, **world)
    propensity = SELECTION ** np.asarray(POWERS)[np.searchsorted(RATES, rates)].astype(np.float64)
    predictions = predictions_of(rates, np.random.default_rng([seed, 3]))
    errors: dict[tuple[str, str], dict[str, list[float]]] = {}
    for random in np.random.default_rng([seed, 4]).spawn(draws):
        label = (random.random(len(rates)) < rates).astype(np.float64)
        click = random.random(len(rates)) < propensity
        for kind, used in _propensities(propensity, click, calibrator, random).items():
            for name, prediction in predictions.items():
                clicks, truth = clicks_and_truth(label, click, logit(prediction), used)
                for estimator, estimate in ESTIMATORS.items():
                    off = 100 * abs(estimate(clicks) - truth) / truth
                    errors.setdefault((kind, estimator), {}).setdefault(name, []).append(off)
    return [
        (*names, *(f"{np.mean(of):.2f} ± {np.std(of, ddof=1):.2f}" for of in row.values()))
        for names, row in errors.items()
    ]


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
    """Return the clicks that are seen of a draw, and the mean error of all its pairs."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--calibrator", default="platt")
    parser.add_argument("--write", type=Path, default=None, help="a page with marks for the table")
    options = parser.parse_args()
    rows = study(options.draws, calibrator=options.calibrator)
    text = markdown(("propensity", "estimator", *PREDICTIONS), rows, words=2)
    print(text)
    if options.write:
        put(options.write, "estimators", text)


if __name__ == "__main__":
    main()
