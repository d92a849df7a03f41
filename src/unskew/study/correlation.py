"""Does ECE predict how good the model will be? Along Platt's optimisation (paper), or over rows × seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import rankdata

from unskew.base.errors import DataError
from unskew.debias.evaluation import evaluate
from unskew.metrics import CalibrationSketch, ece
from unskew.metrics.registry import RANKING
from unskew.report.plots.reproduction import Cloud
from unskew.report.table import Table
from unskew.run.models import method_of
from unskew.run.protocol import protocol_of
from unskew.study.presets import NOISY, SOURCES, sources_of
from unskew.study.workshop import digest_of

if TYPE_CHECKING:
    from unskew.run.config import Config
    from unskew.study.reproduce import Reproduction

STACKED = 64
"""Replicas in one training at most."""

Array = NDArray[np.float64]

PLATT_START = (0.6, 0.0)
PLATT_RATE = 0.01
PLATT_EVALUATIONS = 1000
CHECKPOINT_EVERY = 10
"""L-BFGS of the published code: first slope and intercept, step length, limit; its study's checkpoints."""

SMALLEST_SCORE = 1e-15
BOOTSTRAP_DRAWS = 2000
NO_VARIANCE = 1e-9
"""Of the n³ that sums of squared ranks grow with: what is below is rounding."""


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


def platt_path(sketch: CalibrationSketch) -> list[tuple[int, float, float]]:
    """Return (evaluation, slope, intercept) along L-BFGS on the likelihood, as published code runs it.

    Every tenth evaluation, the first and the last, of a fit on a sketch of scores against clicks.
    """
    import torch

    points = sketch.points()
    score = torch.as_tensor(logit(np.clip(points.score, SMALLEST_SCORE, 1 - SMALLEST_SCORE)))
    total, positive = (torch.as_tensor(part) for part in (points.total, points.positive))
    slope, intercept = (torch.tensor(start, dtype=torch.float64, requires_grad=True) for start in PLATT_START)
    optimiser = torch.optim.LBFGS([slope, intercept], lr=PLATT_RATE, max_iter=PLATT_EVALUATIONS)
    path: list[tuple[int, float, float]] = []

    def loss() -> torch.Tensor:
        path.append((len(path), float(slope.detach()), float(intercept.detach())))
        optimiser.zero_grad()
        z = slope * score + intercept
        value = (total * torch.nn.functional.softplus(z) - positive * z).sum() / total.sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    checkpoints = [checkpoint for checkpoint in path if checkpoint[0] % CHECKPOINT_EVERY == 0]
    last = (len(path), float(slope.detach()), float(intercept.detach()))
    return [*checkpoints, last]


def scaled(p: Array, slope: float, intercept: float) -> Array:
    """Return σ(b·logit p + c)."""
    return np.asarray(expit(slope * logit(np.clip(p, SMALLEST_SCORE, 1 - SMALLEST_SCORE)) + intercept))


def scaled_ece(sketch: CalibrationSketch, slope: float, intercept: float) -> float:
    """Return the ECE of a sketch's scores after such a map."""
    points = sketch.points()
    score = scaled(points.score, slope, intercept)
    unclicked = points.total - points.positive
    return ece(
        CalibrationSketch.of(
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
    """Return ρ of ECE with each metric, with a 95 % interval from a bootstrap over clusters.

    With ``controls`` it is the partial rank correlation: ranks of ECE and of the metric are regressed on
    those of the controls, and what is left is correlated.

    Parameters
    ----------
    cluster
        What is drawn together: the seed of each point (points of a seed share its split and weights), or the
        point itself; all of one size.
    """
    x = np.asarray(ece_values, dtype=np.float64)
    if len(x) < 3:
        raise DataError(f"{len(x)} points have no rank correlation", remedy="give more rows or seeds")
    names, index = np.unique(np.asarray(cluster), return_inverse=True)
    members = np.argsort(index, kind="stable").reshape(len(names), -1)
    others = np.array([np.asarray(values, dtype=np.float64) for values in (controls or {}).values()])
    picks = np.random.default_rng(seed).integers(0, len(names), size=(draws, len(names)))
    # The first line are the points as they are, the others the draws.
    rows = np.concatenate((np.arange(len(x))[None], members[picks].reshape(draws, -1)))
    result = []
    for metric, values in metric_values.items():
        y = np.asarray(values, dtype=np.float64)
        rho = _spearman(x[rows], y[rows], [each[rows] for each in others])
        low, high = _interval(rho[1:]) if len(names) > 1 else (math.nan, math.nan)
        result.append(Correlation(metric, float(rho[0]), low, high, len(x), bool(len(others))))
    return result


def _interval(drawn: Array) -> tuple[float, float]:
    defined = drawn[np.isfinite(drawn)]
    if not len(defined):
        return math.nan, math.nan
    low, high = np.quantile(defined, (0.025, 0.975))
    return float(low), float(high)


def _spearman(x: Array, y: Array, others: Sequence[Array]) -> Array:
    """Return the rank correlation of each line ``[draws, n]``; NaN where one side does not vary."""
    left, right = rankdata(x, axis=1), rankdata(y, axis=1)
    design = np.stack([np.ones_like(left), *(rankdata(each, axis=1) for each in others)], axis=2)
    inverse = np.linalg.pinv(design)
    left, right = (each - (design @ (inverse @ each[..., None]))[..., 0] for each in (left, right))
    scale = np.sqrt((left**2).sum(1) * (right**2).sum(1))
    # Ranks that the controls explain exactly leave rounding errors, not a correlation.
    defined = scale > NO_VARIANCE * x.shape[1] ** 3
    return np.where(defined, (left * right).sum(1) / np.where(defined, scale, 1.0), math.nan)


@dataclass(frozen=True)
class CorrelationStudy:
    """Points, and their correlations raw and partial."""

    clouds: list[Cloud]
    correlations: list[Correlation]
    about: str

    @property
    def notes(self) -> dict[str, str]:
        """Return the title of each metric's panel: its raw correlation."""
        return {
            each.metric: f"ρ = {each.rho:+.2f} [{each.low:+.2f}, {each.high:+.2f}]"
            for each in self.correlations
            if not each.partial
        }

    def shown(self, title: str) -> Table:
        """Return the correlations as a table."""
        rows = []
        for metric in RANKING:
            cells = [metric]
            for is_partial in (False, True):
                pair = [c for c in self.correlations if c.metric == metric and c.partial == is_partial]
                cells += [f"{c.rho:+.2f} [{c.low:+.2f}, {c.high:+.2f}]" for c in pair] or ["–"]
            rows.append(tuple(cells))
        heads = ("", "Spearman's ρ of ECE with it", "… without mean weight and ESS")
        return Table(title=title, columns=heads, rows=tuple(rows), caption=self.about)


def ece_against_performance(work: Reproduction) -> CorrelationStudy:
    """Return the study of the supplement under ``paper``, and its unconfounded counterpart under
    ``honest``."""
    return _along_platt(work) if work.protocol == "paper" else _over_rows(work)


def _along_platt(work: Reproduction) -> CorrelationStudy:
    key = NOISY.key if "platt_dropout" not in work.plain.evaluation.reverse else "raw"
    start, config = work.result(work.config(key)), work.config(key, "ips")
    sketch, rows, log = start.sketches["calibrated"], start.rows["calibrated"][:1], start.dataset.train
    path = platt_path(sketch)
    # The propensities of the first seed, for all seeds.
    checkpoints = {str(number): scaled(rows, slope, intercept) for number, slope, intercept in path}
    at_once = max(1, STACKED // len(config.seeds))
    scores: dict[str, dict[str, float]] = {}
    for first in range(0, len(path), at_once):
        names = [str(number) for number, _, _ in path[first : first + at_once]]
        some = {name: checkpoints[name] for name in names}
        key = digest_of(run=work.workshop.key(config), path=path[first : first + at_once])
        scores |= work.workshop.kept(key, partial(_trained_with, work, config, some))
    metrics = {metric: [scores[name][metric] for name in checkpoints] for metric in RANKING}
    eces = [scaled_ece(sketch, slope, intercept) for _, slope, intercept in path]
    weights = [1.0 / p[0, log.clicked] for p in checkpoints.values()]
    controls = {
        "mean weight": [float(w.mean()) for w in weights],
        "ess": [float(w.sum() ** 2 / (w**2).sum()) for w in weights],
    }
    cluster = list(range(len(eces)))
    return CorrelationStudy(
        clouds=[Cloud("Platt's optimisation", eces, metrics)],
        correlations=_raw_and_partial(eces, metrics, cluster, controls),
        about=(
            f"one optimisation of Platt scaling on seed {config.seeds[0]}, a checkpoint every 10 evaluations"
            f" ({len(path)} in all); IPS trained with each, mean of {len(config.seeds)} seeds; 95 % intervals"
            " by a bootstrap over checkpoints, which follow one another and so are too narrow"
        ),
    )


def _trained_with(
    work: Reproduction, config: Config, propensities: Mapping[str, Array]
) -> dict[str, dict[str, float]]:
    """Train IPS with each of some propensities; return its test metrics, means over seeds."""
    data = work.workshop.load(config)
    assert data.test is not None
    method = method_of(config, protocol_of(config), "ips", data.train.density)
    models = method.fit_many(
        data.train,
        propensities=propensities,
        seeds=list(config.seeds),
        device=config.compute.device,
        progress=work.progress,
    )
    return {
        name: {metric: float(values.mean()) for metric, values in evaluate(model, data.test).items()}
        for name, model in models.items()
    }


def _raw_and_partial(
    eces: list[float], metrics: dict[str, list[float]], cluster: list[int], controls: dict[str, list[float]]
) -> list[Correlation]:
    raw = rank_correlation(eces, metrics, cluster=cluster)
    return [*raw, *rank_correlation(eces, metrics, cluster=cluster, controls=controls)]


def _over_rows(work: Reproduction) -> CorrelationStudy:
    keys = sources_of(work.protocol)
    figures = dict(zip(keys, work.values([work.config(key) for key in keys], "propensity"), strict=True))
    scores = dict(zip(keys, work.values([work.config(key, "ips") for key in keys]), strict=True))
    clouds = [
        Cloud(SOURCES[key].title, figures[key]["ece"], {metric: scores[key][metric] for metric in RANKING})
        for key in keys
    ]
    judged = [(key, cloud) for key, cloud in zip(keys, clouds, strict=True) if key != "constant"]
    eces = [value for _, cloud in judged for value in cloud.ece]
    metrics = {
        metric: [value for _, cloud in judged for value in cloud.metrics[metric]] for metric in RANKING
    }
    controls = {
        name: [value for key, _ in judged for value in figures[key][figure]]
        for name, figure in (("mean weight", "weight_check"), ("ess", "effective_sample_size"))
    }
    seeds = work.plain.seeds
    return CorrelationStudy(
        clouds=clouds,
        correlations=_raw_and_partial(eces, metrics, [seed for _ in judged for seed in seeds], controls),
        about=(
            f"{len(judged)} rows × {len(seeds)} seeds, without the constant, which has an ECE of 0 by"
            " construction; 95 % intervals by a bootstrap over seeds"
        ),
    )
