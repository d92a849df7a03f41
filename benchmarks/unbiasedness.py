"""Estimates of the ideal loss, averaged over many draws of clicks: ``python -m benchmarks.unbiasedness``

Arithmetic over a synthetic world whose propensities are known; nothing is trained. The world, its
conversions, the predictor, propensities and imputed errors stay as they are; only o ~ Bernoulli(p) is drawn
anew. Wrong propensities are half-way to the mean, 1/p̂ = ½/p + ½/p̄; wrong imputed errors take r̃ = 1 − η,
conversion upside down. The last two rows impute by a linear function of the features, once with the weights
that minimise DR-JL's imputation loss over D, once with those that minimise MRDR's, the variance.

``--write docs/methods/index.md`` puts the table between the page's marks.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from benchmarks.common import markdown, put
from unskew.data.datasets import Dataset, load
from unskew.theory import ideal_loss, ips_variance, snips_bias, snips_variance

Floats = NDArray[np.float64]

CLEAR = 3.0
"""Standard errors of the mean beyond which an estimate counts as biased."""
ROUNDING = 1e-9
"""Relative size of a miss that is floating-point rounding: an estimate that cannot vary has no other."""
PREDICTOR_SLOPE, PREDICTOR_NOISE = 0.7, 1.0
"""The fixed predictor: so much of the true conversion logit, and normal noise of this deviation."""
CHUNK_CELLS = 1 << 22
"""Clicks drawn at once."""
COLUMNS = (
    "estimate", "propensity", "imputed errors", "mean", "miss", "± s.e.", "s.e. off", "miss in theory",
    "deviation of one", "claim",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Estimate:
    """An estimate that is linear in clicks, constant + Σ_O weight, divided by Σ_O 1 where it is a mean of O.

    ``propensity`` and ``imputation`` say in words what was used, ``claim`` what theory says of it.
    """

    name: str
    propensity: str
    imputation: str
    claim: str
    weight: Floats
    constant: float = 0.0
    mean_of_clicks: bool = False
    expected: float = 0.0
    deviation: float = 0.0


def study(redraws: int = 2000, seed: int = 0, **world: int) -> list[tuple[str, ...]]:
    """Return the rows of the table; ``world`` are options of the synthetic data."""
    data = load("synthetic", seed=seed, **world)
    error, estimates = estimates_of(data, np.random.default_rng([seed, 1]))
    assert data.truth is not None
    values = redrawn(estimates, data.truth.propensity.ravel(), redraws, np.random.default_rng([seed, 2]))
    return [_row(each, line, ideal_loss(error)) for each, line in zip(estimates, values.T, strict=True)]


def estimates_of(data: Dataset, random: np.random.Generator) -> tuple[Floats, list[Estimate]]:
    """Return the error of each pair, and the estimates of its mean."""
    truth = data.truth
    assert truth is not None
    p, label = truth.propensity.ravel(), truth.labels.ravel().astype(np.float64)
    conversion = truth.conversion.ravel()
    a = PREDICTOR_SLOPE * logit(conversion) + PREDICTOR_NOISE * random.standard_normal(len(p))
    error = _cross_entropy(label, a)
    wrong = 1.0 / (0.5 / p + 0.5 / p.mean())
    upside_down = _cross_entropy(1.0 - conversion, a)
    constant = _cross_entropy(np.full(len(p), conversion.mean()), a)
    features = _features(data)

    def doubly_robust(words: tuple[str, str, str, str], q: Floats, imputed: Floats) -> Estimate:
        return Estimate(
            *words,
            weight=(error - imputed) / q / len(p),
            constant=float(imputed.mean()),
            expected=float((imputed + p / q * (error - imputed)).mean()),
            deviation=float(
                np.sqrt(ips_variance(propensity_true=p, propensity_used=q, error=error - imputed))
            ),
        )

    ones, none = np.ones_like(p), np.zeros_like(p)
    off = snips_bias(propensity_true=p, propensity_used=ones, error=error).signed
    spread = snips_variance(propensity_true=p, propensity_used=ones, error=error)
    naive = Estimate(
        "naive",
        "–",
        "–",
        "biased",
        weight=error,
        mean_of_clicks=True,
        expected=float(error.mean()) - off,
        deviation=float(np.sqrt(spread)),
    )
    return error, [
        naive,
        doubly_robust(("IPS", "true", "–", "unbiased"), p, none),
        doubly_robust(("IPS", "wrong", "–", "biased"), wrong, none),
        doubly_robust(("EIB", "–", "wrong", "biased"), ones, upside_down),
        doubly_robust(("DR", "true", "one rate", "unbiased"), p, constant),
        doubly_robust(("DR", "true", "wrong", "unbiased"), p, upside_down),
        doubly_robust(("DR", "wrong", "true errors", "unbiased"), wrong, error),
        doubly_robust(("DR", "wrong", "wrong", "biased"), wrong, upside_down),
        doubly_robust(("DR", "true", "best for DR-JL", "unbiased"), p, _fitted(features, error, ones)),
        doubly_robust(("DR", "true", "best for MRDR", "unbiased"), p, _fitted(features, error, (1 - p) / p)),
    ]


def _cross_entropy(target: Floats, a: Floats) -> Floats:
    return np.asarray(-target * np.log(expit(a)) - (1.0 - target) * np.log(expit(-a)))


def _features(data: Dataset) -> Floats:
    """1 and the features of user and item, for every pair ``[|D|, k]``."""
    users, items = data.train.user_features, data.train.item_features
    assert users is not None
    assert items is not None
    rows = np.repeat(users.values, data.train.n_items, axis=0)
    columns = np.tile(items.values, (data.train.n_users, 1))
    return np.column_stack([np.ones(len(rows)), rows, columns]).astype(np.float64)


def _fitted(features: Floats, error: Floats, weight: Floats) -> Floats:
    """argmin over linear functions ê of the features of Σ_D weight·(e − ê)²."""
    weighted = features * weight[:, None]
    return np.asarray(features @ np.linalg.solve(weighted.T @ features, weighted.T @ error))


def redrawn(estimates: list[Estimate], p: Floats, redraws: int, random: np.random.Generator) -> Floats:
    """Each estimate on clicks that are drawn anew, ``[redraws, estimates]``."""
    weights = np.column_stack([*(each.weight for each in estimates), np.ones_like(p)])
    at_once = max(1, CHUNK_CELLS // len(p))
    sums = []
    for start in range(0, redraws, at_once):
        clicks = random.random((min(at_once, redraws - start), len(p))) < p
        sums.append(clicks.astype(np.float64) @ weights)
    total = np.concatenate(sums)
    count = total[:, -1]
    return np.column_stack(
        [
            each.constant + total[:, j] / (count if each.mean_of_clicks else 1.0)
            for j, each in enumerate(estimates)
        ]
    )


def _row(each: Estimate, values: Floats, ideal: float) -> tuple[str, ...]:
    deviation, miss = float(values.std(ddof=1)), float(values.mean()) - ideal
    error, off = deviation / np.sqrt(len(values)), "cannot vary"
    if deviation <= ROUNDING * ideal:
        deviation = error = 0.0
    else:
        off = f"{miss / error:+.1f}" if abs(miss) < 100 * error else f"{miss / error:+,.0f}"
    holds = (abs(miss) > CLEAR * error + ROUNDING * ideal) == (each.claim == "biased")
    return (
        each.name,
        each.propensity,
        each.imputation,
        f"{ideal + miss:.4f}",
        f"{miss:+.4f}",
        f"{error:.4f}",
        off,
        f"{each.expected - ideal:+.4f}",
        f"{deviation:.4f}",
        f"{each.claim}: {'holds' if holds else 'does not hold'}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--redraws", type=int, default=2000)
    parser.add_argument("--write", type=Path, default=None, help="a page with marks for the table")
    options = parser.parse_args()
    text = markdown(COLUMNS, study(options.redraws), words=3)
    print(text)
    if options.write:
        put(options.write, "unbiasedness", text)


if __name__ == "__main__":
    main()
