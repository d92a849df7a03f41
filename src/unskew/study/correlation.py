"""Does ECE tell how good the model will be? Along Platt's optimisation, and over calibrators and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import rankdata

from unskew.errors import DataError
from unskew.metrics import CalibrationSketch, ece

Array = NDArray[np.float64]

PLATT_START = (0.6, 0.0)
PLATT_RATE = 0.01
PLATT_EVALUATIONS = 1000
CHECKPOINT_EVERY = 10
"""L-BFGS of the published code: first slope and intercept, step length, limit; its study's checkpoints."""

SMALLEST_SCORE = 1e-15
BOOTSTRAP_DRAWS = 2000


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation of ECE with a metric, with a bootstrap interval."""

    metric: str
    rho: float
    low: float
    high: float
    points: int
    partial: bool
    """Whether mean weight and effective sample size were partialled out."""


def platt_path(
    sketch: CalibrationSketch, *, every: int = CHECKPOINT_EVERY, most: int = PLATT_EVALUATIONS
) -> list[tuple[int, float, float]]:
    """(evaluation, slope, intercept) along L-BFGS on the calibrator's likelihood, as published code runs it.

    Parameters
    ----------
    sketch
        Scores against clicks that the calibrator is fitted on.
    every
        Evaluations between checkpoints; the first and the last are kept too.
    most
        Iterations after which it stops.
    """
    import torch

    points = sketch.points()
    score = torch.as_tensor(logit(np.clip(points.score, SMALLEST_SCORE, 1 - SMALLEST_SCORE)))
    total, positive = (torch.as_tensor(part) for part in (points.total, points.positive))
    slope, intercept = (torch.tensor(start, dtype=torch.float64, requires_grad=True) for start in PLATT_START)
    optimiser = torch.optim.LBFGS([slope, intercept], lr=PLATT_RATE, max_iter=most)
    path: list[tuple[int, float, float]] = []

    def loss() -> torch.Tensor:
        path.append((len(path), float(slope.detach()), float(intercept.detach())))
        optimiser.zero_grad()
        z = slope * score + intercept
        value = (total * torch.nn.functional.softplus(z) - positive * z).sum() / total.sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    kept = [checkpoint for checkpoint in path if checkpoint[0] % every == 0]
    last = (len(path), float(slope.detach()), float(intercept.detach()))
    return [*kept, last]


def scaled(p: Array, slope: float, intercept: float) -> Array:
    """σ(b·logit p + c)."""
    return np.asarray(expit(slope * logit(np.clip(p, SMALLEST_SCORE, 1 - SMALLEST_SCORE)) + intercept))


def scaled_ece(sketch: CalibrationSketch, slope: float, intercept: float) -> float:
    """ECE of a sketch's scores after such a map."""
    points = sketch.points()
    score = scaled(points.score, slope, intercept)
    unclicked = points.total - points.positive
    return ece(
        sketch=CalibrationSketch.of(
            score=np.concatenate((score, score)),
            outcome=np.concatenate((np.ones_like(score), np.zeros_like(score))),
            weight=np.concatenate((points.positive, unclicked)),
        )
    )


def rank_correlation(
    ece_values: Sequence[float],
    metric_values: Mapping[str, Sequence[float]],
    *,
    cluster: Sequence[int],
    controls: Mapping[str, Sequence[float]] | None = None,
    draws: int = BOOTSTRAP_DRAWS,
    seed: int = 0,
) -> list[Correlation]:
    """ρ of ECE with each metric, with a 95 % interval from a bootstrap over clusters.

    With ``controls`` it is the partial rank correlation: ranks of ECE and of the metric are regressed on
    those of the controls, and what is left is correlated.

    Parameters
    ----------
    cluster
        What is drawn together: the seed of each point (points of a seed share its split and weights), or the
        point itself.
    """
    x = np.asarray(ece_values, dtype=np.float64)
    groups = np.asarray(cluster)
    names = np.unique(groups)
    if len(x) < 3:
        raise DataError(f"{len(x)} points have no rank correlation", remedy="give more rows or seeds")
    others = np.array([np.asarray(values, dtype=np.float64) for values in (controls or {}).values()])
    members = [np.flatnonzero(groups == name) for name in names]
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(names), size=(draws, len(names)))
    result = []
    for metric, values in metric_values.items():
        y = np.asarray(values, dtype=np.float64)
        drawn = []
        for pick in picks:
            rows = np.concatenate([members[place] for place in pick])
            drawn.append(_spearman(x[rows], y[rows], others[:, rows] if len(others) else others))
        low, high = np.nanquantile(drawn, (0.025, 0.975)) if len(names) > 1 else (np.nan, np.nan)
        result.append(
            Correlation(metric, _spearman(x, y, others), float(low), float(high), len(x), bool(len(others)))
        )
    return result


def _spearman(x: Array, y: Array, others: Array) -> float:
    left, right = rankdata(x), rankdata(y)
    if len(others):
        design = np.column_stack([np.ones(len(x)), *(rankdata(each) for each in others)])
        left, right = (each - design @ np.linalg.lstsq(design, each, rcond=None)[0] for each in (left, right))
    left, right = left - left.mean(), right - right.mean()
    scale = float(np.sqrt((left @ left) * (right @ right)))
    # Ranks that the controls explain exactly leave rounding errors, not a correlation.
    return float(left @ right / scale) if scale > 1e-9 * len(x) ** 3 else float("nan")
