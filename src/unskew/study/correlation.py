"""Does ECE predict how good the model will be? Along Platt's optimisation (paper), or over rows × seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import rankdata

from unskew.base.errors import DataError
from unskew.metrics import CalibrationSketch, ece
from unskew.metrics.registry import RANKING
from unskew.report.plots.reproduction import Cloud
from unskew.report.table import Table
from unskew.study.presets import NOISY, SOURCES, sources_of
from unskew.study.reproduction import Reproduction, Values
from unskew.study.results import result_key
from unskew.study.table import seeds_of
from unskew.study.trained import Given

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
    """(evaluation, slope, intercept) along L-BFGS on the calibrator's likelihood, as published code runs it.

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
    kept = [checkpoint for checkpoint in path if checkpoint[0] % CHECKPOINT_EVERY == 0]
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
    """ρ of ECE with each metric, with a 95 % interval from a bootstrap over clusters.

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
    names, place = np.unique(np.asarray(cluster), return_inverse=True)
    members = np.argsort(place, kind="stable").reshape(len(names), -1)
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
    """Rank correlation of each line ``[draws, n]``; NaN where one side does not vary."""
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
        """What the panel of each metric is titled with: the raw correlation."""
        return {
            each.metric: f"ρ = {each.rho:+.2f} [{each.low:+.2f}, {each.high:+.2f}]"
            for each in self.correlations
            if not each.partial
        }

    def shown(self, title: str) -> Table:
        """The correlations as a table."""
        rows = []
        for metric in RANKING:
            cells = [metric]
            for partial in (False, True):
                found = [c for c in self.correlations if c.metric == metric and c.partial == partial]
                cells += [f"{c.rho:+.2f} [{c.low:+.2f}, {c.high:+.2f}]" for c in found] or ["–"]
            rows.append(tuple(cells))
        heads = ("", "Spearman's ρ of ECE with it", "… without mean weight and ESS")
        return Table(title=title, columns=heads, rows=tuple(rows), caption=self.about)


def ece_against_performance(work: Reproduction, table: pa.Table) -> CorrelationStudy:
    """The study of the supplement under ``paper``, and its unconfounded counterpart under ``honest``, which
    is in the long table of the preset."""
    return _along_platt(work) if work.config.protocol == "paper" else _over_rows(work, table)


def _along_platt(work: Reproduction) -> CorrelationStudy:
    key = NOISY.key if "platt_dropout" not in work.config.reversed else "raw"
    start = work.engine(work.grid([key]))
    start.run(work.progress)
    (given,) = start.data[0].given
    sketch, rows = given.sketch(work.store), given.rows(work.store)[:1]
    path = platt_path(sketch)
    # The methods of a grid take the propensities of its data: here the checkpoints.
    engine = work.engine(work.grid([key], {"ips": True}))
    engine.data[0].given = [_checkpoint(work, given, rows, *step) for step in path]
    by_row = seeds_of(engine.run(work.progress), "method")
    found = [values for row, values in by_row.items() if row.dataset == work.data]
    metrics = {metric: [float(np.mean(list(each[metric].values()))) for each in found] for metric in RANKING}
    eces = [scaled_ece(sketch, slope, intercept) for _, slope, intercept in path]
    log, seeds = engine.data[0].dataset.train, work.config.seed_list
    weights = [1.0 / each.rows(work.store)[0, log.clicked] for each in engine.data[0].given]
    controls = {
        "mean weight": [float(w.mean()) for w in weights],
        "ess": [float(w.sum() ** 2 / (w**2).sum()) for w in weights],
    }
    cluster = list(range(len(eces)))
    return CorrelationStudy(
        clouds=[Cloud("Platt's optimisation", eces, metrics)],
        correlations=_raw_and_partial(eces, metrics, cluster, controls),
        about=(
            f"one optimisation of Platt scaling on seed {seeds[0]}, a checkpoint every 10 evaluations"
            f" ({len(path)} in all); IPS trained with each, mean of {len(seeds)} seeds; 95 % intervals"
            " by a bootstrap over checkpoints, which follow one another and so are too narrow"
        ),
    )


def _raw_and_partial(
    eces: list[float], metrics: dict[str, list[float]], cluster: list[int], controls: dict[str, list[float]]
) -> list[Correlation]:
    raw = rank_correlation(eces, metrics, cluster=cluster)
    return [*raw, *rank_correlation(eces, metrics, cluster=cluster, controls=controls)]


def _checkpoint(
    work: Reproduction, given: Given, rows: Array, number: int, slope: float, intercept: float
) -> Given:
    """The same propensities, those of the first seed for all seeds, so far along Platt's optimisation."""
    key = result_key("checkpoint", given=given.key, slope=slope, intercept=intercept)
    if not work.store.has(key):
        work.store.write(key, {"figures": {}, "timing": {}}, {"rows": scaled(rows, slope, intercept)})
    return replace(given, calibrator=f"evaluation {number}", key=key, matrix_key=key, raw_key="")


def _over_rows(work: Reproduction, table: pa.Table) -> CorrelationStudy:
    keys = sources_of(work.config.protocol)
    figures, scores = (Values(table, work, part) for part in ("propensity", "method"))
    clouds = [
        Cloud(
            SOURCES[key].title,
            figures.of(key)["ece"],
            {metric: scores.of(key, "ips")[metric] for metric in RANKING},
        )
        for key in keys
    ]
    judged = [(key, cloud) for key, cloud in zip(keys, clouds, strict=True) if key != "constant"]
    eces = [value for _, cloud in judged for value in cloud.ece]
    metrics = {
        metric: [value for _, cloud in judged for value in cloud.metrics[metric]] for metric in RANKING
    }
    controls = {
        name: [value for key, _ in judged for value in figures.of(key)[figure]]
        for name, figure in (("mean weight", "weight_check"), ("ess", "effective_sample_size"))
    }
    seeds = work.config.seed_list
    cluster = [seed for _ in judged for seed in seeds]
    return CorrelationStudy(
        clouds=clouds,
        correlations=_raw_and_partial(eces, metrics, cluster, controls),
        about=(
            f"{len(judged)} rows × {len(seeds)} seeds, without the constant, which has an ECE of 0 by"
            " construction; 95 % intervals by a bootstrap over seeds"
        ),
    )
